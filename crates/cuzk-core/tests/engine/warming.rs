//! Columns that are allocated before the first job, and no others after it.

use std::num::NonZero;
use std::sync::Arc;

use cuzk_budget::{Budget, PlanError};
use cuzk_core::config::{Dispatch, KeyTier, Placement, PlacementRefused};
use cuzk_core::{ColumnMemory, Engine, ProveError};
use cuzk_pinned::{FaultyBacking, PageLocker, PretendBacking, PretendLock};
use cuzk_synth::HintStore;

use crate::backends::Faulty;
use crate::toy::{House, Squares, SquaresJob};
use crate::uploading::{Stop, Uploading};
use crate::{PLENTY, prove, seeded, until};

const LOCKED: PretendBacking = PretendBacking { chunk_bytes: None };

fn engine(house: &House, limit_bytes: u64, share_bytes: u64) -> Engine {
    let memory = ColumnMemory::heap(Budget::new(limit_bytes)).with_page_locked(
        share_bytes,
        LOCKED,
        PageLocker::new(PretendLock::default(), 8192),
    );
    start(house, memory)
}

fn start(house: &House, memory: ColumnMemory) -> Engine {
    let (backend, _) = Uploading::new(None, Stop::Never);
    let engine = house.start(memory, backend, HintStore::in_memory());
    engine.expect("page-locked memory is there")
}

fn allocations(engine: &Engine) -> u64 {
    let pool = engine.memory().page_locked_pool();
    pool.expect("there is one").stats().allocations
}

fn house() -> House {
    let mut house = House::new(&[20, 50]);
    house.config.tuning.placement = Placement::Direct;
    house.config.tuning.placement_refused = PlacementRefused::Fail;
    house
}

#[test]
fn no_page_locked_memory_is_allocated_after_the_warm_up() {
    let house = house();
    let engine = engine(&house, PLENTY, PLENTY);
    let (small, large) = (Squares { rounds: 20 }, Squares { rounds: 50 });
    let plan = engine.warm(&[&small, &large]).expect("there is room");
    let columns = house.column_lens(20).len() + house.column_lens(50).len();
    let warmed = allocations(&engine);
    assert_eq!(
        warmed,
        (columns * engine.parts_in_flight_max(&small)) as u64
    );
    assert!(engine.memory().page_locked_bytes() <= plan.planned_bytes() + warmed * 4096);
    let told = plan.to_string();
    let want = format!("{} parts x", engine.parts_in_flight_max(&small));
    assert!(told.contains(&want) && told.contains("work"), "{told}");
    // More jobs than may be in flight, all at once, again and again.
    for round in 0..3 {
        let handles: Vec<_> = (0..6)
            .map(|index| {
                let rounds = [20, 50][index % 2];
                let job = SquaresJob::new(rounds, round + 2, 3);
                engine.submit(Arc::new(job), seeded()).expect("a place")
            })
            .collect();
        for handle in handles {
            let reply = handle.wait().expect("a good job");
            assert!(reply.is_pinned());
        }
    }
    assert_eq!(allocations(&engine), warmed, "none after the warm-up");
    let stats = engine.memory().page_locked_pool().expect("one").stats();
    assert_eq!((stats.frees, stats.in_use_bytes), (0, 0));
    let usage = engine.budget().usage();
    assert_eq!(usage.used_bytes, usage.idle_bytes);
    // Once more changes nothing.
    engine.warm(&[&large, &small]).expect("there is room");
    assert_eq!(allocations(&engine), warmed);
}

#[test]
fn the_parts_that_fit_are_found_however_many_may_be_in_flight() {
    let mut house = house();
    let circuit = Squares { rounds: 20 };
    let columns = house.column_lens(20);
    let pages = columns.iter().map(|len| len.next_multiple_of(4096) as u64);
    let pages: u64 = pages.sum();
    for max in [1, 2, 6, 7, 8, 1_000_000_000_000, usize::MAX] {
        house.config.parts_in_flight_max = Some(max);
        let engine = engine(&house, PLENTY, pages * 7 + 4096);
        engine.warm(&[&circuit]).expect("a part fits");
        let want = max.min(7) as u64 * columns.len() as u64;
        assert_eq!(allocations(&engine), want, "{max}");
    }
}

