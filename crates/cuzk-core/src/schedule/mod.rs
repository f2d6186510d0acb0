//! The scheduler: one state machine without threads or clock.
//!
//! [`Scheduler::step`] takes what happened and when, and answers what to start.
//! Production runs the answers on threads, the tests run them in simulated time; both
//! run this code. It decides by these rules:
//!
//! - jobs are served by priority, then by arrival, and the parts of a job in order: one
//!   that may not start yet holds up all behind it, but for those that can go to devices
//!   that it cannot, where devices are all it waits for;
//! - a part counts against a limit only for parts of its own or a lower priority,
//!   so nothing of lower priority can keep it waiting for a place; slots of devices are
//!   the exception, and there it has the next one that is free;
//! - a part starts only when its turn on a device is foreseeable: while those between
//!   their reservation and a device are fewer than free slots and [measured
//!   rates](Aim::lead) justify. Under [`Dispatch::Burst`] any number may be;
//! - a part goes to the device that will have proved it first, and waits behind another on
//!   one only where the others will not have proved all that is left before. One that is
//!   lost, or that has kept a part too long, is out of service and gets no other;
//! - a part that fails for a reason of ours is tried again from its reservation, a
//!   limited number of times, on another device where there is one; any other failure
//!   ends its job, and only its job;
//! - a stage that takes longer than its limit is given up, and nothing waits for it any
//!   more;
//! - a job that later ones have overtaken for too long moves up one class of priority,
//!   never to the highest; one whose caller wants it sooner moves up to any. Parts of it
//!   that wait for memory go on waiting with the new class.

#[cfg(test)]
macro_rules! mutated {
    ($of:expr, $mutation:ident) => {
        $of.mutation == Some($crate::schedule::Mutation::$mutation)
    };
}
#[cfg(not(test))]
macro_rules! mutated {
    ($of:expr, $mutation:ident) => {
        $crate::schedule::never()
    };
}

mod devices;
mod dispatch;
mod job;
mod rates;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

pub use devices::{DeviceIndex, DeviceSet};
#[cfg(test)]
use tests::Mutation;

use crate::config::Dispatch;
use devices::Devices;
use job::{Job, JobStage, Part, Stage};
use rates::Rates;

/// Whether a fault of the tests is in the scheduler, where there are no tests.
#[cfg(not(test))]
const fn never() -> bool {
    false
}

/// Fewest parts that are synthesised at the same time of a circuit that is cut: the second
/// one has the threads that the first cannot use at its ends.
const SHARED_SYNTHESES: usize = 2;

/// Parts in flight in a burst: each has a thread.
const BURST_PARTS_MAX: usize = 64;

/// Numbers a job, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// One part of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartId {
    /// The job.
    pub job: JobId,
    /// Which of its parts, from 0.
    pub index: usize,
}

/// Numbers a circuit: parts of one take as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Circuit(pub usize);

/// Who goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// When nothing else waits.
    Low,
    /// The usual.
    #[default]
    Normal,
    /// Before the usual.
    High,
    /// Before everything.
    Critical,
}

impl Priority {
    pub(crate) const CLASSES: usize = 4;

    /// One class more; the highest is given and not come by.
    fn raised(self) -> Self {
        match self {
            Self::Low => Self::Normal,
            Self::Normal | Self::High => Self::High,
            Self::Critical => Self::Critical,
        }
    }
}

/// Limits of the scheduler.
#[derive(Clone, Debug)]
pub struct Limits {
    /// When parts start.
    pub dispatch: Dispatch,
    /// Threads that synthesise, at least one.
    pub threads: usize,
    /// Parts in synthesis or about to be, at least one; `None` derives it.
    pub synthesis_max: Option<usize>,
    /// Parts between the start of their reservation and the end of their proof, at least
    /// one; `None` derives it.
    pub parts_in_flight_max: Option<usize>,
    /// Parts that each device works on at the same time, at least one; one device at
    /// least, and [`DeviceSet::DEVICES_MAX`] at most.
    pub device_slots: Vec<usize>,
    /// Times a part is tried again.
    pub retries_max: usize,
    /// How long a job may be overtaken before it moves up; `None` is for ever.
    pub overtaken_max: Option<Duration>,
    /// How long stages may take.
    pub stages: StageLimits,
}

