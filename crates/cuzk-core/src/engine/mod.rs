//! The engine: takes jobs, runs their parts through the stages, answers with proofs.

mod dispatcher;
mod job;
mod kept;
mod table;
mod thread;
mod warm;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use cuzk_budget::Budget;
use cuzk_gpu::Backend;
use cuzk_synth::HintStore;

pub use job::{Blinding, Canceller, JobHandle, JobOptions, PartReport, ProofReply, Raiser};

use crate::backends::{Backends, DeviceState};
use crate::belonging::EngineId;
use crate::config::{Config, KeyTier};
use crate::crew::Crew;
use crate::error::ProveError;
use crate::keystore::KeyStore;
use crate::metrics::Metrics;
use crate::placement::{ColumnMemory, Placing};
use crate::schedule::{JobId, Limits, StageLimits};
use crate::shapes::Shapes;
use crate::stage::{self, Job, Shared};
use crate::standing::Standing;
use crate::templates::Templates;
use crate::timeline::{Recorded, Recorder, Sums, Timeline};
use crate::waits::{MemoryWait, Waits};
use crate::{CircuitSpec, Workload, WorkloadError};
use dispatcher::Dispatcher;
use kept::Kept;
use table::Message;

/// Times a part is tried again after a failure that is not the caller's.
const RETRIES_MAX: usize = 1;

/// Parts of one job at most: many times those of any proof kind, and few enough that a
/// table of them is small.
pub const PARTS_MAX: usize = 1 << 16;

/// What an engine is made of.
pub struct EngineParts {
    /// Where proofs are made: one or several, all of one kind, so that a part goes to
    /// whichever has the least to do.
    pub backends: Vec<Arc<dyn Backend>>,
    /// Where columns come from. Its budget also counts keys and working memory.
    pub memory: ColumnMemory,
    /// Capacity hints of earlier runs.
    pub hints: HintStore,
}

/// A running engine. Dropping it cancels its jobs and waits for what runs: for a stage that
/// hangs until its limit in [`Watchdog`](crate::config::Watchdog), and for ever without
/// one. Warnings say which stages it waits for. A workload that drops the last handle of its
/// own engine, on a thread that the engine called it on, does not wait: the engine ends once
/// what runs has ended.
pub struct Engine {
    id: EngineId,
    shared: Arc<Shared>,
    outbox: Sender<Message>,
    next_job: AtomicU64,
    jobs: Arc<AtomicUsize>,
    jobs_max: usize,
    limits: Limits,
    /// What is kept for the highest priority, if that is configured.
    configured: Option<Kept>,
    thread: Option<JoinHandle<()>>,
    /// Whether that thread has ended, by a panic if the engine is still there.
    has_ended: Arc<AtomicBool>,
}

impl Engine {
    /// Starts an engine.
    ///
    /// # Errors
    /// [`ProveError::Thread`] if its thread cannot be started, and
    /// [`ProveError::Placement`] if columns are to lie in page-locked memory and there
    /// is none, and [`ProveError::Memory`] if more is to be kept for the highest priority
    /// than there is.
    ///
    /// # Panics
    /// If there is no backend, or they want different columns.
    pub fn start(config: &Config, parts: EngineParts) -> Result<Self, ProveError> {
        let EngineParts {
            backends,
            memory,
            hints,
        } = parts;
        let backends = Backends::new(backends);
        let mut tuning = config.tuning;
        if backends.any().keeps_keys() {
            // Its points are no host memory, and in its file as far as that is counted.
            tuning.key_tier = KeyTier::File;
        }
        let placing = Placing::new(&config.tuning, backends.any().upload(), &memory)?;
        let shared = Arc::new(Shared {
            backends,
            placing,
            keys: KeyStore::new(config, memory.budget().clone()),
            templates: Templates::new(memory.budget().clone()),
            crew: Crew::new(crate::assemble::threads(config.threads).get()),
            memory,
            shapes: Shapes::new(hints),
            tuning,
            metrics: Metrics::default(),
            recorder: Arc::new(Recorder::new(config.spans_max)),
            waits: Waits::new(config.watchdog.told_after),
        });
        let configured = shared.keep_configured(config)?;
        let limits = limits(config, &shared);
        let slots: usize = limits.device_slots.iter().sum();
        if let Some(max) = limits.parts_in_flight_max.filter(|max| *max <= slots) {
            tracing::warn!(
                max,
                slots,
                "engine.parts_in_flight_max leaves slots of devices idle"
            );
        }
        let id = EngineId::new();
        let (outbox, inbox) = channel();
        let dispatcher =
            Dispatcher::new(Arc::clone(&shared), limits.clone(), outbox.clone(), inbox);
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = dispatcher::Ended(Arc::clone(&has_ended));
        let thread = std::thread::Builder::new()
            .name("cuzk-dispatch".to_owned())
            .spawn(move || {
                EngineId::enter(Some(id));
                dispatcher.run(ended);
            })
            .map_err(|_| ProveError::Thread { stage: "dispatch" })?;
        Ok(Self {
            id,
            shared,
            outbox,
            next_job: AtomicU64::new(1),
            jobs: Arc::default(),
            jobs_max: config.jobs_max,
            limits,
            configured,
            thread: Some(thread),
            has_ended,
        })
    }

