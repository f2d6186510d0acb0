//! A backend made of two: each proof is made on both, what they compute on the way is
//! compared step by step, and a proof leaves only if nothing differs.

#[cfg(test)]
pub(crate) mod tests;

use std::array::from_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use blake2b_simd::{Hash, State};
use blstrs::Scalar;

use crate::backend::{
    Backend, Completion, DeviceUse, Pending, ProveRequest, Proved, Upload, pending,
};
use crate::column::{CColumn, Column, ColumnLayout, Columns};
use crate::error::BackendError;
use crate::groth16::{Statement, check};
use crate::key::{Key, KeyTier};
use crate::phase::{Phase, PhaseLane};
use crate::shape::{CircuitShape, CircuitSizes};
use crate::watch::{Intermediate, Watch};

/// Two backends as one, for whoever wants to know where they part. A proof takes the
/// time of both, one after the other, and the digests of everything they show.
///
/// Columns go to the first and, when its proof is there, to the second. A first backend
/// that reads columns where they lie spoils them: then a copy is kept for the second,
/// in ordinary memory, and counted in [`work_bytes`](Backend::work_bytes). A device
/// leaves them as they are, so it best stands first.
///
/// A request's own [`Watch`] is shown what the first computes.
pub struct Dual {
    pair: Arc<Pair>,
    queue_len_max: usize,
    queue: Option<SyncSender<(ProveRequest, Completion)>>,
    thread: Option<JoinHandle<()>>,
}

struct Pair {
    first: Arc<dyn Backend>,
    second: Arc<dyn Backend>,
}

impl Dual {
    /// Starts the thread that hands each proof to both. `queue_len_max` proofs may wait
    /// behind the one under way; one more is refused.
    ///
    /// # Errors
    /// [`BackendError::Start`] if the system refuses the thread.
    pub fn start(
        first: Arc<dyn Backend>,
        second: Arc<dyn Backend>,
        queue_len_max: usize,
    ) -> Result<Self, BackendError> {
        let pair = Arc::new(Pair { first, second });
        let (queue, requests) = sync_channel(queue_len_max);
        let on_thread = Arc::clone(&pair);
        let thread = std::thread::Builder::new()
            .name("cuzk-dual".to_owned())
            .spawn(move || on_thread.run(&requests))
            .map_err(|error| BackendError::Start {
                what: "the thread of two backends",
                reason: error.to_string(),
            })?;
        Ok(Self {
            pair,
            queue_len_max,
            queue: Some(queue),
            thread: Some(thread),
        })
    }
}

impl Drop for Dual {
    /// What waits is finished first.
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // It catches its panics, and a drop has nobody to report to.
            let _ = thread.join();
        }
    }
}

impl Backend for Dual {
    fn name(&self) -> &'static str {
        "dual"
    }

    fn device(&self) -> Option<DeviceUse> {
        let Pair { first, second } = &*self.pair;
        first.device().or_else(|| second.device())
    }

    fn is_lost(&self) -> bool {
        self.pair.first.is_lost() || self.pair.second.is_lost()
    }

    fn keeps_keys(&self) -> bool {
        self.pair.first.keeps_keys() && self.pair.second.keeps_keys()
    }

    fn c_column(&self) -> CColumn {
        self.pair.c_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        self.pair.layout(sizes)
    }

    fn upload(&self) -> Upload {
        match self.pair.first.upload() {
            Upload::None => self.pair.second.upload(),
            upload => upload,
        }
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        let Pair { first, second } = &*self.pair;
        let work = first
            .work_bytes(sizes, key, tier)
            .max(second.work_bytes(sizes, key, tier));
        let kept = match self.pair.spoils() {
            true => Kept::bytes(&self.layout(sizes)),
            false => 0,
        };
        work.saturating_add(kept)
    }

    fn check(&self, sizes: &CircuitSizes, key: &Key) -> Result<(), BackendError> {
        self.pair.first.check(sizes, key)?;
        self.pair.second.check(sizes, key)
    }

    fn preload(&self, key: &Arc<Key>) -> Result<KeyTier, BackendError> {
        self.pair.second.preload(key)?;
        self.pair.first.preload(key)
    }

    fn preload_shape(&self, shape: &Arc<CircuitShape>) -> Result<(), BackendError> {
        self.pair.second.preload_shape(shape)?;
        self.pair.first.preload_shape(shape)
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        let (completion, pending) = pending();
        let queue = self.queue.as_ref().expect("the queue lives until the drop");
        let ((request, completion), error) = match queue.try_send((request, completion)) {
            Ok(()) => return pending,
            Err(TrySendError::Full(refused)) => (
                refused,
                BackendError::QueueFull {
                    limit: self.queue_len_max,
                },
            ),
            Err(TrySendError::Disconnected(refused)) => (refused, BackendError::Lost),
        };
        completion.columns_read(request.columns);
        completion.done(Err(error));
        pending
    }
}