impl Limits {
    /// Parts in synthesis or about to be, of a circuit whose syntheses can use so many
    /// threads: those that have something for every thread, and one more where there are
    /// ends at which a thread has nothing.
    fn synthesis_max(&self, width: usize) -> usize {
        let threads = self.used(width);
        let auto = match (self.dispatch, width) {
            (Dispatch::Burst, _) | (Dispatch::Reactive, ..=1) => self.threads,
            (Dispatch::Reactive, _) => {
                SHARED_SYNTHESES.max(self.threads.div_ceil(threads).saturating_add(1))
            }
        };
        self.synthesis_max.unwrap_or(auto)
    }

    /// Of the threads, those that such a synthesis uses where it has them to itself.
    fn used(&self, width: usize) -> usize {
        width.clamp(1, self.threads)
    }

    /// Parts in flight of such a circuit, where so many slots can prove it: those, the ones
    /// that are synthesised meanwhile, and one that waits for the next free slot.
    pub fn parts_in_flight_max(&self, width: usize, slots: usize) -> usize {
        let auto = match self.dispatch {
            Dispatch::Burst => BURST_PARTS_MAX,
            Dispatch::Reactive => slots
                .saturating_add(self.synthesis_max(width))
                .saturating_add(1),
        };
        self.parts_in_flight_max.unwrap_or(auto)
    }
}

/// How long a stage may take before it is given up; `None` is for ever. A wait for memory
/// has none: behind other jobs it may rightly take hours, and it ends when their stages do,
/// or are given up and return. The engine tells of one that is long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageLimits {
    /// A synthesis.
    pub synthesis_max: Option<Duration>,
    /// A proof on a device.
    pub prove_max: Option<Duration>,
    /// Loading a key, verifying, explaining, and completing a job.
    pub other_max: Option<Duration>,
}

/// What a synthesis took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Threads that it could use.
    pub width: usize,
    /// The time that threads worked on it, all together.
    pub time: Duration,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job arrived.
    Submit {
        /// Its number, higher than any before.
        job: JobId,
        /// Its priority.
        priority: Priority,
        /// Its parts, at least one.
        parts: usize,
        /// Their circuit.
        circuit: Circuit,
        /// Threads that a synthesis of it can use, as far as that is known: one for each of
        /// its segments, or one.
        width: usize,
    },
    /// The job's key is there.
    KeyReady(JobId),
    /// The part's columns and bytes are reserved.
    Reserved(PartId),
    /// The part's columns are filled.
    Synthesised {
        /// The part.
        part: PartId,
        /// `None` if it was made in another way than the circuit's usual one, and tells
        /// nothing of others.
        work: Option<Work>,
        /// The devices that can prove it.
        devices: DeviceSet,
    },
    /// The part's proof is there.
    Proved(PartId),
    /// The part's proof verifies.
    Verified(PartId),
    /// The part's circuit is larger than its columns: it goes back to its
    /// reservation, and its attempt goes on.
    Outgrown(PartId),
    /// The part's proof does not verify.
    Rejected(PartId),
    /// A stage of the part failed.
    PartFailed {
        /// The part.
        part: PartId,
        /// Whether trying again can help.
        retry: bool,
    },
    /// A device is out of service. The parts that it has fail by themselves.
    DeviceLost(DeviceIndex),
    /// A stage of the job as a whole failed.
    JobFailed(JobId),
    /// The job's proof was handed over.
    Completed(JobId),
    /// The caller wants the job's proof sooner: it has this priority from now on, if that is
    /// a higher one.
    Raise {
        /// The job.
        job: JobId,
        /// Its priority.
        priority: Priority,
    },
    /// The caller wants no proof any more.
    Cancel(JobId),
    /// Time has passed; see [`Scheduler::next_deadline`].
    Tick,
}