    /// Queues a job.
    ///
    /// # Errors
    /// [`ProveError::QueueFull`], [`ProveError::Stopped`],
    /// [`ProveError::Request`] for a job without parts, and [`ProveError::TooManyParts`] for
    /// one of more than [`PARTS_MAX`]; what else is wrong with the job comes from
    /// [`JobHandle::wait`].
    pub fn submit(
        &self,
        workload: Arc<dyn Workload>,
        options: JobOptions,
    ) -> Result<JobHandle, ProveError> {
        let place = job::Place::take(&self.jobs, self.jobs_max).ok_or(ProveError::QueueFull {
            limit: self.jobs_max,
        })?;
        // Whatever the workload says of itself is asked here: should it panic, then its
        // caller does and not the thread that has everybody's jobs.
        let part_count = workload.part_count();
        if part_count == 0 {
            return Err(ProveError::Request(WorkloadError {
                field: "parts".to_owned(),
                reason: "there are none".to_owned(),
            }));
        }
        if part_count > PARTS_MAX {
            return Err(ProveError::TooManyParts {
                asked: part_count,
                limit: PARTS_MAX,
            });
        }
        let id = JobId(self.next_job.fetch_add(1, Ordering::Relaxed));
        let label = workload.label();
        let recorder = Arc::clone(&self.shared.recorder);
        let standing = Arc::new(Standing::new(options.priority));
        let circuit = workload.circuit();
        let (circuit_id, width) = (circuit.id(), self.width(circuit.as_ref()));
        let job = Arc::new(Job {
            timeline: Timeline::of_job(recorder, &label, part_count),
            label,
            part_count,
            circuit,
            workload,
            blinding: options.blinding,
            standing: Arc::clone(&standing),
        });
        let (reply, result) = channel();
        let handle = JobHandle::new(
            id,
            job.timeline.clone(),
            standing,
            self.outbox.clone(),
            result,
        );
        let message = Message::Submit {
            id,
            job,
            circuit: circuit_id,
            priority: options.priority,
            width,
            reply,
            place,
        };
        self.outbox.send(message).map_err(|_| ProveError::Stopped)?;
        Ok(handle)
    }

    /// Whether a circuit can be proved at all with the keys and the memory there
    /// are, told from a key's counts without loading it: the bytes that one part
    /// takes. Reads the head of the key file. Memory that is kept for the highest priority
    /// is counted for urgent circuits alone.
    ///
    /// # Errors
    /// [`ProveError::MissingKey`], [`ProveError::TestKey`], [`ProveError::Sidecar`],
    /// [`ProveError::Key`], [`ProveError::Memory`] if a part is larger than the budget,
    /// [`ProveError::TooLarge`] if it is larger than any device, and
    /// [`ProveError::OutOfService`] if none is left.
    pub fn check(&self, circuit: &dyn CircuitSpec) -> Result<u64, ProveError> {
        let key = self.shared.keys.counts(circuit)?;
        stage::check_fits(&self.shared, circuit, &key)
    }

