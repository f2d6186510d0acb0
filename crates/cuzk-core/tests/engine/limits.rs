//! Memory and hints: what fits, what waits, and hints that are wrong.

use std::sync::Arc;

use cuzk_budget::BudgetError;
use cuzk_core::config::KeyTier;
use cuzk_core::{CircuitSpec, ProveError};
use cuzk_gpu::KeyTier as Tier;
use cuzk_synth::{Hint, HintStore, Sizes, count};

use crate::backends::Faulty;
use crate::toy::{House, Squares, SquaresJob};
use crate::{PLENTY, prove, seeded, until};

#[test]
fn a_job_that_can_never_fit_is_refused_at_once() {
    let house = House::new(&[20]);
    let engine = house.engine(1000);
    let want = house.part_bytes(20, Tier::File);
    match prove(&engine, &SquaresJob::new(20, 2, 1)) {
        Err(ProveError::Memory {
            what: "a part",
            source:
                BudgetError::TooLarge {
                    asked_bytes,
                    limit_bytes: 1000,
                    ..
                },
        }) => assert_eq!(asked_bytes, want),
        other => panic!("{other:?}"),
    }
    assert_eq!(engine.budget().usage().used_bytes, 0);
}

#[test]
fn columns_whose_bytes_overflow_are_refused_at_once() {
    let house = House::new(&[20]);
    // Scalars of 32 bytes: a column, or the sum of them, is more than 64 bits count.
    for rows in [
        usize::MAX,
        usize::MAX / 32 + 1,
        usize::MAX / 32,
        usize::MAX / 64,
    ] {
        let engine = house.engine_on(u64::MAX, Arc::new(Faulty::greedy(rows)));
        let error = prove(&engine, &SquaresJob::new(20, 2, 1));
        let error = error.expect_err("there is no such memory");
        assert!(
            matches!(
                error,
                ProveError::Memory { .. } | ProveError::Allocation { .. }
            ),
            "{rows}: {error}"
        );
        assert!(engine.check(&Squares { rounds: 20 }).is_err());
        assert!(engine.warm(&[&Squares { rounds: 20 }]).is_err());
        assert_eq!(engine.budget().usage().used_bytes, 0);
    }
}

#[test]
fn a_key_without_room_stays_in_its_file_if_it_may() {
    let mut house = House::new(&[20]);
    let job = SquaresJob::new(20, 2, 1);
    let with_key = house.part_bytes(20, Tier::Resident) + house.key(20).resident_bytes();
    // A byte less than a part and its key take, and enough for the part alone.
    let limit_bytes = with_key - 1;
    assert!(house.part_bytes(20, Tier::File) <= limit_bytes);
    house.config.tuning.key_tier = KeyTier::Resident;
    match prove(&house.engine(limit_bytes), &job) {
        Err(ProveError::Memory {
            what: "a part and its key",
            source: BudgetError::TooLarge { asked_bytes, .. },
        }) => assert_eq!(asked_bytes, with_key),
        other => panic!("{other:?}"),
    }
    house.config.tuning.key_tier = KeyTier::Auto;
    let engine = house.engine(limit_bytes);
    assert_eq!(
        prove(&engine, &job).expect("the part has room").tier,
        "file"
    );
    assert_eq!(engine.metrics().tiers_lowered.count(), 1);
    let engine = house.engine(with_key);
    assert_eq!(
        prove(&engine, &job).expect("both have room").tier,
        "resident"
    );
    assert_eq!(engine.metrics().tiers_lowered.count(), 0);
}

