//! Keys in memory: which one goes first, and who waits for one.

use std::sync::Arc;

use cuzk_budget::{Budget, Consumer};
use cuzk_core::config::KeyTier;
use cuzk_core::{CircuitSpec, KeyStore};
use cuzk_gpu::KeyTier as Tier;

use crate::gate::{At, Gated};
use crate::toy::{House, Squares, SquaresJob};
use crate::{PLENTY, prove, seeded, until};

fn is_resident(store: &KeyStore, rounds: usize) -> bool {
    let id = Squares { rounds }.id();
    let held = store.held();
    let key = held.into_iter().find(|(circuit, _)| *circuit == id);
    key.expect("it is loaded").1.is_resident
}

/// Three keys are idle. Bytes are asked for that any one of them would give: the one goes
/// whose last use is the longest ago, not the largest.
#[test]
fn the_key_goes_first_whose_last_use_is_the_longest_ago() {
    let mut house = House::new(&[20, 40, 90]);
    house.config.tuning.key_tier = KeyTier::Resident;
    let rounds = [20, 40, 90];
    for oldest in rounds {
        let engine = house.engine(PLENTY);
        let others = rounds.into_iter().filter(|rounds| *rounds != oldest);
        for rounds in [oldest].into_iter().chain(others) {
            prove(&engine, &SquaresJob::new(rounds, 2, 1)).expect("a good job");
        }
        // Columns are idle too: without them keys alone are.
        engine.memory().heap_pool().trim(u64::MAX);
        let usage = engine.budget().usage();
        let free = usage.limit_bytes - usage.used_bytes;
        let taken = engine.budget().try_reserve(Consumer("test"), free + 1);
        taken.expect("a key makes room");
        for rounds in rounds {
            let is_left = is_resident(engine.keys(), rounds);
            assert_eq!(
                is_left,
                rounds != oldest,
                "{rounds} with {oldest} the oldest"
            );
        }
    }
}

/// A key that is being loaded keeps nobody waiting but the jobs of its circuit.
#[test]
fn loading_a_key_does_not_keep_jobs_of_other_circuits() {
    let house = House::new(&[20, 21]);
    let engine = house.engine(PLENTY);
    let (job, gate) = Gated::new(SquaresJob::new(20, 2, 1), At::Key);
    let loads = engine.submit(job, seeded()).expect("there is a place");
    until(|| gate.came() == 1);
    let same = engine.submit(Arc::new(SquaresJob::new(20, 3, 1)), seeded());
    for _ in 0..3 {
        prove(&engine, &SquaresJob::new(21, 2, 2)).expect("its key is there");
    }
    assert_eq!(engine.keys().held().len(), 1, "the other one is not there");
    gate.open();
    loads.wait().expect("a good job");
    same.expect("there is a place").wait().expect("a good job");
}

/// Two circuits under a budget that holds one key: four submitters, 50 rounds each, and
/// one thread for arithmetic.
#[test]
fn two_keys_with_room_for_one_take_turns() {
    for tier in [KeyTier::Resident, KeyTier::Auto] {
        take_turns(tier);
    }
}

/// Two hundred jobs, four at once.
fn take_turns(tier: KeyTier) {
    let mut house = House::new(&[20, 24]);
    house.config.tuning.key_tier = tier;
    house.config.threads = 1;
    // One key and one part: never two keys, nor two parts beside a key. A job that held its
    // key while it waits would wait for ever.
    let key_bytes = house.key(24).resident_bytes();
    let engine = house.engine(key_bytes + house.part_bytes(24, Tier::Resident));
    std::thread::scope(|scope| {
        for submitter in 0..4 {
            let engine = &engine;
            scope.spawn(move || {
                for round in 0..50 {
                    let rounds = [20, 24][(submitter + round) % 2];
                    let reply = prove(engine, &SquaresJob::new(rounds, 2, 2));
                    let reply = reply.expect("the other key makes room");
                    assert!(tier == KeyTier::Auto || reply.tier == "resident");
                }
            });
        }
    });
    assert_eq!(engine.metrics().jobs_completed.count(), 200);
    let usage = engine.budget().usage();
    assert_eq!(usage.used_bytes, usage.idle_bytes);
}

/// A key in use is no memory that others can have.
#[test]
fn a_key_in_use_stays() {
    let mut house = House::new(&[20]);
    house.config.tuning.key_tier = KeyTier::Resident;
    let (backend, permit) = crate::backends::Faulty::held();
    let engine = house.engine_on(PLENTY, backend.clone());
    let job = Arc::new(SquaresJob::new(20, 2, 1));
    let handle = engine.submit(job, seeded()).expect("there is a place");
    until(|| backend.seen() == 1);
    let budget: &Budget = engine.budget();
    let all = budget.try_reserve(Consumer("test"), budget.limit_bytes());
    all.expect_err("a key is in use");
    assert!(is_resident(engine.keys(), 20));
    permit.send(()).expect("the backend waits");
    handle.wait().expect("a good job");
    let all = budget.try_reserve(Consumer("test"), budget.limit_bytes());
    drop(all.expect("all that is held is idle"));
    assert!(!is_resident(engine.keys(), 20));
}
