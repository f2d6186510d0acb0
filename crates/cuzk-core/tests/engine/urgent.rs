//! What is there for parts of the highest priority, however much others want.

use std::sync::Arc;
use std::time::Duration;

use cuzk_budget::{Budget, BudgetError, Consumer, LimitRule};
use cuzk_core::config::{Placement, PlacementRefused};
use cuzk_core::schedule::Priority;
use cuzk_core::{ColumnMemory, Engine, JobHandle, JobOptions, ProveError, Workload};
use cuzk_gpu::KeyTier;
use cuzk_pinned::{PageLocker, PretendBacking, PretendLock};
use cuzk_synth::HintStore;

use crate::backends::Faulty;
use crate::gate::{At, Gated};
use crate::toy::{House, Squares, SquaresJob};
use crate::uploading::{Stop, Uploading};
use crate::{PLENTY, until};

fn submit(engine: &Engine, rounds: usize, priority: Priority) -> JobHandle {
    let job = Arc::new(SquaresJob::new(rounds, 2, 1));
    let options = JobOptions {
        priority,
        ..JobOptions::default()
    };
    engine.submit(job, options).expect("there is a place")
}

fn waiters(engine: &Engine) -> usize {
    engine.budget().usage().waiters
}

/// All memory that others may have is in use, and more is waited for: the urgent part is
/// synthesised at once, and has the next slot.
#[test]
fn kept_memory_and_the_next_slot_are_the_urgent_parts() {
    let mut house = House::new(&[20, 300]);
    let kept = house.part_bytes(20, KeyTier::File);
    house.config.critical_reserve = LimitRule::Bytes(kept);
    let limit_bytes = house.part_bytes(300, KeyTier::File) + kept;
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(limit_bytes, backend.clone());
    assert_eq!(engine.budget().kept_bytes(), kept);
    let first = submit(&engine, 300, Priority::Normal);
    until(|| backend.seen() == 1);
    let second = submit(&engine, 300, Priority::High);
    until(|| waiters(&engine) == 1);
    let urgent = submit(&engine, 20, Priority::Critical);
    until(|| engine.metrics().syntheses_whole.count() == 2);
    assert_eq!((waiters(&engine), backend.seen()), (1, 1));
    for _ in 0..2 {
        permit.send(()).expect("the backend waits");
    }
    first.wait().expect("a good job");
    urgent.wait().expect("a good job");
    // The other one needs a permit more.
    assert!(second.wait_for(std::time::Duration::ZERO).is_none());
    permit.send(()).expect("the backend waits");
    second.wait().expect("a good job");
}

#[test]
fn what_is_kept_is_no_part_of_the_limit_of_others() {
    let mut house = House::new(&[20]);
    let part = house.part_bytes(20, KeyTier::File);
    house.config.critical_reserve = LimitRule::Bytes(1);
    let engine = house.engine(part);
    let error = submit(&engine, 20, Priority::High).wait();
    let error = error.expect_err("a byte is missing");
    assert!(
        matches!(
            &error,
            ProveError::Memory {
                source: BudgetError::TooLarge { limit_bytes, kept_bytes: 1, .. },
                ..
            } if *limit_bytes == part
        ),
        "{error}"
    );
    let told = error.to_string();
    let want = ", of which 1 bytes are kept for the highest priority";
    assert!(told.ends_with(want), "{told}");
    // It is known of the circuit, before any of its jobs.
    let checked = engine.check(&Squares { rounds: 20 });
    assert_eq!(checked.expect_err("a byte is missing").to_string(), told);
    let urgent = submit(&engine, 20, Priority::Critical);
    urgent.wait().expect("it may have all of it");
}

/// Page-locked memory is kept too, also where a part that is refused would not wait.
#[test]
fn kept_memory_is_page_locked_where_columns_are() {
    for policy in [PlacementRefused::Fail, PlacementRefused::Wait] {
        let mut house = House::new(&[20]);
        house.config.tuning.placement = Placement::Direct;
        house.config.tuning.placement_refused = policy;
        house.config.critical_reserve = LimitRule::Bytes(1 << 20);
        let locked = PretendBacking { chunk_bytes: None };
        let locker = PageLocker::new(PretendLock::default(), 8192);
        let memory = ColumnMemory::heap(Budget::new(PLENTY));
        let memory = memory.with_page_locked(1 << 20, locked, locker);
        let (backend, _) = Uploading::new(None, Stop::Never);
        let engine = house.start(memory, backend, HintStore::in_memory());
        let engine = engine.expect("page-locked memory is there");
        let refused = submit(&engine, 20, Priority::High).wait();
        refused.expect_err("all of the share is kept");
        let reply = submit(&engine, 20, Priority::Critical).wait();
        assert!(reply.expect("it may have all of it").is_pinned());
    }
}