#[test]
fn who_waits_for_a_key_that_becomes_idle_is_woken() {
    let mut house = House::new(&[2000]);
    house.config.tuning.key_tier = KeyTier::Resident;
    let (backend, permit) = Faulty::held();
    let key_bytes = house.key(2000).resident_bytes();
    let engine = house.engine_on(
        key_bytes + house.part_bytes(2000, Tier::Resident),
        backend.clone(),
    );
    let job = Arc::new(SquaresJob::new(2000, 2, 1));
    let handle = engine.submit(job, seeded()).expect("there is a place");
    until(|| backend.seen() == 1);
    // The columns come back before the proof is there; the key is still in use.
    let waiting = {
        let budget = engine.budget().clone();
        std::thread::spawn(move || {
            let wait = cuzk_budget::Wait::with_priority(cuzk_budget::Priority::NORMAL);
            budget
                .reserve(cuzk_budget::Consumer("test"), budget.limit_bytes(), &wait)
                .map(drop)
        })
    };
    until(|| engine.budget().usage().waiters == 1);
    permit.send(()).expect("the backend waits");
    handle.wait().expect("a good job");
    waiting
        .join()
        .expect("no panic")
        .expect("all of the memory, in the end");
}

#[test]
fn a_cancelled_job_does_not_wait_for_memory() {
    let house = House::new(&[20]);
    let (backend, permit) = Faulty::held();
    let part_bytes = house.part_bytes(20, Tier::File);
    let engine = house.engine_on(part_bytes + part_bytes / 2, backend.clone());
    let submit = |first| {
        let job = Arc::new(SquaresJob::new(20, first, 1));
        engine.submit(job, seeded()).expect("there is a place")
    };
    let holds = submit(2);
    until(|| backend.seen() == 1);
    let waits = submit(3);
    until(|| engine.budget().usage().waiters == 1);
    waits.cancel();
    // The first still holds the memory.
    assert!(matches!(waits.wait(), Err(ProveError::Cancelled)));
    assert_eq!(engine.budget().usage().waiters, 0);
    assert_eq!(engine.metrics().jobs_cancelled.count(), 1);
    permit.send(()).expect("the backend waits");
    holds.wait().expect("a good job");
}

/// Proves with a hint and tells how often hints were too small.
fn misses(house: &House, backend: Faulty, sizes: Sizes) -> u64 {
    let job = SquaresJob::new(20, 2, 1);
    let hint = Hint {
        sizes,
        densities: String::new(),
    };
    let mut hints = HintStore::in_memory();
    let id = job.circuit.id();
    assert!(hints.keep(id.as_str(), hint), "it is the first");
    let engine = house.engine_with(PLENTY, Arc::new(backend), hints);
    // Twice: the second run has what the first has learned.
    for _ in 0..2 {
        let reply = prove(&engine, &job).expect("a wrong hint is no error");
        assert_eq!(reply.parts[0].retries, 0);
    }
    assert_eq!(engine.shapes().sizes(&id), Some(true_sizes()));
    engine.metrics().hint_misses.count()
}

fn true_sizes() -> Sizes {
    let circuit = Squares { rounds: 20 };
    count(|pass| circuit.synthesize_blank(pass))
        .expect("a good circuit")
        .sizes
}

#[test]
fn a_hint_that_is_too_small_is_one_more_synthesis() {
    let house = House::new(&[20]);
    let sizes = true_sizes();
    // In the same domain, so that the key does not contradict it.
    let constraints = sizes.constraints - 1;
    assert_eq!(
        constraints.next_power_of_two(),
        sizes.constraints.next_power_of_two()
    );
    let hint = Sizes {
        constraints,
        ..sizes
    };
    let backend = Faulty::short_below(sizes.constraints);
    assert_eq!(misses(&house, backend, hint), 1);
}

#[test]
fn a_hint_that_the_key_contradicts_is_counted_again() {
    let house = House::new(&[20]);
    let sizes = true_sizes();
    let wrong = [
        Sizes { aux: 5, ..sizes },
        Sizes {
            inputs: usize::MAX,
            ..sizes
        },
        Sizes {
            constraints: usize::MAX,
            ..sizes
        },
        Sizes {
            constraints: 0,
            ..sizes
        },
    ];
    for hint in wrong {
        assert_eq!(misses(&house, Faulty::corrupting(0), hint), 0, "{hint:?}");
    }
}