impl Pair {
    fn c_column(&self) -> CColumn {
        // One that wants scratch may have any contents.
        match (self.first.c_column(), self.second.c_column()) {
            (CColumn::Synthesised, _) | (_, CColumn::Synthesised) => CColumn::Synthesised,
            (CColumn::Scratch, _) | (_, CColumn::Scratch) => CColumn::Scratch,
            (CColumn::Absent, CColumn::Absent) => CColumn::Absent,
        }
    }

    /// As many rows as the longer wants.
    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        let [first, second] = [&self.first, &self.second].map(|backend| backend.layout(sizes));
        ColumnLayout {
            rows: first.rows.max(second.rows),
            aux: first.aux.max(second.aux),
            c: self.c_column(),
        }
    }

    /// Whether the first computes in the columns themselves.
    fn spoils(&self) -> bool {
        self.first.upload() == Upload::None
    }

    fn run(&self, requests: &Receiver<(ProveRequest, Completion)>) {
        for (request, completion) in requests {
            // The backends catch their own panics; this is for the rest. Whoever waits
            // hears that there is no answer.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let (result, columns) = self.prove(request);
                if let Some(columns) = columns {
                    completion.columns_read(columns);
                }
                completion.done(result);
            }));
        }
    }

    /// Proves on both and compares. The columns are those of the request, if no backend
    /// lost them.
    fn prove(&self, request: ProveRequest) -> (Result<Proved, BackendError>, Option<Columns>) {
        let (columns, job) = Job::of(request);
        let layout = self.layout(&job.shape.sizes);
        if let Err(error) = job.check(&columns, &layout) {
            return (Err(error), Some(columns));
        }
        let kept = self.spoils().then(|| Kept::of(&columns, &layout));
        let [first, second] = [job.watch.clone(), None].map(Recorder::new);
        let (proved, columns) = job.prove(&*self.first, columns, &layout, &first);
        let (mut proved, mut columns) = match (proved, columns) {
            (Ok(proved), Some(columns)) => (proved, columns),
            (Ok(_), None) => return (Err(BackendError::Lost), None),
            (Err(error), columns) => return (Err(error), columns),
        };
        let from = Instant::now();
        if let Some(kept) = kept {
            kept.restore(&mut columns);
        }
        let (twin, columns) = job.prove(&*self.second, columns, &layout, &second);
        let result = twin.and_then(|twin| {
            let at = first.difference(&second);
            if at.is_none() && twin.proof == proved.proof {
                let twin = Phase::new("twin", PhaseLane::Host, from, Instant::now());
                proved.phases.push(twin);
                return Ok(proved);
            }
            Err(BackendError::Disagreement {
                first: self.first.name(),
                second: self.second.name(),
                at,
            })
        });
        (result, columns)
    }
}

/// A request without its columns, for two.
struct Job {
    inputs: Vec<Scalar>,
    shape: Arc<CircuitShape>,
    key: Arc<Key>,
    r: Scalar,
    s: Scalar,
    watch: Option<Arc<dyn Watch>>,
}

impl Job {
    fn of(request: ProveRequest) -> (Columns, Self) {
        let ProveRequest {
            columns,
            inputs,
            shape,
            key,
            r,
            s,
            watch,
        } = request;
        let job = Self {
            inputs,
            shape,
            key,
            r,
            s,
            watch,
        };
        (columns, job)
    }

    fn check(&self, columns: &Columns, layout: &ColumnLayout) -> Result<(), BackendError> {
        let statement = Statement {
            inputs: &self.inputs,
            shape: &self.shape,
            r: self.r,
            s: self.s,
        };
        check(columns, layout, &statement, |section| {
            self.key.count(section)
        })
    }