/// Half of all memory is half of what is page-locked, and once an urgent circuit is known no
/// more of that than its columns.
#[test]
fn a_share_that_is_kept_leaves_page_locked_memory_to_others() {
    let mut house = House::new(&[20]);
    house.config.tuning.placement = Placement::Direct;
    house.config.tuning.placement_refused = PlacementRefused::Fail;
    house.config.critical_reserve = LimitRule::Percent(50);
    let locked = PretendBacking { chunk_bytes: None };
    let locker = PageLocker::new(PretendLock::default(), 8192);
    let memory = ColumnMemory::heap(Budget::new(PLENTY));
    let memory = memory.with_page_locked(1 << 20, locked, locker);
    let (backend, _) = Uploading::new(None, Stop::Never);
    let engine = house.start(memory, backend, HintStore::in_memory());
    let engine = engine.expect("page-locked memory is there");
    let kept = || {
        let pool = engine.memory().page_locked_pool();
        let share = pool.expect("there is one").budget();
        (share.kept_bytes(), engine.budget().kept_bytes())
    };
    assert_eq!(kept(), (1 << 19, PLENTY / 2));
    let other = submit(&engine, 20, Priority::High).wait();
    assert!(other.expect("half is left").is_pinned());
    let (urgent, _) = Gated::new(SquaresJob::new(20, 2, 1), At::Nowhere);
    let plan = engine.warm(&[urgent.circuit().as_ref()]);
    plan.expect("there is room");
    let (columns, total) = kept();
    assert!((1..1 << 19).contains(&columns), "{columns} are kept");
    assert_eq!(total, PLENTY / 2);
}

#[test]
fn more_than_there_is_cannot_be_kept() {
    let mut house = House::new(&[20]);
    house.config.critical_reserve = LimitRule::Percent(50);
    let engine = house.engine(1000);
    assert_eq!(engine.budget().kept_bytes(), 500);
    house.config.critical_reserve = LimitRule::Bytes(1001);
    let memory = ColumnMemory::heap(Budget::new(1000));
    let backend = Arc::new(crate::toy::cpu(true));
    let hints = HintStore::in_memory();
    let started = house.start(memory, backend, hints);
    let error = started.err().expect("too much is kept").to_string();
    assert!(
        error.starts_with("not enough memory for parts of the highest priority: "),
        "{error}"
    );
}

/// Of the circuits that are warmed, a part of the urgent one is kept, with a line in the
/// plan.
#[test]
fn a_part_of_an_urgent_circuit_that_is_warmed_is_kept() {
    let house = House::new(&[20, 50]);
    let engine = house.engine(PLENTY);
    let plan = engine.warm(&[&Squares { rounds: 50 }]).expect("room");
    assert!(!plan.to_string().contains("kept"), "{plan}");
    assert_eq!(engine.budget().kept_bytes(), 0);
    let (urgent, _) = Gated::new(SquaresJob::new(20, 2, 1), At::Nowhere);
    let urgent = urgent.circuit();
    let plan = engine
        .warm(&[&Squares { rounds: 50 }, urgent.as_ref()])
        .expect("room");
    let kept = engine.budget().kept_bytes();
    assert_eq!(kept, house.part_bytes(20, KeyTier::File));
    let told = plan.to_string();
    assert!(told.contains("kept for the highest priority"), "{told}");
}

/// Of two jobs that wait for memory the later one has the higher priority, until the caller of
/// the other raises that: then its wait goes before, although it had begun.
#[test]
fn a_job_that_is_raised_while_it_waits_for_memory_has_it_first() {
    let house = House::new(&[20]);
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(house.part_bytes(20, KeyTier::File), backend);
    let all = engine.budget().limit_bytes();
    let taken = engine.budget().try_reserve(Consumer("test"), all);
    let taken = taken.expect("nobody has any");
    let submit = |first, priority| {
        let options = JobOptions {
            priority,
            ..JobOptions::default()
        };
        let job = Arc::new(SquaresJob::new(20, first, 1));
        engine.submit(job, options).expect("there is a place")
    };
    let waiting = || -> Vec<String> {
        let waits = engine.memory_waits().into_iter();
        waits.map(|wait| wait.job).collect()
    };
    let raised = submit(2, Priority::Low);
    until(|| waiting().len() == 1);
    let other = submit(3, Priority::Normal);
    until(|| waiting().len() == 2);
    raised.raiser().raise(Priority::High);
    // It waits anew, and so the shorter time.
    until(|| waiting() == ["squares from 3", "squares from 2"]);
    until(|| engine.budget().usage().waiters == 2);
    drop(taken);
    permit.send(()).expect("the backend waits");
    let first = raised.wait_for(Duration::from_secs(120));
    first.expect("it goes first").expect("a good job");
    assert!(other.wait_for(Duration::ZERO).is_none());
    permit.send(()).expect("the backend waits");
    other.wait().expect("a good job");
    // It has ended, and so nothing happens.
    raised.raiser().raise(Priority::Critical);
}
