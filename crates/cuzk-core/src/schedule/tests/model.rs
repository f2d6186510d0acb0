//! The rules as they are told and not as they are coded.
//!
//! A [`Model`] follows what happened. Before each action that the scheduler starts it is
//! asked whether the rules let this one start now and before all others, and after each
//! step whether anything was left that could have started. What rates justify it takes
//! from the scheduler, which the [world](super::world) holds against the truth. A new
//! stage is an arm of [`Model::start`], a new event an arm of [`Model::happen`].

mod rules;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::schedule::{
    Action, Circuit, DeviceIndex, DeviceSet, Event, JobId, Limits, PartId, Priority, Scheduler,
};

/// What is done to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Reserve,
    Synthesise,
    Prove,
    Verify,
    Explain,
}

/// Where a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Waits,
    /// Its proof does not verify.
    Rejected,
    In(Stage),
    After(Stage),
}

use Place::{After, In};
use Stage::{Prove, Reserve, Synthesise};

impl Place {
    fn is_synthesised_soon(self) -> bool {
        matches!(self, In(Reserve | Synthesise) | After(Reserve))
    }

    pub(super) fn is_between(self) -> bool {
        self.is_synthesised_soon() || self == After(Synthesise)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Loads,
    Proves,
    Completes,
    /// Failed or cancelled.
    Ends,
}

pub(super) struct ModelPart {
    pub(super) place: Place,
    since: Duration,
    retries: usize,
    device: Option<DeviceIndex>,
    /// The devices that nobody before it waited for when it started.
    started_for: DeviceSet,
    failed_on: Option<DeviceIndex>,
    proofs: usize,
    /// With which priority it waits for memory, or did last.
    asked: Priority,
}

pub(super) struct ModelJob {
    given: Priority,
    pub(super) class: Priority,
    circuit: Circuit,
    pub(super) life: Life,
    /// Whether its key is being loaded or its proof handed over.
    busy: bool,
    since: Duration,
    overtaken: Option<Duration>,
    pub(super) parts: Vec<ModelPart>,
}

impl ModelJob {
    fn runs(&self) -> bool {
        self.busy || self.parts.iter().any(|part| matches!(part.place, In(_)))
    }

    fn is_proved(&self) -> bool {
        let is_verified = |part: &ModelPart| part.place == After(Stage::Verify);
        self.life == Life::Proves && self.parts.iter().all(is_verified)
    }
}

/// What must be true, from the events and actions so far. Panics name the seed.
pub(super) struct Model {
    pub(super) seed: u64,
    pub(super) limits: Limits,
    pub(super) jobs: BTreeMap<JobId, ModelJob>,
    /// Which circuits' syntheses take all threads, and which devices prove them, as the
    /// scheduler was told last.
    circuits: BTreeMap<Circuit, (bool, DeviceSet)>,
    lost: Vec<bool>,
    now: Duration,
}

impl Model {
    pub(super) fn new(seed: u64, limits: Limits) -> Self {
        Self {
            seed,
            lost: vec![false; limits.device_slots.len()],
            limits,
            jobs: BTreeMap::new(),
            circuits: BTreeMap::new(),
            now: Duration::ZERO,
        }
    }

    pub(super) fn check(&self, holds: bool, what: &str, at: &dyn std::fmt::Debug) {
        let Self {
            seed, limits, now, ..
        } = self;
        assert!(
            holds,
            "CUZK_SIMULATION_SEED={seed}: at {now:?} {at:?} {what}; {limits:?}"
        );
    }

