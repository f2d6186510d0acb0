//! The scheduler: one state machine without threads or clock.
//!
//! [`Scheduler::step`] takes what happened and answers what to start. Production
//! runs the answers on threads, the tests run them in simulated time; both run
//! this code. It decides by these rules:
//!
//! - jobs are served by priority, then by arrival, and the parts of a job in order;
//! - a part counts against a limit only for parts of its own or a lower priority,
//!   so nothing of lower priority can keep it waiting for a place;
//! - a part starts only while fewer than `parts_in_flight_max` are between their
//!   reservation and their proof: completions pull the next one in;
//! - a part that fails for a reason of ours is tried again from its reservation, a
//!   limited number of times; any other failure ends its job, and only its job.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

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

/// Limits of the scheduler, all at least one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Parts in synthesis at the same time.
    pub synthesis_max: usize,
    /// Parts between the start of their reservation and the end of their proof.
    pub parts_in_flight_max: usize,
    /// Parts that the backend works on at the same time.
    pub device_slots: usize,
    /// Times a part is tried again.
    pub retries_max: usize,
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
    },
    /// The job's key is there.
    KeyReady(JobId),
    /// The part's columns and bytes are reserved.
    Reserved(PartId),
    /// The part's columns are filled.
    Synthesised(PartId),
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
    /// A stage of the job as a whole failed.
    JobFailed(JobId),
    /// The job's proof was handed over.
    Completed(JobId),
    /// The caller wants no proof any more.
    Cancel(JobId),
}

/// What to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Load the job's key; answered by `KeyReady` or `JobFailed`.
    LoadKey(JobId),
    /// Reserve columns and bytes; answered by `Reserved` or `PartFailed`.
    Reserve(PartId),
    /// Fill the columns; answered by `Synthesised` or `PartFailed`.
    Synthesise(PartId),
    /// Prove on the backend; answered by `Proved` or `PartFailed`.
    Prove(PartId),
    /// Verify the proof; answered by `Verified` or `PartFailed`.
    Verify(PartId),
    /// Find out why the proof does not verify; answered by `PartFailed`.
    Explain(PartId),
    /// Check the proof as a whole, encode and hand over; answered by `Completed`
    /// or `JobFailed`.
    Complete(JobId),
    /// Nothing of the job runs any more: drop what is left and answer its caller.
    Abort(JobId),
}

/// Where a part is. Those in the right column are being worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Reserving,
    Reserved,
    Synthesising,
    Synthesised,
    Proving,
    Proved,
    Verifying,
    Rejected,
    Explaining,
    Verified,
}

impl Stage {
    fn runs(self) -> bool {
        use Stage::*;
        matches!(
            self,
            Reserving | Synthesising | Proving | Verifying | Explaining
        )
    }

    fn in_flight(self) -> bool {
        use Stage::*;
        matches!(
            self,
            Reserving | Reserved | Synthesising | Synthesised | Proving
        )
    }
}

#[derive(Clone, Copy, Debug)]
struct Part {
    stage: Stage,
    retries: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobStage {
    Loading,
    Running,
    Completing,
    /// Cancelled or failed: nothing new starts.
    Ending,
}

#[derive(Debug)]
struct Job {
    priority: Priority,
    stage: JobStage,
    /// Whether a stage of the job as a whole runs.
    busy: bool,
    parts: Vec<Part>,
}

impl Job {
    fn idle(&self) -> bool {
        !self.busy && !self.parts.iter().any(|part| part.stage.runs())
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    jobs: BTreeMap<JobId, Job>,
}

impl Scheduler {
    /// A scheduler without jobs.
    ///
    /// # Panics
    /// If a limit that must be at least one is zero.
    pub fn new(limits: Limits) -> Self {
        let Limits {
            synthesis_max,
            parts_in_flight_max,
            device_slots,
            ..
        } = limits;
        assert!(
            synthesis_max > 0 && parts_in_flight_max > 0 && device_slots > 0,
            "{limits:?}"
        );
        Self {
            limits,
            jobs: BTreeMap::new(),
        }
    }

    /// Whether a cancel would still end the job: not once it is being handed over.
    pub fn can_cancel(&self, id: JobId) -> bool {
        self.jobs
            .get(&id)
            .is_some_and(|job| job.stage != JobStage::Completing)
    }

