//! Key files that are replaced or written to: the next job has the new key, and no job has
//! some of each.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cuzk_budget::Consumer;
use cuzk_core::config::KeyTier;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate, sidecar_path};
use cuzk_core::{CircuitSpec, Engine, ProveError};
use cuzk_gpu::{BackendError, KeyError};

use crate::backends::Faulty;
use crate::toy::{House, Squares, SquaresJob};
use crate::{PLENTY, prove, seeded, until};

const ROUNDS: usize = 20;

/// How a key file becomes another one of the same circuit, as long as before.
#[derive(Clone, Copy, Debug)]
enum Change {
    InPlace,
    ByRename,
}

/// The bytes of the circuit's key from another seed.
fn other_key() -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = KeyOutput {
        directory: directory.path(),
        refused: &[],
        seed: 8,
    };
    let circuit = Squares { rounds: ROUNDS };
    let waste = ToxicWaste::from_seed(8);
    generate(&circuit, &waste, &output, &|_, _, _| {}).expect("a key for a small circuit");
    fs::read(directory.path().join(circuit.params_file())).expect("it was made")
}

/// A key that was written long ago: no later write has the same time.
fn aged_house() -> House {
    let house = House::new(&[ROUNDS]);
    let file = OpenOptions::new().write(true).open(house.params(ROUNDS));
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let aged = file.and_then(|file| file.set_modified(long_ago));
    aged.expect("a file of this test");
    house
}

fn change(path: &Path, change: Change, bytes: &[u8]) {
    let before = fs::metadata(path).expect("it is there").len();
    match change {
        Change::InPlace => {
            let file = OpenOptions::new().write(true).open(path);
            let written = file.and_then(|file| file.write_all_at(bytes, 0));
            written.expect("a file of this test");
        }
        Change::ByRename => {
            let next = path.with_extension("next");
            let written = fs::write(&next, bytes).and_then(|()| fs::rename(&next, path));
            written.expect("a directory of this test");
        }
    }
    let after = fs::metadata(path).expect("it is there").len();
    assert_eq!(after, before, "the keys are as long");
}

fn proof(engine: &Engine) -> Vec<u8> {
    let reply = prove(engine, &SquaresJob::new(ROUNDS, 2, 1));
    reply.expect("a good job").proof
}

#[test]
fn the_next_job_has_the_key_that_is_there() {
    let other = other_key();
    for way in [Change::InPlace, Change::ByRename] {
        for tier in [KeyTier::File, KeyTier::Resident, KeyTier::Auto] {
            let mut house = aged_house();
            house.config.tuning.key_tier = tier;
            let engine = house.engine(PLENTY);
            let id = Squares { rounds: ROUNDS }.id();
            let first = proof(&engine);
            assert_eq!(first, proof(&engine));
            assert!(engine.keys().is_loaded(&id));
            change(&house.params(ROUNDS), way, &other);
            assert!(!engine.keys().is_loaded(&id));
            let second = proof(&engine);
            assert_ne!(first, second, "{way:?}, {tier:?}");
            assert_eq!(second, proof(&house.engine(PLENTY)), "{way:?}, {tier:?}");
            assert!(engine.keys().is_loaded(&id));
            // One key is held, and counted once.
            let [(_, held)] = engine.keys().held()[..] else {
                panic!("one circuit");
            };
            engine.memory().heap_pool().trim(u64::MAX);
            let resident = if held.is_resident { held.bytes } else { 0 };
            assert_eq!(engine.budget().usage().used_bytes, resident);
        }
    }
}

/// Whether a key that is known by its counts alone is the one that is there.
#[test]
fn a_check_reads_the_file_that_is_there() {
    let house = aged_house();
    let engine = house.engine(PLENTY);
    let circuit = Squares { rounds: ROUNDS };
    engine.preload(&circuit).expect("a good key");
    engine.check(&circuit).expect("a good key");
    fs::write(house.params(ROUNDS), b"<html>not found</html>\n").expect("writable");
    for error in [engine.check(&circuit).map(drop), engine.preload(&circuit)] {
        let error = error.expect_err("no key");
        let is_text = matches!(&error, ProveError::Key(KeyError::Text { .. }));
        assert!(is_text, "{error}");
    }
    // A directory without the file does not take a loaded key away.
    let house = aged_house();
    let engine = house.engine(PLENTY);
    let first = proof(&engine);
    fs::remove_file(house.params(ROUNDS)).expect("it is there");
    assert_eq!(first, proof(&engine));
}