    pub(super) fn happen(&mut self, event: Event, now: Duration) {
        self.now = now;
        match event {
            Event::Submit {
                job,
                priority,
                parts,
                circuit,
                width,
            } => {
                self.circuits
                    .entry(circuit)
                    .or_insert((width > 1, DeviceSet::ALL));
                let part = || ModelPart {
                    place: Place::Waits,
                    since: now,
                    retries: 0,
                    device: None,
                    started_for: DeviceSet::ALL,
                    failed_on: None,
                    proofs: 0,
                    asked: priority,
                };
                let job_of_parts = ModelJob {
                    given: priority,
                    class: priority,
                    circuit,
                    life: Life::Loads,
                    busy: false,
                    since: now,
                    overtaken: None,
                    parts: std::iter::repeat_with(part).take(parts).collect(),
                };
                self.jobs.insert(job, job_of_parts);
            }
            Event::KeyReady(job) => self.end_job_stage(job, Life::Proves),
            Event::JobFailed(job) => self.end_job_stage(job, Life::Ends),
            Event::Reserved(part) => self.put(part, After(Reserve)),
            Event::Synthesised {
                part,
                work,
                devices,
            } => {
                self.put(part, After(Synthesise));
                if let Some(job) = self.jobs.get(&part.job)
                    && let Some(known) = self.circuits.get_mut(&job.circuit)
                {
                    *known = (work.map_or(known.0, |work| work.width > 1), devices);
                }
            }
            Event::Proved(part) => {
                self.put(part, After(Prove));
                if let Some(part) = self.part(part) {
                    part.device = None;
                    part.proofs += 1;
                }
            }
            Event::Verified(part) => self.put(part, After(Stage::Verify)),
            Event::Rejected(part) => self.put(part, Place::Rejected),
            // No attempt is used up by it.
            Event::Outgrown(part) => self.put(part, Place::Waits),
            Event::PartFailed { part, retry } => self.fail(part, retry),
            Event::DeviceLost(device) => self.lost[device.0] = true,
            Event::Completed(job) => {
                self.jobs.remove(&job);
            }
            Event::Raise { job, priority } => {
                if let Some(job) = self.jobs.get_mut(&job)
                    && priority > job.class
                {
                    (job.class, job.overtaken) = (priority, None);
                    job.given = job.given.max(priority);
                }
            }
            Event::Cancel(job) => {
                if let Some(job) = self.jobs.get_mut(&job)
                    && job.life != Life::Completes
                {
                    job.life = Life::Ends;
                }
            }
            Event::Tick => {}
        }
    }

    /// After what happened was taken in and late stages were given up.
    fn raise(&mut self) {
        let Some(max) = self.limits.overtaken_max else {
            return;
        };
        for job in self.jobs.values_mut() {
            let is_due = job.overtaken.is_some_and(|since| since + max <= self.now);
            if is_due && job.class < Priority::High {
                job.class = match job.class {
                    Priority::Low => Priority::Normal,
                    _ => Priority::High,
                };
                job.overtaken = None;
            }
        }
    }

    fn fail(&mut self, id: PartId, retry: bool) {
        let retries_max = self.limits.retries_max;
        self.put(id, Place::Waits);
        if let Some(job) = self.jobs.get_mut(&id.job) {
            let part = &mut job.parts[id.index];
            part.retries += 1;
            part.failed_on = part.device.take().or(part.failed_on);
            if !retry || part.retries > retries_max {
                job.life = Life::Ends;
            }
        }
    }

