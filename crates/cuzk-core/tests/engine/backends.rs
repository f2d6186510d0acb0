//! Backends that misbehave.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use cuzk_gpu::cpu::CpuBackend;
use cuzk_gpu::{
    Backend, CColumn, CircuitSizes, ColumnLayout, Key, KeyTier, Pending, ProveRequest, Proved,
    pending,
};
use ff::PrimeField;

use crate::toy::cpu;

/// Which proofs a [`Faulty`] backend spoils.
pub(crate) enum Spoil {
    /// The first so many.
    First(AtomicUsize),
    /// The first for each public input.
    FirstOfEach(Mutex<HashSet<[u8; 32]>>),
}

/// A backend that gives wrong proofs, waits to be told, or asks for short columns.
pub(crate) struct Faulty {
    inner: CpuBackend,
    spoil: Spoil,
    /// Circuits of fewer constraints get columns of just that length.
    short_below: usize,
    /// Columns of this length, whatever the circuit.
    rows: Option<usize>,
    /// Whether it wants no memory beside the columns.
    is_light: bool,
    /// Each request first takes one of these, and waits for it.
    permits: Option<Mutex<Receiver<()>>>,
    seen: AtomicUsize,
}

impl Faulty {
    fn new(spoil: Spoil) -> Self {
        Self {
            inner: cpu(true),
            spoil,
            short_below: 0,
            rows: None,
            is_light: false,
            permits: None,
            seen: AtomicUsize::new(0),
        }
    }

    /// Spoils the first `times` proofs.
    pub(crate) fn corrupting(times: usize) -> Self {
        Self::new(Spoil::First(AtomicUsize::new(times)))
    }

    /// Spoils the first proof of every part.
    pub(crate) fn corrupting_each() -> Self {
        Self::new(Spoil::FirstOfEach(Mutex::default()))
    }

    /// Wants columns shorter than the domain for circuits of fewer constraints.
    pub(crate) fn short_below(constraints: usize) -> Self {
        Self {
            short_below: constraints,
            ..Self::corrupting(0)
        }
    }

    /// Wants columns of so many scalars.
    pub(crate) fn greedy(rows: usize) -> Self {
        Self {
            rows: Some(rows),
            ..Self::corrupting(0)
        }
    }

    /// Says that it wants no memory beside the columns.
    pub(crate) fn light() -> Self {
        Self {
            is_light: true,
            ..Self::corrupting(0)
        }
    }

    /// Holds the columns of each request until it is sent a permit.
    pub(crate) fn held() -> (Arc<Self>, Sender<()>) {
        Self::held_corrupting(0)
    }

    /// The same, and spoils the first `times` proofs.
    pub(crate) fn held_corrupting(times: usize) -> (Arc<Self>, Sender<()>) {
        let (permit, permits) = channel();
        let backend = Self {
            permits: Some(Mutex::new(permits)),
            ..Self::corrupting(times)
        };
        (Arc::new(backend), permit)
    }

    /// Requests so far.
    pub(crate) fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }

    fn spoils(&self, request: &ProveRequest) -> bool {
        match &self.spoil {
            Spoil::First(left) => left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok(),
            Spoil::FirstOfEach(seen) => {
                let y = request.inputs[1].to_repr();
                seen.lock().expect("no panic under the lock").insert(y)
            }
        }
    }
}

impl Backend for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn c_column(&self) -> CColumn {
        self.inner.c_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        let layout = self.inner.layout(sizes);
        if let Some(rows) = self.rows {
            return ColumnLayout { rows, ..layout };
        }
        if sizes.constraints < self.short_below {
            let rows = sizes.constraints;
            return ColumnLayout { rows, ..layout };
        }
        layout
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        if self.is_light {
            return 0;
        }
        self.inner.work_bytes(sizes, key, tier)
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        self.seen.fetch_add(1, Ordering::SeqCst);
        if let Some(permits) = &self.permits {
            // A test that has ended permits everything.
            let _ = permits.lock().expect("no panic under the lock").recv();
        }
        let spoils = self.spoils(&request);
        let mut inner = self.inner.submit(request);
        let (completion, pending) = pending();
        if let Some(columns) = inner.columns_read() {
            completion.columns_read(columns);
        }
        let spoil = |mut proved: Proved| {
            proved.proof.c = -proved.proof.c;
            proved
        };
        let result = inner.done();
        completion.done(if spoils { result.map(spoil) } else { result });
        pending
    }
}