#[test]
fn as_many_parts_are_warmed_as_fit_and_one_at_least() {
    let house = house();
    let circuit = Squares { rounds: 20 };
    let columns = house.column_lens(20);
    let pages: u64 = columns
        .iter()
        .map(|len| len.next_multiple_of(4096) as u64)
        .sum();
    for parts in 1..=2 {
        let engine = engine(&house, PLENTY, pages * parts);
        engine.warm(&[&circuit]).expect("a part fits");
        assert_eq!(allocations(&engine), parts * columns.len() as u64);
        let job = SquaresJob::new(20, 2, 1);
        assert!(prove(&engine, &job).expect("a good job").is_pinned());
    }
    // Of two circuits not even one part each.
    let rounded = |lens: Vec<usize>| {
        let lens = lens.into_iter();
        lens.map(|len| len.next_multiple_of(4096) as u64)
            .sum::<u64>()
    };
    let exact: usize = house.column_lens(50).into_iter().sum();
    let part_bytes = house.part_bytes(50, cuzk_gpu::KeyTier::File) - exact as u64
        + rounded(house.column_lens(50));
    let engine = engine(&house, part_bytes, PLENTY);
    let error = engine.warm(&[&circuit, &Squares { rounds: 50 }]);
    let error = error.expect_err("both do not fit");
    assert!(
        matches!(
            &error,
            ProveError::Plan(PlanError::TooLarge { .. }) | ProveError::Memory { .. }
        ),
        "{error}"
    );
    assert_eq!(engine.budget().usage().used_bytes, 0);
    engine.warm(&[]).expect("nothing to do");
}

#[test]
fn a_warm_up_that_is_refused_leaves_nothing_and_says_why() {
    let house = house();
    let backing = FaultyBacking::new(LOCKED, 5);
    let memory = ColumnMemory::heap(Budget::new(PLENTY)).with_page_locked(
        PLENTY,
        backing,
        PageLocker::new(PretendLock::default(), 8192),
    );
    let engine = start(&house, memory);
    let error = engine.warm(&[&Squares { rounds: 20 }]);
    let error = error.expect_err("the fifth is refused");
    assert!(matches!(&error, ProveError::Warm(_)), "{error}");
    assert_eq!(engine.budget().usage().used_bytes, 0);
    let missing = engine.warm(&[&Squares { rounds: 21 }]);
    assert!(matches!(missing, Err(ProveError::MissingKey { .. })));
    engine
        .warm(&[&Squares { rounds: 20 }])
        .expect("the driver gives it now");
}

#[test]
fn a_staging_ring_is_a_line_of_the_plan() {
    let mut house = house();
    house.config.tuning.placement = Placement::Staged;
    let locker = PageLocker::new(PretendLock::default(), 8192);
    let mut memory =
        ColumnMemory::heap(Budget::new(PLENTY)).with_page_locked(PLENTY, LOCKED, locker);
    let threads = NonZero::new(1).expect("not zero");
    let options = cuzk_pinned::StagingOptions {
        chunk_bytes: NonZero::new(4096).expect("not zero"),
        ..cuzk_pinned::StagingOptions::with_threads(threads)
    };
    let ring = memory.staging_ring(options).expect("there is room");
    let (backend, _) = Uploading::new(Some(ring), Stop::Never);
    let engine = house.start(memory, backend, HintStore::in_memory());
    let engine = engine.expect("there are chunks");
    let plan = engine.warm(&[&Squares { rounds: 20 }]).expect("room");
    assert!(
        plan.to_string().contains("backend's buffers  8,192 bytes"),
        "{plan}"
    );
    assert_eq!(engine.memory().page_locked_bytes(), 8192);
    assert!(engine.memory().heap_pool().stats().idle_count > 0);
}

/// Points come before columns, whether they must be in memory or have room in their share.
#[test]
fn points_of_keys_are_a_line_of_the_plan_where_they_have_room() {
    let mut house = House::new(&[6000]);
    house.config.parts_in_flight_max = Some(2);
    let points = house.key(6000).resident_bytes();
    let resident = 2 * house.part_bytes(6000, cuzk_gpu::KeyTier::Resident);
    let columns = house.column_lens(6000).len() as u64;
    for (tier, limit_bytes, parts, is_planned) in [
        (KeyTier::Resident, resident + points, 2, true),
        (KeyTier::Resident, resident + points - 1, 1, true),
        (KeyTier::Auto, 8 * points, 2, true),
        (KeyTier::Auto, 4 * points, 1, true),
        (KeyTier::Auto, 4 * points - 1, 1, false),
        (KeyTier::File, PLENTY, 2, false),
    ] {
        house.config.tuning.key_tier = tier;
        let engine = house.engine(limit_bytes);
        let plan = engine.warm(&[&Squares { rounds: 6000 }]).expect("room");
        let told = plan.to_string();
        let line = told.lines().find(|line| line.contains("keys"));
        assert_eq!(line.is_some(), is_planned, "{plan}");
        assert!(plan.planned_bytes() <= limit_bytes, "{plan}");
        let allocations = || engine.memory().heap_pool().stats().allocations;
        assert_eq!(allocations(), parts * columns, "{tier}, {limit_bytes}");
        let reply = prove(&engine, &SquaresJob::new(6000, 2, 3)).expect("a good job");
        assert_eq!(reply.tier == "resident", is_planned, "{tier}");
        assert_eq!(allocations(), parts * columns, "{tier}, {limit_bytes}");
    }
}

