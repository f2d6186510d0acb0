//! Simulated runs: seeded schedules with slow stages, failures and cancels.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::*;

const LIMITS: Limits = Limits {
    synthesis_max: 2,
    parts_in_flight_max: 3,
    device_slots: 1,
    retries_max: 1,
};

fn submit(job: u64, priority: Priority, parts: usize) -> Event {
    Event::Submit {
        job: JobId(job),
        priority,
        parts,
    }
}

fn part(job: u64, index: usize) -> PartId {
    PartId {
        job: JobId(job),
        index,
    }
}

/// The event that a successful run of an action ends with.
fn success(action: Action) -> Option<Event> {
    match action {
        Action::LoadKey(job) => Some(Event::KeyReady(job)),
        Action::Reserve(part) => Some(Event::Reserved(part)),
        Action::Synthesise(part) => Some(Event::Synthesised(part)),
        Action::Prove(part) => Some(Event::Proved(part)),
        Action::Verify(part) => Some(Event::Verified(part)),
        Action::Explain(part) => Some(Event::PartFailed { part, retry: true }),
        Action::Complete(job) => Some(Event::Completed(job)),
        Action::Abort(_) => None,
    }
}

#[test]
fn a_job_runs_its_parts_through_every_stage() {
    let mut scheduler = Scheduler::new(LIMITS);
    let mut todo = scheduler.step(submit(1, Priority::Normal, 2));
    let mut seen = Vec::new();
    while !todo.is_empty() {
        let action = todo.remove(0);
        seen.push(format!("{action:?}"));
        if let Some(event) = success(action) {
            todo.extend(scheduler.step(event));
        }
    }
    assert_eq!(scheduler.jobs(), 0);
    insta::assert_snapshot!(seen.join("\n"));
}

#[test]
fn a_higher_priority_overtakes_at_the_next_stage() {
    let mut scheduler = Scheduler::new(LIMITS);
    scheduler.step(submit(1, Priority::Normal, 5));
    // The first part waits for memory; nothing of its priority overtakes it.
    assert_eq!(
        scheduler.step(Event::KeyReady(JobId(1))),
        [Action::Reserve(part(1, 0))]
    );
    scheduler.step(submit(2, Priority::Normal, 1));
    assert_eq!(scheduler.step(Event::KeyReady(JobId(2))), []);
    scheduler.step(submit(3, Priority::Critical, 1));
    assert_eq!(
        scheduler.step(Event::KeyReady(JobId(3))),
        [Action::Reserve(part(3, 0))]
    );
    // While the critical part waits for memory, no normal one may ask for any.
    let next = scheduler.step(Event::Reserved(part(1, 0)));
    assert_eq!(next, [Action::Synthesise(part(1, 0))]);
    let next = scheduler.step(Event::Reserved(part(3, 0)));
    assert_eq!(
        next,
        [Action::Synthesise(part(3, 0)), Action::Reserve(part(1, 1))]
    );
}

#[test]
fn a_failure_of_ours_is_retried_once_and_then_ends_the_job() {
    let mut scheduler = Scheduler::new(LIMITS);
    scheduler.step(submit(1, Priority::Normal, 1));
    scheduler.step(Event::KeyReady(JobId(1)));
    let failed = Event::PartFailed {
        part: part(1, 0),
        retry: true,
    };
    assert_eq!(scheduler.step(failed), [Action::Reserve(part(1, 0))]);
    assert_eq!(scheduler.step(failed), [Action::Abort(JobId(1))]);
    assert_eq!(scheduler.jobs(), 0);
    // What comes late, about a job that has ended, starts nothing.
    assert_eq!(scheduler.step(Event::Proved(part(1, 0))), []);
}

#[test]
fn a_cancelled_job_ends_when_its_last_stage_does() {
    let mut scheduler = Scheduler::new(LIMITS);
    scheduler.step(submit(1, Priority::Normal, 3));
    scheduler.step(Event::KeyReady(JobId(1)));
    scheduler.step(Event::Reserved(part(1, 0)));
    assert_eq!(scheduler.step(Event::Cancel(JobId(1))), []);
    assert_eq!(scheduler.step(Event::Reserved(part(1, 1))), []);
    assert_eq!(
        scheduler.step(Event::Synthesised(part(1, 0))),
        [Action::Abort(JobId(1))]
    );
}

/// One seeded run: actions finish in a random order, some fail, some jobs are
/// cancelled. Checks limits and order at every step.
struct Simulation {
    rng: ChaCha8Rng,
    scheduler: Scheduler,
    running: Vec<Action>,
    priorities: BTreeMap<JobId, Priority>,
    ends: BTreeMap<JobId, &'static str>,
    /// Completions of each stage of each part since its last reservation.
    stages: BTreeMap<PartId, usize>,
}

