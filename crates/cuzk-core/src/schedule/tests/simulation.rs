//! Seeded runs, judged by the rules as they are told and not as they are coded.
//!
//! A [`Model`] follows what happened. Before each action that the scheduler starts it
//! is asked whether the rules let this one start now and before all others, and after
//! each step whether anything was left that could have started. A new stage is a line
//! of [`RULES`] and an arm of [`Model::start`]; a new event is an arm of
//! [`Model::happen`] and a choice in [`Simulation::outcome`].

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::{submit, success};
use crate::schedule::{Action, Event, JobId, Limits, PartId, Priority, Scheduler};

const PRIORITIES: [Priority; 4] = [
    Priority::Low,
    Priority::Normal,
    Priority::High,
    Priority::Critical,
];

/// What is done to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reserve,
    Synthesise,
    Prove,
    Verify,
    Explain,
}

/// Where a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waits,
    /// Its proof does not verify.
    Rejected,
    In(Stage),
    After(Stage),
}

impl Place {
    /// From the start of the reservation to the end of the proof.
    fn in_flight(self) -> bool {
        use Stage::{Prove, Reserve, Synthesise};
        matches!(
            self,
            Self::In(Reserve | Synthesise | Prove) | Self::After(Reserve | Synthesise)
        )
    }
}

/// When a stage may start.
struct Rule {
    stage: Stage,
    /// Where the part must be.
    from: Place,
    /// How many parts of its own or a higher priority may be in the stage at once.
    running_max: fn(&Limits) -> usize,
    /// Whether the part comes to be in flight by it.
    takes_off: bool,
}