    fn end_job_stage(&mut self, id: JobId, next: Life) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.busy = false;
            if job.life != Life::Ends {
                job.life = next;
            }
        }
    }

    fn part(&mut self, id: PartId) -> Option<&mut ModelPart> {
        Some(&mut self.jobs.get_mut(&id.job)?.parts[id.index])
    }

    fn put(&mut self, id: PartId, place: Place) {
        let now = self.now;
        if let Some(part) = self.part(id) {
            (part.place, part.since) = (place, now);
        }
    }

    /// Judges what the scheduler starts after an event, and follows it.
    pub(super) fn judge(&mut self, actions: &[Action], scheduler: &Scheduler) {
        let is_given_up = |action: &&Action| matches!(action, Action::GiveUp { .. });
        for &action in actions.iter().filter(is_given_up) {
            self.give_up(action);
        }
        self.raise();
        for &action in actions.iter().filter(|action| !is_given_up(action)) {
            self.start(action, scheduler);
        }
        self.rest(scheduler);
    }

    fn start(&mut self, action: Action, scheduler: &Scheduler) {
        match action {
            Action::Reserve { part, priority } => {
                self.check_place(part, Place::Waits, Reserve);
                let first = self.first_to_start(scheduler);
                let its_turn = first.filter(|(first, _)| *first == part);
                let is_first = its_turn.is_some();
                self.check(
                    is_first,
                    "is over a limit or before its turn",
                    &(part, first),
                );
                if let Some((_, devices)) = its_turn {
                    self.job(part.job).parts[part.index].started_for = devices;
                }
                let class = self.jobs[&part.job].class;
                self.check(priority == class, "waits with another priority", &part);
                self.note_overtaken(part);
                self.put(part, In(Reserve));
                self.job(part.job).parts[part.index].asked = priority;
            }
            Action::Urge { part, priority } => {
                let job = self.jobs.get(&part.job);
                let may = job.is_some_and(|job| {
                    let waits = &job.parts[part.index];
                    job.life == Life::Proves
                        && matches!(waits.place, In(Reserve | Synthesise) | After(Reserve))
                        && waits.asked < priority
                        && priority == job.class
                });
                self.check(may, "is urged for nothing", &(part, priority));
                self.job(part.job).parts[part.index].asked = priority;
            }
            Action::Synthesise(part) => {
                self.check_place(part, After(Reserve), Synthesise);
                self.put(part, In(Synthesise));
            }
            Action::Prove { part, device } => {
                self.check_place(part, After(Synthesise), Prove);
                let able = self.slots_for(part);
                let may = able.contains(&device);
                self.check(may, "is proved where it may not be", &(part, device, able));
                let first = self.first_for_a_slot(scheduler);
                self.check(first == Some(part), "is before its turn", &(part, first));
                self.note_overtaken(part);
                self.put(part, In(Prove));
                self.job(part.job).parts[part.index].device = Some(device);
            }
            Action::Verify(part) => {
                self.check_place(part, After(Prove), Stage::Verify);
                self.put(part, In(Stage::Verify));
            }
            Action::Explain(part) => {
                self.check_place(part, Place::Rejected, Stage::Explain);
                let first = self.first_to_explain();
                self.check(first == Some(part), "is before its turn", &(part, first));
                self.put(part, In(Stage::Explain));
            }
            Action::LoadKey(id) => {
                let job = &self.jobs[&id];
                let may = job.life == Life::Loads && !job.busy;
                self.check(may, "loads its key again", &id);
                self.job(id).busy = true;
            }
            Action::Complete(id) => {
                let job = self.jobs.get(&id);
                let may = job.is_some_and(ModelJob::is_proved);
                self.check(may, "is handed over too early or again", &id);
                let now = self.now;
                let job = self.job(id);
                (job.life, job.busy, job.since) = (Life::Completes, true, now);
            }
            Action::Refuse(part) => {
                self.check_place(part, After(Synthesise), Prove);
                let able = self.in_service(part);
                self.check(able.is_empty(), "is refused", &(part, able));
                self.job(part.job).life = Life::Ends;
            }
            Action::Abort(id) => {
                let job = self.jobs.get(&id);
                let may = job.is_some_and(|job| job.life == Life::Ends && !job.runs());
                self.check(may, "is aborted too early, again or for nothing", &id);
                self.jobs.remove(&id);
            }
            Action::GiveUp { .. } => unreachable!("judged before"),
        }
    }

    fn give_up(&mut self, action: Action) {
        let Action::GiveUp {
            job: id,
            part,
            device,
            ..
        } = action
        else {
            unreachable!("filtered")
        };
        let late = self.late();
        self.check(late.contains(&(id, part)), "is not late", &action);
        let Some(index) = part else {
            let job = self.job(id);
            (job.busy, job.life) = (false, Life::Ends);
            return;
        };
        let part = PartId { job: id, index };
        let its_device = self.jobs[&id].parts[index].device;
        self.check(its_device == device, "is on another device", &action);
        if let Some(device) = device {
            self.lost[device.0] = true;
        }
        self.fail(part, device.is_some());
    }

    /// What runs longer than it may.
    fn late(&self) -> Vec<(JobId, Option<usize>)> {
        let stages = &self.limits.stages;
        let is_late =
            |since: Duration, max: Option<Duration>| max.is_some_and(|max| since + max <= self.now);
        let mut late = Vec::new();
        for (&id, job) in &self.jobs {
            if job.busy && is_late(job.since, stages.other_max) {
                late.push((id, None));
            }
            for (index, part) in job.parts.iter().enumerate() {
                let max = match part.place {
                    In(Synthesise) => stages.synthesis_max,
                    In(Prove) => stages.prove_max,
                    In(Stage::Verify | Stage::Explain) => stages.other_max,
                    _ => None,
                };
                if is_late(part.since, max) {
                    late.push((id, Some(index)));
                }
            }
        }
        late
    }

    fn job(&mut self, id: JobId) -> &mut ModelJob {
        self.jobs.get_mut(&id).expect("looked up before")
    }

    fn check_place(&self, id: PartId, from: Place, stage: Stage) {
        let job = self.jobs.get(&id.job);
        let is_next =
            job.is_some_and(|job| job.life == Life::Proves && job.parts[id.index].place == from);
        self.check(
            is_next,
            "is not its next stage, or its job ends",
            &(id, stage),
        );
        let proofs = job.map_or(0, |job| job.parts[id.index].proofs);
        let max = 1 + self.limits.retries_max;
        self.check(stage != Prove || proofs < max, "is proved again", &id);
    }

    fn note_overtaken(&mut self, by: PartId) {
        let class = self.jobs[&by.job].class;
        let now = self.now;
        for (&id, job) in &mut self.jobs {
            let mut parts = job.parts.iter();
            let waits = parts
                .any(|part| matches!(part.place, Place::Waits | In(Reserve) | After(Synthesise)));
            if id == by.job {
                job.overtaken = None;
            } else if id < by.job && job.class < class && job.life == Life::Proves && waits {
                job.overtaken.get_or_insert(now);
            }
        }
    }
}