/// What to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Load the job's key; answered by `KeyReady` or `JobFailed`.
    LoadKey(JobId),
    /// Reserve columns and bytes; answered by `Reserved` or `PartFailed`.
    Reserve {
        /// The part.
        part: PartId,
        /// With which priority it waits for them.
        priority: Priority,
    },
    /// The part waits for memory or for threads, or may, and its job has moved up: it goes on
    /// with this priority. Not answered.
    Urge {
        /// The part.
        part: PartId,
        /// With which priority it waits from now on.
        priority: Priority,
    },
    /// Fill the columns; answered by `Synthesised` or `PartFailed`.
    Synthesise(PartId),
    /// Prove on a device; answered by `Proved` or `PartFailed`.
    Prove {
        /// The part.
        part: PartId,
        /// The device.
        device: DeviceIndex,
    },
    /// Verify the proof; answered by `Verified`, `Rejected` or `PartFailed`.
    Verify(PartId),
    /// Find out why the proof does not verify; answered by `PartFailed`.
    Explain(PartId),
    /// Check the proof as a whole, encode and hand over; answered by `Completed`
    /// or `JobFailed`.
    Complete(JobId),
    /// No device in service can prove the part: its job ends, and this is why. Not
    /// answered.
    Refuse(PartId),
    /// A stage takes longer than its limit. It is given up: whatever it ends with is no
    /// event any more, and what it holds goes back when its thread returns. A device is
    /// out of service by it, and the part is tried elsewhere; anything else ends its job,
    /// and this is why. Not answered.
    GiveUp {
        /// The job.
        job: JobId,
        /// The part, unless it is a stage of the job as a whole.
        part: Option<usize>,
        /// The stage, as spans call it.
        stage: &'static str,
        /// The device that hangs.
        device: Option<DeviceIndex>,
    },
    /// Nothing of the job runs any more: drop what is left and answer its caller.
    Abort(JobId),
}

/// What the scheduler aims at for the parts of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// Parts between their reservation and a device that measured rates justify, beside
    /// those that free slots wait for: the time of a synthesis times the proofs that the
    /// devices finish in it, and one.
    pub lead: usize,
    /// Free slots of the devices that can prove them.
    pub free_slots: usize,
    /// Parts in synthesis or about to be.
    pub synthesis_max: usize,
    /// Parts between the start of their reservation and the end of their proof.
    pub parts_in_flight_max: usize,
}

impl Aim {
    /// Parts that may be between their reservation and a device.
    pub fn between_max(&self) -> usize {
        self.free_slots.saturating_add(self.lead)
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    jobs: BTreeMap<JobId, Job>,
    devices: Devices,
    circuits: HashMap<Circuit, Rates>,
    now: Duration,
    #[cfg(test)]
    mutation: Option<Mutation>,
}

impl Scheduler {
    /// A scheduler without jobs.
    ///
    /// # Panics
    /// If a limit that must be at least one is zero, or there are no devices or too many.
    pub fn new(limits: Limits) -> Self {
        let slots = &limits.device_slots;
        let is_given = |max: Option<usize>| max != Some(0);
        assert!(
            limits.threads > 0
                && is_given(limits.synthesis_max)
                && is_given(limits.parts_in_flight_max)
                && slots.iter().all(|&slots| slots > 0)
                && (1..=DeviceSet::DEVICES_MAX).contains(&slots.len()),
            "{limits:?}"
        );
        Self {
            devices: Devices::new(slots),
            limits,
            jobs: BTreeMap::new(),
            circuits: HashMap::new(),
            now: Duration::ZERO,
            #[cfg(test)]
            mutation: None,
        }
    }

    /// Whether a cancel would still end the job: not once it is being handed over.
    pub fn can_cancel(&self, id: JobId) -> bool {
        let job = self.jobs.get(&id);
        job.is_some_and(|job| {
            job.stage != JobStage::Completing || mutated!(self, CancelsCompleting)
        })
    }

    /// Jobs that wait or run.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Takes what happened `now` (since the start, never going back) and answers what to
    /// start, in order. Events about jobs that have ended are ignored.
    pub fn step(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        self.now = self.now.max(now);
        self.happen(event, &mut actions);
        self.give_up_late(&mut actions);
        self.raise_overtaken();
        self.urge(&mut actions);
        self.dispatch(&mut actions);
        actions
    }