#[test]
fn a_key_that_is_replaced_by_one_that_is_not_allowed_is_refused() {
    let mut house = aged_house();
    let sidecar = sidecar_path(&house.params(ROUNDS));
    let text = fs::read(&sidecar).expect("a generated key has one");
    fs::remove_file(&sidecar).expect("it is there");
    house.config.allow_test_params = false;
    let engine = house.engine(PLENTY);
    proof(&engine);
    fs::write(&sidecar, text).expect("writable");
    change(&house.params(ROUNDS), Change::ByRename, &other_key());
    let error = prove(&engine, &SquaresJob::new(ROUNDS, 2, 1)).expect_err("not allowed");
    assert!(matches!(error, ProveError::TestKey { .. }), "{error}");
}

/// A job whose key is in memory goes on with it, and that stays counted until it has ended.
#[test]
fn a_key_in_use_stays_what_it_was_loaded_as() {
    let other = other_key();
    for way in [Change::InPlace, Change::ByRename] {
        let mut house = aged_house();
        house.config.tuning.key_tier = KeyTier::Resident;
        let before = proof(&house.engine(PLENTY));
        let (backend, permit) = Faulty::held();
        let engine = house.engine_on(PLENTY, backend.clone());
        let submit = || {
            let job = Arc::new(SquaresJob::new(ROUNDS, 2, 2));
            engine.submit(job, seeded()).expect("there is a place")
        };
        let old = submit();
        until(|| backend.seen() == 1);
        change(&house.params(ROUNDS), way, &other);
        let new = submit();
        until(|| engine.keys().is_loaded(&Squares { rounds: ROUNDS }.id()));
        for _ in 0..4 {
            permit.send(()).expect("the backend waits");
        }
        let (old, new) = (old.wait().expect("goes on"), new.wait().expect("has a key"));
        assert_eq!((&*old.tier, &*new.tier), ("resident", "resident"));
        assert_eq!(old.proof[..before.len()], before);
        let after = house.engine(PLENTY);
        assert_eq!(new.proof[..before.len()], proof(&after));
        assert_ne!(old.proof, new.proof);
        let budget = engine.budget();
        let all = budget.try_reserve(Consumer("test"), budget.limit_bytes());
        drop(all.expect("neither key is in use"));
        assert_eq!(budget.usage().used_bytes, 0);
    }
}

/// A key that is read while it is used: the file is named, and nothing is tried again.
#[test]
fn a_file_that_is_written_to_under_a_proof_ends_the_job() {
    let mut house = aged_house();
    house.config.tuning.key_tier = KeyTier::File;
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(PLENTY, backend.clone());
    let job = Arc::new(SquaresJob::new(ROUNDS, 2, 1));
    let handle = engine.submit(job, seeded()).expect("there is a place");
    until(|| backend.seen() == 1);
    change(&house.params(ROUNDS), Change::InPlace, &other_key());
    permit.send(()).expect("the backend waits");
    let error = handle.wait().expect_err("no key has these bytes");
    let ProveError::Backend { source, .. } = &error else {
        panic!("{error}");
    };
    let BackendError::Key(KeyError::Rewritten { path }) = source else {
        panic!("{error}");
    };
    assert_eq!(*path, house.params(ROUNDS));
    assert_eq!(
        (backend.seen(), engine.metrics().parts_retried.count()),
        (1, 0)
    );
    permit.send(()).expect("the backend waits");
    proof(&engine);
}

/// Whoever writes to a file may set the time of that back. The proof does not verify then, and
/// what is told is why.
#[test]
fn a_proof_that_fails_by_a_changed_file_says_so() {
    let mut house = House::new(&[ROUNDS]);
    house.config.tuning.key_tier = KeyTier::File;
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(PLENTY, backend.clone());
    let job = Arc::new(SquaresJob::new(ROUNDS, 2, 1));
    let handle = engine.submit(job, seeded()).expect("there is a place");
    until(|| backend.seen() == 1);
    let (path, other) = (house.params(ROUNDS), other_key());
    let written = fs::metadata(&path).and_then(|metadata| metadata.modified());
    let written = written.expect("it is there");
    let id = Squares { rounds: ROUNDS }.id();
    // The clock of the file system is coarse: written until it has moved on.
    while engine.keys().is_loaded(&id) {
        change(&path, Change::InPlace, &other);
        let file = OpenOptions::new().write(true).open(&path);
        let set_back = file.and_then(|file| file.set_modified(written));
        set_back.expect("a file of this test");
    }
    permit.send(()).expect("the backend waits");
    let error = handle.wait().expect_err("no key has these bytes");
    assert!(
        matches!(&error, ProveError::Key(KeyError::Rewritten { path: named }) if *named == path),
        "{error}"
    );
    assert_eq!(backend.seen(), 1);
    permit.send(()).expect("the backend waits");
    proof(&engine);
}