impl Simulation {
    fn start(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Abort(job) => self.end(job, "aborted"),
                Action::Reserve(part) => {
                    self.stages.insert(part, 0);
                    self.running.push(action);
                }
                Action::Synthesise(part) => self.advance(part, 1, action),
                Action::Prove(part) => self.advance(part, 2, action),
                Action::Verify(part) => self.advance(part, 3, action),
                Action::Explain(part) => self.advance(part, 4, action),
                Action::LoadKey(_) | Action::Complete(_) => self.running.push(action),
            }
        }
        for priority in [
            Priority::Low,
            Priority::Normal,
            Priority::High,
            Priority::Critical,
        ] {
            let at_least = |id: JobId| self.priorities[&id] >= priority;
            let count = |wanted: fn(&Action) -> Option<PartId>| {
                self.running
                    .iter()
                    .filter_map(wanted)
                    .filter(|part| at_least(part.job))
                    .count()
            };
            // A limit holds for the parts of each priority and above, plus the ones of
            // a lower priority that were there first.
            let proving = count(|action| match action {
                Action::Prove(part) => Some(*part),
                _ => None,
            });
            let synthesising = count(|action| match action {
                Action::Synthesise(part) => Some(*part),
                _ => None,
            });
            let levels = 4;
            assert!(proving <= LIMITS.device_slots * levels);
            assert!(synthesising <= LIMITS.synthesis_max * levels);
            if priority == Priority::Critical {
                assert!(proving <= LIMITS.device_slots && synthesising <= LIMITS.synthesis_max);
            }
        }
    }

    fn advance(&mut self, part: PartId, stage: usize, action: Action) {
        let before = self.stages.insert(part, stage);
        assert_eq!(
            before,
            Some(stage - 1),
            "{part:?} skipped or repeated a stage"
        );
        self.running.push(action);
    }

    fn end(&mut self, job: JobId, how: &'static str) {
        let before = self.ends.insert(job, how);
        assert_eq!(before, None, "{job:?} ended twice");
        let runs = self.running.iter().any(|action| match action {
            Action::LoadKey(id) | Action::Complete(id) | Action::Abort(id) => *id == job,
            Action::Reserve(part)
            | Action::Synthesise(part)
            | Action::Prove(part)
            | Action::Verify(part)
            | Action::Explain(part) => part.job == job,
        });
        assert!(!runs, "{job:?} ended while a stage of it ran");
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.rng.next_u32() as usize) % bound
    }

    fn run(&mut self, jobs: u64) {
        for job in 1..=jobs {
            let priorities = [
                Priority::Low,
                Priority::Normal,
                Priority::High,
                Priority::Critical,
            ];
            let priority = priorities[self.below(4)];
            self.priorities.insert(JobId(job), priority);
            let parts = 1 + self.below(4);
            let actions = self.scheduler.step(submit(job, priority, parts));
            self.start(actions);
            for _ in 0..self.below(12) {
                self.finish_one();
            }
            if self.below(5) == 0 {
                let victim = JobId(1 + self.below(job as usize) as u64);
                let actions = self.scheduler.step(Event::Cancel(victim));
                self.start(actions);
            }
        }
        while !self.running.is_empty() {
            self.finish_one();
        }
    }

    fn finish_one(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let index = self.below(self.running.len());
        let action = self.running.swap_remove(index);
        let fails = self.below(20) == 0;
        let event = match action {
            Action::LoadKey(job) | Action::Complete(job) if fails => Event::JobFailed(job),
            Action::Reserve(part)
            | Action::Synthesise(part)
            | Action::Prove(part)
            | Action::Verify(part)
                if fails =>
            {
                Event::PartFailed {
                    part,
                    retry: self.below(2) == 0,
                }
            }
            _ => success(action).expect("aborts are not run"),
        };
        if let Event::Completed(job) = event {
            self.end(job, "completed");
        }
        let actions = self.scheduler.step(event);
        self.start(actions);
    }
}

#[test]
fn no_job_is_lost_in_any_order_of_completions() {
    for seed in 0..3000 {
        let mut simulation = Simulation {
            rng: ChaCha8Rng::seed_from_u64(seed),
            scheduler: Scheduler::new(LIMITS),
            running: Vec::new(),
            priorities: BTreeMap::new(),
            ends: BTreeMap::new(),
            stages: BTreeMap::new(),
        };
        simulation.run(12);
        assert_eq!(
            simulation.ends.len(),
            12,
            "seed {seed}: {:?}",
            simulation.scheduler
        );
        assert_eq!(simulation.scheduler.jobs(), 0, "seed {seed}");
    }
}
