//! A backend that says that it uploads columns, and proves on the processor.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use cuzk_gpu::cpu::CpuBackend;
use cuzk_gpu::{
    Backend, CColumn, CircuitSizes, Column, ColumnLayout, Columns, Completion, Key, KeyTier,
    Pending, ProveRequest, Upload, pending,
};
use cuzk_pinned::{Fence, StagingRing};

use crate::toy::cpu;

/// Where a proof stops until the test lets it go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nowhere.
    Never,
    /// It has its columns and has not given them back.
    WithColumns,
    /// It has given them back, and is not done.
    WithoutColumns,
}

/// Reads columns as a device would, and remembers where they lay.
pub(crate) struct Uploading {
    inner: Arc<CpuBackend>,
    upload: Upload,
    ring: Option<Mutex<StagingRing>>,
    stop: Stop,
    permits: Arc<Mutex<Receiver<()>>>,
    seen: Mutex<Vec<bool>>,
}

impl Uploading {
    /// Stages if it is given a ring. The sender lets stopped proofs go on; a dropped one
    /// all of them.
    pub(crate) fn new(ring: Option<StagingRing>, stop: Stop) -> (Arc<Self>, Sender<()>) {
        let (permit, permits) = channel();
        let backend = Self {
            inner: Arc::new(cpu(true)),
            upload: match ring {
                Some(_) => Upload::Staged,
                None => Upload::FromColumns,
            },
            ring: ring.map(Mutex::new),
            stop,
            permits: Arc::new(Mutex::new(permits)),
            seen: Mutex::default(),
        };
        (Arc::new(backend), permit)
    }

    /// For each request so far, whether all of its columns lay in page-locked memory.
    pub(crate) fn seen(&self) -> Vec<bool> {
        self.seen.lock().expect("no panic under the lock").clone()
    }

    fn read(&self, columns: &Columns) {
        let Columns { a, b, c, aux } = columns;
        let all = || [a, b, aux].into_iter().chain(c);
        for column in all() {
            self.read_column(column);
        }
        let is_pinned = all().all(|column| column.buffer().is_page_locked());
        let mut seen = self.seen.lock().expect("no panic under the lock");
        seen.push(is_pinned);
    }

    fn read_column(&self, column: &Column) {
        let source = column.buffer().as_bytes();
        let mut arrived = vec![0; source.len()];
        match &self.ring {
            Some(ring) if !column.buffer().is_page_locked() => {
                let mut ring = ring.lock().expect("no panic under the lock");
                let upload = |chunk: &[u8], offset: usize| {
                    arrived[offset..offset + chunk.len()].copy_from_slice(chunk);
                    Ok::<_, ()>(Passed)
                };
                ring.copy(source, upload).expect("nothing is refused");
            }
            _ => {
                for range in column.buffer().copy_ranges() {
                    arrived[range.clone()].copy_from_slice(&source[range]);
                }
            }
        }
        assert!(arrived == source, "a column arrived as another one");
    }
}

/// A copy that has ended.
struct Passed;

impl Fence for Passed {
    fn wait(&self) {}

    fn has_passed(&self) -> bool {
        true
    }
}

impl Backend for Uploading {
    fn name(&self) -> &'static str {
        "uploading"
    }

    fn c_column(&self) -> CColumn {
        self.inner.c_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        self.inner.layout(sizes)
    }

    fn upload(&self) -> Upload {
        self.upload
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        self.inner.work_bytes(sizes, key, tier)
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        self.read(&request.columns);
        let (completion, pending) = pending();
        let (inner, permits, stop) = (self.inner.clone(), self.permits.clone(), self.stop);
        std::thread::spawn(move || {
            let wait = || {
                // A test that has ended permits everything.
                let _ = permits.lock().expect("no panic under the lock").recv();
            };
            finish(&inner, request, completion, stop, wait);
        });
        pending
    }
}

fn finish(
    inner: &CpuBackend,
    request: ProveRequest,
    completion: Completion,
    stop: Stop,
    wait: impl Fn(),
) {
    if stop == Stop::WithColumns {
        wait();
    }
    let mut proof = inner.submit(request);
    if let Some(columns) = proof.columns_read() {
        completion.columns_read(columns);
    }
    if stop == Stop::WithoutColumns {
        wait();
    }
    completion.done(proof.done());
}
