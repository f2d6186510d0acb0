//! What waits for long is told: parts for memory, and the end of an engine for stages.

use std::sync::Arc;
use std::time::Duration;

use cuzk_budget::{Consumer, Priority, Wait};
use cuzk_core::{Engine, ProveError};
use cuzk_gpu::KeyTier;

use crate::backends::Faulty;
use crate::gate::{At, Gated};
use crate::toy::{House, SquaresJob};
use crate::{PLENTY, logged, seeded, until};

const AT_ONCE: Option<Duration> = Some(Duration::from_millis(1));

fn stages_that_wait(engine: &Engine) -> Vec<&'static str> {
    let waits = engine.memory_waits().into_iter();
    waits.map(|wait| wait.stage).collect()
}

#[test]
fn a_part_that_waits_for_memory_is_told_with_who_holds_it() {
    logged::start();
    // Rounds that no other test has: their label tells the lines apart.
    let rounds = 23;
    let mut house = House::new(&[rounds]);
    house.config.watchdog.told_after = AT_ONCE;
    house.config.tuning.key_tier = cuzk_core::config::KeyTier::File;
    let part_bytes = house.part_bytes(rounds, KeyTier::File);
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(part_bytes, backend.clone());
    let job = SquaresJob::new(rounds, 2, 2);
    let handle = engine.submit(Arc::new(job), seeded());
    let handle = handle.expect("there is a place");
    until(|| !logged::lines(&["waits for memory", "squares from 2", "part=1"]).is_empty());
    let line = logged::lines(&["waits for memory", "part=1"]).remove(0);
    let told = format!(
        "`reserve` asked {} of memory",
        cuzk_core::ByteCount(part_bytes)
    );
    assert!(line.contains(&told), "{line} does not say {told}");
    assert!(line.contains("held by `parts`"), "{line}");
    let waits = engine.memory_waits();
    assert_eq!(waits.len(), 1);
    assert_eq!((waits[0].part, waits[0].asked_bytes), (1, part_bytes));
    for _ in 0..2 {
        permit.send(()).expect("the backend waits");
    }
    handle.wait().expect("a good job");
    assert_eq!(engine.memory_waits(), []);
}

/// Whoever looks why a proof does not verify waits for memory too.
#[test]
fn an_explanation_that_waits_for_memory_is_told() {
    logged::start();
    let rounds = 24;
    let mut house = House::new(&[rounds]);
    house.config.watchdog.told_after = AT_ONCE;
    let (backend, permit) = Faulty::held_corrupting(1);
    let engine = house.engine_on(PLENTY, backend.clone());
    let job = Arc::new(SquaresJob::new(rounds, 2, 1));
    let handle = engine.submit(job, seeded()).expect("there is a place");
    until(|| backend.seen() == 1);
    std::thread::scope(|scope| {
        let all = scope.spawn(|| {
            let first = Wait::with_priority(Priority::HIGHEST);
            let held = engine.budget().reserve(Consumer("test"), PLENTY, &first);
            held.expect("it is all there is")
        });
        until(|| engine.budget().usage().waiters == 1);
        permit.send(()).expect("the backend waits");
        let all = all.join().expect("no panic");
        until(|| stages_that_wait(&engine) == ["explain"]);
        until(|| !logged::lines(&["waits for memory", "`explain` asked"]).is_empty());
        drop(all);
    });
    permit.send(()).expect("the backend waits");
    assert_eq!(handle.wait().expect("the second is good").retries(), 1);
}

#[test]
fn an_engine_that_cannot_end_says_which_stage_it_waits_for() {
    logged::start();
    let mut house = House::new(&[25, 26]);
    house.config.watchdog.told_after = AT_ONCE;
    let engine = house.engine(PLENTY);
    let (synthesis, at_synthesis) = Gated::new(SquaresJob::new(25, 2, 1), At::Synthesis);
    let (key, at_key) = Gated::new(SquaresJob::new(26, 2, 1), At::Key);
    let handles = [synthesis, key].map(|job| engine.submit(job, seeded()).expect("a place"));
    until(|| at_synthesis.came() == 1 && at_key.came() == 1);
    std::thread::scope(|scope| {
        let ends = scope.spawn(|| drop(engine));
        let told = |stage| !logged::lines(&["the engine ends when", stage]).is_empty();
        until(|| told("stage=\"synthesis\"") && told("stage=\"key\""));
        assert!(!ends.is_finished());
        at_synthesis.open();
        at_key.open();
    });
    for handle in handles {
        let error = handle.wait().expect_err("its engine ended");
        assert!(matches!(error, ProveError::Cancelled), "{error}");
    }
}
