//! Cases made by hand; the rules as a whole are checked in [`simulation`], what they are
//! for in [`scenarios`], and both of these by [`mutations`].

mod model;
mod mutations;
mod scenarios;
mod simulation;
mod world;

pub(super) use mutations::Mutation;

use super::*;

fn limits() -> Limits {
    Limits {
        dispatch: Dispatch::Reactive,
        threads: 4,
        synthesis_max: Some(2),
        parts_in_flight_max: Some(3),
        device_slots: vec![1],
        retries_max: 1,
        overtaken_max: None,
        stages: StageLimits::default(),
    }
}

/// A scheduler that time does not pass for.
struct Timeless(Scheduler);

impl Timeless {
    fn new() -> Self {
        Self(Scheduler::new(limits()))
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        self.0.step(event, Duration::ZERO)
    }
}

fn submit(job: u64, priority: Priority, parts: usize) -> Event {
    Event::Submit {
        job: JobId(job),
        priority,
        parts,
        circuit: Circuit(0),
        width: 1,
    }
}

fn reserve(part: PartId, priority: Priority) -> Action {
    Action::Reserve { part, priority }
}

fn synthesised(part: PartId) -> Event {
    Event::Synthesised {
        part,
        work: Some(Work {
            width: 1,
            time: Duration::ZERO,
        }),
        devices: DeviceSet::ALL,
    }
}

fn part(job: u64, index: usize) -> PartId {
    PartId {
        job: JobId(job),
        index,
    }
}

/// The event that a successful run of an action ends with. An explanation always
/// ends with a failure.
fn success(action: Action) -> Option<Event> {
    match action {
        Action::LoadKey(job) => Some(Event::KeyReady(job)),
        Action::Reserve { part, .. } => Some(Event::Reserved(part)),
        Action::Synthesise(part) => Some(synthesised(part)),
        Action::Prove { part, .. } => Some(Event::Proved(part)),
        Action::Verify(part) => Some(Event::Verified(part)),
        Action::Explain(part) => Some(Event::PartFailed { part, retry: true }),
        Action::Complete(job) => Some(Event::Completed(job)),
        Action::Urge { .. } | Action::Refuse(_) | Action::GiveUp { .. } | Action::Abort(_) => None,
    }
}

#[test]
fn a_job_runs_its_parts_through_every_stage() {
    let mut scheduler = Timeless::new();
    let mut todo = scheduler.step(submit(1, Priority::Normal, 2));
    let mut seen = Vec::new();
    while !todo.is_empty() {
        let action = todo.remove(0);
        seen.push(format!("{action:?}"));
        if let Some(event) = success(action) {
            todo.extend(scheduler.step(event));
        }
    }
    assert_eq!(scheduler.0.jobs(), 0);
    insta::assert_snapshot!(seen.join("\n"));
}

#[test]
fn a_higher_priority_overtakes_at_the_next_stage() {
    let mut scheduler = Timeless::new();
    scheduler.step(submit(1, Priority::Normal, 5));
    // The first part waits for memory; nothing of its priority overtakes it.
    assert_eq!(
        scheduler.step(Event::KeyReady(JobId(1))),
        [reserve(part(1, 0), Priority::Normal)]
    );
    scheduler.step(submit(2, Priority::Normal, 1));
    assert_eq!(scheduler.step(Event::KeyReady(JobId(2))), []);
    scheduler.step(submit(3, Priority::Critical, 1));
    assert_eq!(
        scheduler.step(Event::KeyReady(JobId(3))),
        [reserve(part(3, 0), Priority::Critical)]
    );
    // While the critical part waits for memory, no normal one may ask for any.
    let next = scheduler.step(Event::Reserved(part(1, 0)));
    assert_eq!(next, [Action::Synthesise(part(1, 0))]);
    let next = scheduler.step(Event::Reserved(part(3, 0)));
    // Two are synthesised, which is the limit.
    assert_eq!(next, [Action::Synthesise(part(3, 0))]);
    let device = DeviceIndex(0);
    let prove = Action::Prove {
        part: part(3, 0),
        device,
    };
    // Nothing is measured yet: two are on their way to a device without a free slot.
    let second = reserve(part(1, 1), Priority::Normal);
    assert_eq!(scheduler.step(synthesised(part(3, 0))), [prove, second]);
    assert_eq!(scheduler.step(synthesised(part(1, 0))), []);
    let prove = Action::Prove {
        part: part(1, 0),
        device,
    };
    let next = scheduler.step(Event::Proved(part(3, 0)));
    let verify = Action::Verify(part(3, 0));
    assert_eq!(next, [prove, verify]);
}