const RULES: [Rule; 5] = [
    Rule {
        stage: Stage::Reserve,
        from: Place::Waits,
        running_max: |_| 1,
        takes_off: true,
    },
    Rule {
        stage: Stage::Synthesise,
        from: Place::After(Stage::Reserve),
        running_max: |limits| limits.synthesis_max,
        takes_off: false,
    },
    Rule {
        stage: Stage::Prove,
        from: Place::After(Stage::Synthesise),
        running_max: |limits| limits.device_slots,
        takes_off: false,
    },
    Rule {
        stage: Stage::Verify,
        from: Place::After(Stage::Prove),
        running_max: |_| usize::MAX,
        takes_off: false,
    },
    Rule {
        stage: Stage::Explain,
        from: Place::Rejected,
        running_max: |_| 1,
        takes_off: false,
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Loads,
    Proves,
    Completes,
    /// Failed or cancelled.
    Ends,
}

struct ModelPart {
    place: Place,
    retries: usize,
}

struct ModelJob {
    priority: Priority,
    life: Life,
    /// Whether its key is being loaded or its proof handed over.
    busy: bool,
    parts: Vec<ModelPart>,
}

impl ModelJob {
    fn runs(&self) -> bool {
        let part_runs = |part: &ModelPart| matches!(part.place, Place::In(_));
        self.busy || self.parts.iter().any(part_runs)
    }

    fn is_proved(&self) -> bool {
        let is_verified = |part: &ModelPart| part.place == Place::After(Stage::Verify);
        self.life == Life::Proves && self.parts.iter().all(is_verified)
    }
}

/// What must be true, from the events and actions so far. Panics name the seed.
struct Model {
    seed: u64,
    limits: Limits,
    jobs: BTreeMap<JobId, ModelJob>,
}

impl Model {
    fn check(&self, holds: bool, what: &str, at: &dyn std::fmt::Debug) {
        let Self { seed, limits, .. } = self;
        assert!(holds, "seed {seed}, {limits:?}: {at:?} {what}");
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Submit {
                job,
                priority,
                parts,
            } => {
                let part = || ModelPart {
                    place: Place::Waits,
                    retries: 0,
                };
                let job_of_parts = ModelJob {
                    priority,
                    life: Life::Loads,
                    busy: false,
                    parts: std::iter::repeat_with(part).take(parts).collect(),
                };
                self.jobs.insert(job, job_of_parts);
            }
            Event::KeyReady(job) => self.end_job_stage(job, Life::Proves),
            Event::JobFailed(job) => self.end_job_stage(job, Life::Ends),
            Event::Reserved(part) => self.put(part, Place::After(Stage::Reserve)),
            Event::Synthesised(part) => self.put(part, Place::After(Stage::Synthesise)),
            Event::Proved(part) => self.put(part, Place::After(Stage::Prove)),
            Event::Verified(part) => self.put(part, Place::After(Stage::Verify)),
            Event::Rejected(part) => self.put(part, Place::Rejected),
            // No attempt is used up by it.
            Event::Outgrown(part) => self.put(part, Place::Waits),
            Event::PartFailed { part, retry } => {
                let retries_max = self.limits.retries_max;
                self.put(part, Place::Waits);
                if let Some(job) = self.jobs.get_mut(&part.job) {
                    let part = &mut job.parts[part.index];
                    part.retries += 1;
                    if !retry || part.retries > retries_max {
                        job.life = Life::Ends;
                    }
                }
            }
            Event::Completed(job) => {
                self.jobs.remove(&job);
            }
            Event::Cancel(job) => {
                if let Some(job) = self.jobs.get_mut(&job)
                    && job.life != Life::Completes
                {
                    job.life = Life::Ends;
                }
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

    fn put(&mut self, id: PartId, place: Place) {
        if let Some(job) = self.jobs.get_mut(&id.job) {
            job.parts[id.index].place = place;
        }
    }

    /// Judges an action that starts now, and follows it.
    fn start(&mut self, action: Action) {
        match action {
            Action::Reserve(part) => self.start_stage(part, Stage::Reserve),
            Action::Synthesise(part) => self.start_stage(part, Stage::Synthesise),
            Action::Prove(part) => self.start_stage(part, Stage::Prove),
            Action::Verify(part) => self.start_stage(part, Stage::Verify),
            Action::Explain(part) => self.start_stage(part, Stage::Explain),
            Action::LoadKey(id) => {
                let job = &self.jobs[&id];
                let may = job.life == Life::Loads && !job.busy;
                self.check(may, "loads its key again", &id);
                self.job(id).busy = true;
            }
            Action::Complete(id) => {
                let may = self.jobs[&id].is_proved();
                self.check(may, "is handed over too early or again", &id);
                let job = self.job(id);
                (job.life, job.busy) = (Life::Completes, true);
            }
            Action::Abort(id) => {
                let job = self.jobs.get(&id);
                let may = job.is_some_and(|job| job.life == Life::Ends && !job.runs());
                self.check(may, "is aborted too early, again or for nothing", &id);
                self.jobs.remove(&id);
            }
        }
    }

    fn job(&mut self, id: JobId) -> &mut ModelJob {
        self.jobs.get_mut(&id).expect("looked up before")
    }

    fn start_stage(&mut self, id: PartId, stage: Stage) {
        let rule = RULES.iter().find(|rule| rule.stage == stage);
        let rule = rule.expect("each stage has a rule");
        let at = (id, stage);
        self.check(
            self.is_ready(id, rule),
            "is not its next stage, or its job ends",
            &at,
        );
        self.check(self.has_place(id, rule), "is over the stage's limit", &at);
        self.check(
            self.has_clearance(id, rule),
            "is over the limit in flight",
            &at,
        );
        let first = self.first(rule);
        self.check(first == Some(id), "is before its turn", &(at, first));
        self.put(id, Place::In(stage));
    }

    fn is_ready(&self, id: PartId, rule: &Rule) -> bool {
        let job = self.jobs.get(&id.job);
        job.is_some_and(|job| job.life == Life::Proves && job.parts[id.index].place == rule.from)
    }

    fn has_place(&self, id: PartId, rule: &Rule) -> bool {
        let running = self.count(id.job, |place| place == Place::In(rule.stage));
        running < (rule.running_max)(&self.limits)
    }

    fn has_clearance(&self, id: PartId, rule: &Rule) -> bool {
        !rule.takes_off || self.count(id.job, Place::in_flight) < self.limits.parts_in_flight_max
    }

    /// Parts of the job's own or a higher priority, also in jobs that end.
    fn count(&self, id: JobId, counts: impl Fn(Place) -> bool) -> usize {
        let priority = self.jobs[&id].priority;
        let above = self.jobs.values().filter(|job| job.priority >= priority);
        above
            .flat_map(|job| &job.parts)
            .filter(|part| counts(part.place))
            .count()
    }

    /// Of the parts that may start the stage, the one that must be first.
    fn first(&self, rule: &Rule) -> Option<PartId> {
        let parts = self.jobs.iter().flat_map(|(&job, entry)| {
            let part = move |index| PartId { job, index };
            (0..entry.parts.len()).map(part)
        });
        parts
            .filter(|&id| {
                self.is_ready(id, rule) && self.has_place(id, rule) && self.has_clearance(id, rule)
            })
            .min_by_key(|id| (Reverse(self.jobs[&id.job].priority), id.job, id.index))
    }

    /// Nothing that may start is left idle.
    fn rest(&self) {
        for rule in &RULES {
            let idle = self.first(rule);
            self.check(idle.is_none(), "could start", &(rule.stage, idle));
        }
        for (id, job) in &self.jobs {
            let is_loading = job.life != Life::Loads || job.busy;
            self.check(is_loading, "does not load its key", id);
            self.check(!job.is_proved(), "is not handed over", id);
            let is_over = job.life == Life::Ends && !job.runs();
            self.check(!is_over, "is not aborted", id);
        }
    }
}

/// One seeded run: stages end in a random order, some fail, some jobs are cancelled.
struct Simulation {
    rng: ChaCha8Rng,
    scheduler: Scheduler,
    model: Model,
    running: Vec<Action>,
    failures_percent: usize,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |bound: u32| (rng.next_u32() % bound) as usize;
        let limits = Limits {
            synthesis_max: 1 + below(3),
            parts_in_flight_max: 1 + below(5),
            device_slots: 1 + below(2),
            retries_max: below(3),
        };
        let failures_percent = [0, 5, 25][below(3)];
        Self {
            scheduler: Scheduler::new(limits),
            model: Model {
                seed,
                limits,
                jobs: BTreeMap::new(),
            },
            running: Vec::new(),
            failures_percent,
            rng,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.next_u32() as usize % bound
    }

    fn fails(&mut self) -> bool {
        self.below(100) < self.failures_percent
    }

    fn step(&mut self, event: Event) {
        self.model.happen(event);
        for action in self.scheduler.step(event) {
            self.model.start(action);
            if !matches!(action, Action::Abort(_)) {
                self.running.push(action);
            }
        }
        self.model.rest();
        let jobs = (self.scheduler.jobs(), self.model.jobs.len());
        self.model.check(jobs.0 == jobs.1, "jobs are left", &jobs);
    }

    fn run(&mut self, jobs: u64) {
        for job in 1..=jobs {
            let priority = PRIORITIES[self.below(PRIORITIES.len())];
            let parts = 1 + self.below(5);
            self.step(submit(job, priority, parts));
            for _ in 0..self.below(14) {
                self.end_one();
            }
            // Also jobs that are over, which must change nothing.
            let any = JobId(1 + self.rng.next_u64() % job);
            if self.fails() {
                self.step(Event::Cancel(any));
            }
            if !self.model.jobs.contains_key(&any) {
                let part = PartId { job: any, index: 0 };
                self.step(Event::Proved(part));
            }
        }
        while !self.running.is_empty() {
            self.end_one();
        }
        let left: Vec<_> = self.model.jobs.keys().collect();
        self.model.check(left.is_empty(), "never end", &left);
    }

    /// Ends a stage that runs, if one does.
    fn end_one(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let index = self.below(self.running.len());
        let action = self.running.swap_remove(index);
        let event = self.outcome(action);
        self.step(event);
    }

    fn outcome(&mut self, action: Action) -> Event {
        let good = success(action).expect("aborts do not run");
        if !self.fails() {
            return good;
        }
        match action {
            Action::LoadKey(job) | Action::Complete(job) => Event::JobFailed(job),
            Action::Synthesise(part) if self.below(2) == 0 => Event::Outgrown(part),
            Action::Verify(part) if self.below(2) == 0 => Event::Rejected(part),
            Action::Reserve(part)
            | Action::Synthesise(part)
            | Action::Prove(part)
            | Action::Verify(part)
            | Action::Explain(part) => Event::PartFailed {
                part,
                retry: self.below(4) != 0,
            },
            Action::Abort(_) => good,
        }
    }
}

#[test]
fn the_rules_hold_in_any_order_of_ends_and_no_job_is_lost() {
    for seed in 0..2000 {
        Simulation::new(seed).run(12);
    }
}
