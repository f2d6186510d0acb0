//! The thread that a backend's proofs run on, one after the other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use blstrs::Scalar;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::backend::{Completion, Pending, pending};
use crate::column::Columns;
use crate::cpu::CpuOptions;
use crate::cpu::prove::prove;
use crate::cpu::source::PointSource;
use crate::error::BackendError;
use crate::groth16::Statement;
use crate::shape::CircuitShape;
use crate::watch::Watch;

/// A proof to be made with points from `S`.
#[derive(Debug)]
pub struct Job<S> {
    /// The columns, in the backend's layout.
    pub columns: Columns,
    /// Public inputs, the constant one first.
    pub inputs: Vec<Scalar>,
    /// Sizes and densities of the circuit.
    pub shape: Arc<CircuitShape>,
    /// The proving key.
    pub source: Arc<S>,
    /// Groth16's blinding scalars.
    pub r: Scalar,
    /// See `r`.
    pub s: Scalar,
    /// Who is shown the intermediates, if anybody.
    pub watch: Option<Arc<dyn Watch>>,
}

/// A job with its types forgotten.
type Task = Box<dyn FnOnce(&ThreadPool) + Send>;

/// One thread with a rayon pool and a bounded queue. Dropping it finishes what is
/// queued first.
pub(super) struct Worker {
    queue: Option<SyncSender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(options: &CpuOptions) -> Result<Self, BackendError> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(options.threads.get())
            .thread_name(|at| format!("cuzk-cpu-{at}"))
            .build()
            .map_err(|error| BackendError::Start {
                what: "the thread pool",
                reason: error.to_string(),
            })?;
        let (queue, tasks) = sync_channel(options.queue_len_max);
        let thread = std::thread::Builder::new()
            .name("cuzk-cpu".to_owned())
            .spawn(move || run(&tasks, &pool))
            .map_err(|error| BackendError::Start {
                what: "the worker thread",
                reason: error.to_string(),
            })?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Queues a job and returns at once; a full queue refuses it, and the columns
    /// come back like those of any other job.
    pub(super) fn submit<S: PointSource + 'static>(
        &self,
        job: Job<S>,
        options: CpuOptions,
    ) -> Pending {
        let (completion, pending) = pending();
        // The job stays within reach when the queue refuses its task.
        let parcel = Arc::new(std::sync::Mutex::new(Some((job, completion))));
        let taken = Arc::clone(&parcel);
        let task: Task = Box::new(move |pool| {
            if let Some((job, completion)) = take(&taken) {
                carry_out(job, completion, &options, pool);
            }
        });
        let queue = self.queue.as_ref().expect("the queue lives until the drop");
        let refusal = match queue.try_send(task) {
            Ok(()) => return pending,
            Err(TrySendError::Full(_)) => BackendError::QueueFull {
                limit: options.queue_len_max,
            },
            Err(TrySendError::Disconnected(_)) => BackendError::Lost,
        };
        if let Some((job, completion)) = take(&parcel) {
            completion.columns_read(job.columns);
            completion.done(Err(refusal));
        }
        pending
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // Tasks catch their panics, and a drop has nobody to report to.
            let _ = thread.join();
        }
    }
}

/// Takes the parcel out, once.
fn take<T>(parcel: &std::sync::Mutex<Option<T>>) -> Option<T> {
    parcel
        .lock()
        .unwrap_or_else(|poison| poison.into_inner())
        .take()
}

/// The worker thread.
fn run(tasks: &Receiver<Task>, pool: &ThreadPool) {
    for task in tasks {
        // `carry_out` catches what the prover does; this is for drops of a job's
        // parts, so that the next job finds its thread alive.
        let _ = catch_unwind(AssertUnwindSafe(|| task(pool)));
    }
}

/// Proves, gives the columns back and completes the job, whatever happens.
fn carry_out<S: PointSource>(
    job: Job<S>,
    completion: Completion,
    options: &CpuOptions,
    pool: &ThreadPool,
) {
    let Job {
        mut columns,
        inputs,
        shape,
        source,
        r,
        s,
        watch,
    } = job;
    let statement = Statement {
        inputs: &inputs,
        shape: &shape,
        r,
        s,
    };
    // The columns are plain scalars: a panic leaves values in them, never an
    // invalid state, and their next owner writes them anew.
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.install(|| {
            prove(
                &mut columns,
                statement,
                &*source,
                options.c_source,
                options.transforms,
                watch.as_deref(),
            )
        })
    }))
    .unwrap_or_else(|panic| Err(BackendError::Panic(message(&*panic))));
    // Whoever hears of the end may drop the key to make room, if nobody uses it.
    drop(source);
    completion.columns_read(columns);
    completion.done(result);
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