    /// Jobs that wait or run.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Takes what happened and answers what to start, in order. Events about jobs
    /// that have ended are ignored.
    pub fn step(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Submit {
                job,
                priority,
                parts,
            } => {
                let part = Part {
                    stage: Stage::Waiting,
                    retries: 0,
                };
                let parts = vec![part; parts];
                let stage = JobStage::Loading;
                self.jobs.insert(
                    job,
                    Job {
                        priority,
                        stage,
                        busy: true,
                        parts,
                    },
                );
                actions.push(Action::LoadKey(job));
            }
            Event::KeyReady(id) => {
                self.end_job_stage(id, JobStage::Running);
            }
            Event::Reserved(part) => self.end_stage(part, Stage::Reserved),
            Event::Synthesised(part) => self.end_stage(part, Stage::Synthesised),
            Event::Proved(part) => self.end_stage(part, Stage::Proved),
            Event::Verified(part) => self.end_stage(part, Stage::Verified),
            Event::Outgrown(part) => self.end_stage(part, Stage::Waiting),
            Event::Rejected(part) => self.end_stage(part, Stage::Rejected),
            Event::PartFailed { part, retry } => self.fail_part(part, retry),
            Event::JobFailed(id) => self.end_job_stage(id, JobStage::Ending),
            Event::Completed(id) => {
                self.jobs.remove(&id);
            }
            Event::Cancel(id) => {
                if self.can_cancel(id)
                    && let Some(job) = self.jobs.get_mut(&id)
                {
                    job.stage = JobStage::Ending;
                }
            }
        }
        self.dispatch(&mut actions);
        actions
    }

    fn part(&mut self, id: PartId) -> Option<&mut Part> {
        self.jobs.get_mut(&id.job)?.parts.get_mut(id.index)
    }

    fn end_stage(&mut self, id: PartId, stage: Stage) {
        if let Some(part) = self.part(id) {
            part.stage = stage;
        }
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
        let retries_max = self.limits.retries_max;
        let Some(job) = self.jobs.get_mut(&id.job) else {
            return;
        };
        let Some(part) = job.parts.get_mut(id.index) else {
            return;
        };
        part.stage = Stage::Waiting;
        if retry && part.retries < retries_max {
            part.retries += 1;
        } else {
            job.stage = JobStage::Ending;
        }
    }

    /// Starts whatever may start now.
    fn dispatch(&mut self, actions: &mut Vec<Action>) {
        self.end_jobs(actions);
        let mut order: Vec<(Priority, JobId)> =
            self.running().map(|(id, job)| (job.priority, id)).collect();
        order.sort_by_key(|&(priority, id)| (std::cmp::Reverse(priority), id));
        for (priority, id) in order {
            for index in 0..self.jobs[&id].parts.len() {
                let part = PartId { job: id, index };
                if let Some((stage, action)) = self.next(priority, part) {
                    self.end_stage(part, stage);
                    actions.push(action);
                }
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = (JobId, &Job)> {
        let running = |job: &&Job| job.stage == JobStage::Running;
        self.jobs
            .iter()
            .map(|(id, job)| (*id, job))
            .filter(move |(_, job)| running(job))
    }

    /// What the part may do now, if anything.
    fn next(&self, priority: Priority, id: PartId) -> Option<(Stage, Action)> {
        let Limits {
            synthesis_max,
            parts_in_flight_max,
            device_slots,
            ..
        } = self.limits;
        let below = |max, counts: fn(Stage) -> bool| self.count(priority, counts) < max;
        match self.jobs[&id.job].parts[id.index].stage {
            // One wait for memory at a time (and priority) keeps the order.
            Stage::Waiting
                if below(parts_in_flight_max, Stage::in_flight)
                    && below(1, |stage| stage == Stage::Reserving) =>
            {
                Some((Stage::Reserving, Action::Reserve(id)))
            }
            Stage::Reserved if below(synthesis_max, |stage| stage == Stage::Synthesising) => {
                Some((Stage::Synthesising, Action::Synthesise(id)))
            }
            Stage::Synthesised if below(device_slots, |stage| stage == Stage::Proving) => {
                Some((Stage::Proving, Action::Prove(id)))
            }
            Stage::Proved => Some((Stage::Verifying, Action::Verify(id))),
            // A whole synthesis, of a part that is not in flight any more.
            Stage::Rejected if below(1, |stage| stage == Stage::Explaining) => {
                Some((Stage::Explaining, Action::Explain(id)))
            }
            _ => None,
        }
    }

    /// Parts of this priority or a higher one for which `counts` holds, in jobs
    /// that go on and in jobs that are ending.
    fn count(&self, priority: Priority, counts: fn(Stage) -> bool) -> usize {
        self.jobs
            .values()
            .filter(|job| job.priority >= priority)
            .flat_map(|job| &job.parts)
            .filter(|part| counts(part.stage))
            .count()
    }

    /// Completes jobs whose parts are all verified, and aborts ending ones of which
    /// nothing runs any more.
    fn end_jobs(&mut self, actions: &mut Vec<Action>) {
        self.jobs.retain(|&id, job| {
            let ended = job.stage == JobStage::Ending && job.idle();
            if ended {
                actions.push(Action::Abort(id));
            }
            !ended
        });
        for (&id, job) in &mut self.jobs {
            let verified = job.parts.iter().all(|part| part.stage == Stage::Verified);
            if job.stage == JobStage::Running && verified {
                job.stage = JobStage::Completing;
                job.busy = true;
                actions.push(Action::Complete(id));
            }
        }
    }
}