    fn happen(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Submit {
                job,
                priority,
                parts,
                circuit,
                width,
            } => {
                let devices = self.devices.count();
                let rates = || Rates::new(width, devices);
                self.circuits.entry(circuit).or_insert_with(rates);
                let entry = Job {
                    class: priority,
                    circuit,
                    stage: JobStage::Loading,
                    busy: true,
                    since: self.now,
                    overtaken: None,
                    parts: vec![Part::new(self.now); parts],
                };
                self.jobs.insert(job, entry);
                actions.push(Action::LoadKey(job));
            }
            Event::KeyReady(id) => self.end_job_stage(id, JobStage::Running),
            Event::Reserved(part) => self.enter(part, Stage::Reserved),
            Event::Synthesised {
                part,
                work,
                devices,
            } => self.synthesised(part, work, devices),
            Event::Proved(part) => self.proved(part),
            Event::Verified(part) => self.enter(part, Stage::Verified),
            Event::Outgrown(part) if mutated!(self, LosesOutgrown) => {
                self.enter(part, Stage::Reserving);
            }
            Event::Outgrown(part) => self.enter(part, Stage::Waiting),
            Event::Rejected(part) if mutated!(self, BelievesRejected) => {
                self.enter(part, Stage::Verified);
            }
            Event::Rejected(part) => self.enter(part, Stage::Rejected),
            Event::PartFailed { part, retry } => self.fail_part(part, retry),
            Event::DeviceLost(device) => self.devices.lose(device),
            Event::JobFailed(id) => self.end_job_stage(id, JobStage::Ending),
            Event::Completed(id) => {
                self.jobs.remove(&id);
            }
            Event::Raise { job, priority } => self.raise(job, priority),
            Event::Cancel(id) => {
                if self.can_cancel(id)
                    && let Some(job) = self.jobs.get_mut(&id)
                {
                    job.stage = JobStage::Ending;
                }
            }
            Event::Tick => {}
        }
    }

    fn part(&mut self, id: PartId) -> Option<&mut Part> {
        self.jobs.get_mut(&id.job)?.parts.get_mut(id.index)
    }

    fn enter(&mut self, id: PartId, stage: Stage) {
        let now = self.now;
        if let Some(part) = self.part(id) {
            part.enter(stage, now);
        }
    }

    fn synthesised(&mut self, id: PartId, work: Option<Work>, devices: DeviceSet) {
        let Some(job) = self.jobs.get_mut(&id.job) else {
            return;
        };
        let part = &mut job.parts[id.index];
        part.enter(Stage::Synthesised, self.now);
        if let Some(rates) = self.circuits.get_mut(&job.circuit) {
            rates.devices = devices;
            if let Some(Work { width, time }) = work {
                let used = self.limits.used(width);
                rates.add_synthesis(time.as_secs_f64() / used as f64);
                rates.width = width;
            }
        }
    }

    fn proved(&mut self, id: PartId) {
        let Some(job) = self.jobs.get_mut(&id.job) else {
            return;
        };
        let part = &mut job.parts[id.index];
        if let Some(device) = part.device.take() {
            self.devices.release(device);
            let time = self.devices.proved(device, part.since, self.now);
            if let Some(rates) = self.circuits.get_mut(&job.circuit) {
                rates.add_proof(device, time);
            }
        }
        let next = match mutated!(self, SkipsVerification) {
            true => Stage::Verified,
            false => Stage::Proved,
        };
        part.enter(next, self.now);
    }

    fn end_job_stage(&mut self, id: JobId, stage: JobStage) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.busy = false;
            if job.stage != JobStage::Ending {
                job.stage = stage;
            }
        }
    }

    fn fail_part(&mut self, id: PartId, retry: bool) {
        let Some(job) = self.jobs.get_mut(&id.job) else {
            return;
        };
        let Some(part) = job.parts.get_mut(id.index) else {
            return;
        };
        part.enter(Stage::Waiting, self.now);
        if let Some(device) = part.device.take() {
            if !mutated!(self, LeaksSlots) {
                self.devices.release(device);
            }
            part.avoids = Some(device);
        }
        let retry = (retry || mutated!(self, RetriesAnything)) && !mutated!(self, NeverRetries);
        let is_left = part.retries < self.limits.retries_max || mutated!(self, RetriesForEver);
        if retry && is_left {
            part.retries += 1;
        } else {
            job.stage = JobStage::Ending;
        }
    }
}