    /// Loads a key before a job asks for it; where points are kept in memory, or by the
    /// devices themselves, those too, if there is room now.
    ///
    /// # Errors
    /// As [`KeyStore::load`], [`ProveError::Memory`] if the points must be in memory and
    /// there is no room, and [`ProveError::Preload`].
    pub fn preload(&self, circuit: &dyn CircuitSpec) -> Result<(), ProveError> {
        let key = self.shared.keys.load(circuit)?;
        let points = || self.shared.keys.load_points(&circuit.id(), &key);
        match self.shared.tuning.key_tier {
            KeyTier::File => Ok(()),
            KeyTier::Resident => points(),
            KeyTier::Auto if !self.shared.keys.has_room(&key) => Ok(()),
            KeyTier::Auto => match points() {
                // The first part that has room brings them.
                Err(ProveError::Memory { .. }) => Ok(()),
                other => other,
            },
        }?;
        let preloaded = self.shared.backends.preload(&key);
        // Fails only if the dispatcher has ended, and then no part goes anywhere.
        let _ = self.outbox.send(Message::Devices);
        preloaded
    }

    /// Threads that a synthesis of the circuit is likely to use where it has them.
    fn width(&self, circuit: &dyn CircuitSpec) -> usize {
        match stage::asked(&self.shared) == Ok(true) && circuit.cut().is_some() {
            true => circuit.segments(),
            false => 1,
        }
    }

    /// Parts of the circuit that may be in flight at the same time, and so have columns.
    pub fn parts_in_flight_max(&self, circuit: &dyn CircuitSpec) -> usize {
        let slots = self.limits.device_slots.iter().sum();
        let width = self.width(circuit);
        self.limits.parts_in_flight_max(width, slots)
    }

    /// Where columns come from.
    pub fn memory(&self) -> &ColumnMemory {
        &self.shared.memory
    }

    /// The devices that proofs are made on, also those that are out of service.
    pub fn devices(&self) -> Vec<DeviceState> {
        self.shared.backends.devices()
    }

    /// Whether there is something left that proves, and the thread that hands it jobs.
    pub fn is_in_service(&self) -> bool {
        !self.has_stopped() && self.shared.backends.is_in_service()
    }

    /// Whether the thread that hands out jobs has ended by a panic: no job is taken any
    /// more, whatever the devices are.
    pub fn has_stopped(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// What was counted since the start.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The spans of all jobs, as far as they are kept.
    pub fn recorded(&self) -> Recorded {
        self.shared.recorder.recorded()
    }

    /// Seconds by stage and of each unit that computes, since the start.
    pub fn sums(&self) -> Sums {
        self.shared.recorder.sums()
    }

    /// The keys.
    pub fn keys(&self) -> &Arc<KeyStore> {
        &self.shared.keys
    }

    /// The shapes learned so far.
    pub fn shapes(&self) -> &Shapes {
        &self.shared.shapes
    }

    /// The budget that counts the engine's memory.
    pub fn budget(&self) -> &Budget {
        self.shared.memory.budget()
    }

    /// The parts that wait for memory now, the longest first.
    pub fn memory_waits(&self) -> Vec<MemoryWait> {
        self.shared.waits.list(Instant::now())
    }

    /// Jobs that wait or run.
    pub fn jobs(&self) -> usize {
        self.jobs.load(Ordering::Relaxed)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Fails only if the dispatcher has ended already.
        let _ = self.outbox.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            // That thread waits for the stage that this is part of, or is this one.
            if EngineId::of_this_thread() == Some(self.id) {
                tracing::warn!(
                    "an engine was dropped by its own workload: nobody waits for its end"
                );
                return;
            }
            // Had it panicked, its jobs would have ended as stopped already.
            let _ = thread.join();
        }
    }
}

/// The scheduler's limits, as configured.
fn limits(config: &Config, shared: &Shared) -> Limits {
    let watchdog = config.watchdog;
    Limits {
        dispatch: config.tuning.dispatch,
        threads: crate::assemble::threads(config.threads).get(),
        synthesis_max: config.synthesis_max,
        parts_in_flight_max: config.parts_in_flight_max,
        device_slots: shared.backends.slots(),
        retries_max: RETRIES_MAX,
        overtaken_max: config.overtaken_max,
        stages: StageLimits {
            synthesis_max: watchdog.synthesis_max,
            prove_max: watchdog.prove_max,
            other_max: watchdog.other_max,
        },
    }
}