/// Keys that must be in memory and have no room together take turns, and keep nothing cold.
#[test]
fn keys_without_room_together_are_planned_by_the_largest() {
    let mut house = House::new(&[20, 50]);
    house.config.tuning.key_tier = KeyTier::Resident;
    let [small, large] = [20, 50].map(|rounds| house.key(rounds).resident_bytes());
    let columns = house.column_lens(20).into_iter().sum::<usize>() as u64;
    let part = columns + house.part_bytes(50, cuzk_gpu::KeyTier::Resident);
    let circuits = [20, 50].map(|rounds| Squares { rounds });
    for (limit_bytes, points) in [(part + small + large, small + large), (part + large, large)] {
        let engine = house.engine(limit_bytes);
        let plan = engine.warm(&[&circuits[0], &circuits[1]]).expect("room");
        let told = plan.to_string().replace(',', "");
        let line = told
            .lines()
            .find(|line| line.contains("keys"))
            .expect("a line");
        assert!(line.contains(&points.to_string()), "{plan}");
        for rounds in [20, 50, 20] {
            let reply = prove(&engine, &SquaresJob::new(rounds, 2, 1)).expect("a good job");
            assert_eq!(reply.tier, "resident");
        }
    }
}

/// Points that may be in memory take their share and no more, and give way to each other.
#[test]
fn points_that_may_be_in_memory_have_a_share() {
    let mut house = House::new(&[6000, 7000]);
    house.config.tuning.key_tier = KeyTier::Auto;
    house.config.parts_in_flight_max = Some(1);
    let [small, large] = [6000, 7000].map(|rounds| house.key(rounds).resident_bytes());
    let held = |engine: &Engine| {
        let usage = engine.budget().usage();
        usage.held_by(cuzk_budget::Consumer("keys"))
    };
    for (share, sequence) in [
        (
            small + large,
            [(6000, small), (7000, small + large), (6000, small + large)],
        ),
        (
            small + large - 1,
            [(6000, small), (7000, large), (6000, small)],
        ),
        (large - 1, [(6000, small), (7000, small), (6000, small)]),
    ] {
        let engine = house.engine(4 * share + 3);
        for (rounds, want) in sequence {
            let reply = prove(&engine, &SquaresJob::new(rounds, 2, 2)).expect("a good job");
            let is_resident = rounds == 6000 || share >= large;
            assert_eq!(reply.tier == "resident", is_resident, "{share}: {rounds}");
            assert_eq!(held(&engine), want, "{share}: {rounds}");
        }
        // Before a job nothing is given up for points.
        engine
            .preload(&Squares { rounds: 7000 })
            .expect("a good key");
        assert_eq!(
            held(&engine),
            if share == small + large { share } else { small }
        );
    }
}

/// Two keys of which only one has room at a time have the room of both in no plan, and no
/// more than that of their share.
#[test]
fn a_plan_has_the_share_of_points_whichever_is_there() {
    let mut house = House::new(&[6000, 7000]);
    house.config.tuning.key_tier = KeyTier::Auto;
    let large = house.key(7000).resident_bytes();
    let circuits = [6000, 7000].map(|rounds| Squares { rounds });
    let engine = house.engine(6 * large);
    let share = engine.budget().limit_bytes() / 4;
    for (circuits, want) in [
        (vec![&circuits[0]], house.key(6000).resident_bytes()),
        (vec![&circuits[1], &circuits[1]], large),
        (
            vec![&circuits[0], &circuits[1]],
            house.key(6000).resident_bytes() + large,
        ),
    ] {
        let circuits: Vec<_> = circuits.into_iter().map(|circuit| circuit as _).collect();
        let plan = engine.warm(&circuits).expect("room").to_string();
        let plan = plan.replace(',', "");
        let line = plan
            .lines()
            .find(|line| line.contains("keys"))
            .expect("a line");
        assert!(line.contains(&want.min(share).to_string()), "{line}");
    }
}

/// A part that finds the points there waits for memory, and does not decode them anew.
#[test]
fn a_part_that_waits_takes_the_points_that_are_there() {
    let mut house = House::new(&[20]);
    house.config.tuning.key_tier = KeyTier::Auto;
    house.config.tuning.dispatch = Dispatch::Burst;
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(PLENTY, backend.clone());
    let submit = || {
        let job = Arc::new(SquaresJob::new(20, 2, 1));
        engine.submit(job, seeded()).expect("there is a place")
    };
    let first = submit();
    until(|| backend.seen() == 1);
    let usage = engine.budget().usage();
    let part = house.part_bytes(20, cuzk_gpu::KeyTier::Resident);
    let rest = usage.free_bytes() + usage.idle_bytes - part + 1;
    let rest = engine
        .budget()
        .try_reserve(cuzk_budget::Consumer("test"), rest);
    let rest = rest.expect("it is free");
    let second = submit();
    until(|| engine.budget().usage().waiters == 1);
    drop(rest);
    for _ in 0..2 {
        permit.send(()).expect("the backend waits");
    }
    for job in [first, second] {
        assert_eq!(job.wait().expect("a good job").tier, "resident");
    }
    assert_eq!(engine.metrics().tiers_lowered.count(), 0);
}