#[test]
fn a_failure_of_ours_is_retried_once_and_then_ends_the_job() {
    let mut scheduler = Timeless::new();
    scheduler.step(submit(1, Priority::Normal, 1));
    scheduler.step(Event::KeyReady(JobId(1)));
    let failed = Event::PartFailed {
        part: part(1, 0),
        retry: true,
    };
    assert_eq!(
        scheduler.step(failed),
        [reserve(part(1, 0), Priority::Normal)]
    );
    assert_eq!(scheduler.step(failed), [Action::Abort(JobId(1))]);
    assert_eq!(scheduler.0.jobs(), 0);
    // What comes late, about a job that has ended, starts nothing.
    assert_eq!(scheduler.step(Event::Proved(part(1, 0))), []);
}

#[test]
fn a_cancelled_job_ends_when_its_last_stage_does() {
    let mut scheduler = Timeless::new();
    scheduler.step(submit(1, Priority::Normal, 3));
    scheduler.step(Event::KeyReady(JobId(1)));
    scheduler.step(Event::Reserved(part(1, 0)));
    assert_eq!(scheduler.step(Event::Cancel(JobId(1))), []);
    assert_eq!(scheduler.step(Event::Reserved(part(1, 1))), []);
    assert_eq!(
        scheduler.step(synthesised(part(1, 0))),
        [Action::Abort(JobId(1))]
    );
}

/// What waits already for memory goes on with the new priority, what has not started goes
/// first, and a lower priority changes nothing.
#[test]
fn a_job_that_its_caller_raises_goes_first() {
    let mut scheduler = Timeless::new();
    let raise = |job, priority| Event::Raise {
        job: JobId(job),
        priority,
    };
    for job in 1..=3 {
        scheduler.step(submit(job, Priority::Low, 2));
    }
    let first = reserve(part(1, 0), Priority::Low);
    assert_eq!(scheduler.step(Event::KeyReady(JobId(1))), [first]);
    for job in 2..=3 {
        assert_eq!(scheduler.step(Event::KeyReady(JobId(job))), []);
    }
    let urge = Action::Urge {
        part: part(1, 0),
        priority: Priority::Normal,
    };
    assert_eq!(scheduler.step(raise(1, Priority::Normal)), [urge]);
    assert_eq!(scheduler.step(raise(1, Priority::Low)), []);
    // It may wait for memory beside one of a lower class.
    let third = reserve(part(3, 0), Priority::Critical);
    assert_eq!(scheduler.step(raise(3, Priority::Critical)), [third]);
    // Of a job that is over, or was none.
    assert_eq!(scheduler.step(raise(9, Priority::Critical)), []);
    scheduler.step(Event::Cancel(JobId(2)));
    assert_eq!(scheduler.step(raise(2, Priority::Critical)), []);
}

/// Syntheses of two segments leave most of sixteen threads to others; ones that have
/// something for every thread go two at a time.
#[test]
fn as_many_are_synthesised_as_have_something_for_all_threads() {
    let of = |dispatch, threads, width| {
        let limits = Limits {
            dispatch,
            threads,
            synthesis_max: None,
            ..limits()
        };
        limits.synthesis_max(width)
    };
    let reactive = |threads, width| of(Dispatch::Reactive, threads, width);
    assert_eq!(
        [1, 2, 8, 16, 18].map(|width| reactive(16, width)),
        [16, 9, 3, 2, 2]
    );
    assert_eq!(
        [1, 2, usize::MAX].map(|width| reactive(1, width)),
        [1, 2, 2]
    );
    assert_eq!(
        [1, 2, 18].map(|width| of(Dispatch::Burst, 16, width)),
        [16; 3]
    );
}
