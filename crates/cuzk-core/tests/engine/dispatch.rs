//! When parts start: as a device will have a place for them, or all at once.

use std::sync::Arc;

use cuzk_core::Engine;
use cuzk_core::config::{Dispatch, KeyTier};

use crate::backends::Faulty;
use crate::toy::{House, SquaresJob};
use crate::{PLENTY, seeded, until};

const PARTS: usize = 12;

fn synthesised(engine: &Engine) -> usize {
    engine.metrics().syntheses_whole.count() as usize
}

/// Of a job of many parts no more are synthesised than the device will soon have a place
/// for: one waits for it, and one is synthesised meanwhile.
#[test]
fn parts_start_as_the_device_takes_them() {
    let mut house = House::new(&[20]);
    house.config.threads = 1;
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(PLENTY, backend.clone());
    let job = Arc::new(SquaresJob::new(20, 2, PARTS));
    let handle = engine.submit(job, seeded()).expect("there is a place");
    for taken in 1..=PARTS {
        until(|| backend.seen() == taken);
        let parts = synthesised(&engine);
        assert!(parts <= taken + 2, "{parts} at the device's part {taken}");
        permit.send(()).expect("the backend waits");
    }
    handle.wait().expect("a good job");
    assert_eq!(synthesised(&engine), PARTS);
}

/// In a burst all of them are, while the device has the first.
#[test]
fn all_parts_start_at_once_in_a_burst() {
    let mut house = House::new(&[20]);
    house.config.threads = 1;
    house.config.tuning.dispatch = Dispatch::Burst;
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(PLENTY, backend.clone());
    let job = Arc::new(SquaresJob::new(20, 2, PARTS));
    let handle = engine.submit(job, seeded()).expect("there is a place");
    until(|| synthesised(&engine) == PARTS);
    assert!(backend.seen() <= 1);
    for _ in 0..PARTS {
        permit.send(()).expect("the backend waits");
    }
    handle.wait().expect("a good job");
}

/// Numbers that are given hold for both.
#[test]
fn a_given_number_of_parts_in_flight_is_kept() {
    for dispatch in [Dispatch::Reactive, Dispatch::Burst] {
        let mut house = House::new(&[20]);
        house.config.tuning.dispatch = dispatch;
        house.config.parts_in_flight_max = Some(2);
        let (backend, permit) = Faulty::held();
        let engine = house.engine_on(PLENTY, backend.clone());
        let job = Arc::new(SquaresJob::new(20, 2, PARTS));
        let handle = engine.submit(job, seeded()).expect("there is a place");
        for taken in 1..=PARTS {
            until(|| backend.seen() == taken);
            assert!(synthesised(&engine) <= taken + 1, "{dispatch}");
            permit.send(()).expect("the backend waits");
        }
        handle.wait().expect("a good job");
    }
}

/// A job that is given up keeps what the device has of it, and nothing else.
#[test]
fn an_ending_job_gives_back_what_nobody_works_on() {
    let mut house = House::new(&[20]);
    house.config.threads = 1;
    house.config.tuning.dispatch = Dispatch::Burst;
    // What parts share does not come back with one of them.
    house.config.tuning.key_tier = KeyTier::File;
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(PLENTY, backend.clone());
    let used = || {
        let usage = engine.budget().usage();
        usage.used_bytes - usage.idle_bytes
    };
    let given_up = engine.submit(Arc::new(SquaresJob::new(20, 2, PARTS)), seeded());
    let given_up = given_up.expect("there is a place");
    until(|| synthesised(&engine) == PARTS && backend.seen() == 1);
    let of_all = used();
    given_up.cancel();
    until(|| used() <= of_all / PARTS as u64);
    // Another may start beside it.
    let other = engine.submit(Arc::new(SquaresJob::new(20, 2, 1)), seeded());
    let other = other.expect("there is a place");
    until(|| synthesised(&engine) == PARTS + 1);
    for _ in 0..2 {
        permit.send(()).expect("the backend waits");
    }
    other.wait().expect("a good job");
    assert!(given_up.wait().is_err());
}