    /// Proves on one of two, in as much of the columns as that one wants.
    fn prove(
        &self,
        backend: &dyn Backend,
        columns: Columns,
        whole: &ColumnLayout,
        recorder: &Arc<Recorder>,
    ) -> (Result<Proved, BackendError>, Option<Columns>) {
        let wanted = backend.layout(&self.shape.sizes);
        let (mut columns, third) = with_lens(columns, &wanted);
        let spare = match wanted.has_c() {
            true => {
                columns.c = third;
                None
            }
            false => third,
        };
        let mut pending = backend.submit(ProveRequest {
            columns,
            inputs: self.inputs.clone(),
            shape: Arc::clone(&self.shape),
            key: Arc::clone(&self.key),
            r: self.r,
            s: self.s,
            watch: Some(Arc::clone(recorder) as Arc<dyn Watch>),
        });
        let columns = pending.columns_read().map(|columns| {
            let (mut columns, third) = with_lens(columns, whole);
            columns.c = third.or_else(|| spare.map(|c| with_len(c, whole.rows)));
            columns
        });
        (pending.done(), columns)
    }
}

/// The columns in the lengths of a layout, and the third apart. Their buffers are those
/// of the longest layout.
fn with_lens(columns: Columns, layout: &ColumnLayout) -> (Columns, Option<Column>) {
    let Columns { a, b, c, aux } = columns;
    let columns = Columns {
        a: with_len(a, layout.rows),
        b: with_len(b, layout.rows),
        c: None,
        aux: with_len(aux, layout.aux),
    };
    (columns, c.map(|c| with_len(c, layout.rows)))
}

fn with_len(column: Column, len: usize) -> Column {
    Column::new(column.into_buffer(), len)
}

/// What synthesis wrote, for the second of two.
struct Kept {
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    c: Option<Vec<Scalar>>,
    aux: Vec<Scalar>,
}

impl Kept {
    /// Bytes of what is kept.
    fn bytes(layout: &ColumnLayout) -> u64 {
        let columns = match layout.c {
            CColumn::Synthesised => 3,
            CColumn::Absent | CColumn::Scratch => 2,
        };
        let rows = (layout.rows as u64).saturating_mul(columns);
        let scalars = rows.saturating_add(layout.aux as u64);
        scalars.saturating_mul(size_of::<Scalar>() as u64)
    }

    fn of(columns: &Columns, layout: &ColumnLayout) -> Self {
        let c = columns.c.as_ref();
        Self {
            a: columns.a.scalars().to_vec(),
            b: columns.b.scalars().to_vec(),
            c: c.filter(|_| layout.c == CColumn::Synthesised)
                .map(|c| c.scalars().to_vec()),
            aux: columns.aux.scalars().to_vec(),
        }
    }

    fn restore(self, columns: &mut Columns) {
        columns.a.scalars_mut().copy_from_slice(&self.a);
        columns.b.scalars_mut().copy_from_slice(&self.b);
        if let (Some(column), Some(c)) = (&mut columns.c, &self.c) {
            column.scalars_mut().copy_from_slice(c);
        }
        columns.aux.scalars_mut().copy_from_slice(&self.aux);
    }
}

/// Digests of what a backend shows.
struct Recorder {
    states: Mutex<[State; Intermediate::ALL.len()]>,
    /// Who is shown it before.
    watch: Option<Arc<dyn Watch>>,
}

impl Recorder {
    fn new(watch: Option<Arc<dyn Watch>>) -> Arc<Self> {
        Arc::new(Self {
            states: Mutex::new(from_fn(|_| State::new())),
            watch,
        })
    }

    fn digests(&self) -> [Hash; Intermediate::ALL.len()] {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        from_fn(|at| states[at].finalize())
    }

    /// The first of which the other has seen something else.
    fn difference(&self, other: &Self) -> Option<Intermediate> {
        let (ours, theirs) = (self.digests(), other.digests());
        let at = std::iter::zip(ours, theirs).position(|(our, their)| our != their)?;
        Some(Intermediate::ALL[at])
    }
}

impl Watch for Recorder {
    fn seen(&self, which: Intermediate, offset_bytes: u64, bytes: &mut [u8]) {
        if let Some(watch) = &self.watch {
            watch.seen(which, offset_bytes, bytes);
        }
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states[which as usize].update(bytes);
    }
}
