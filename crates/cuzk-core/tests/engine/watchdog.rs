//! Stages that hang: they are given up, told, and counted until they end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cuzk_core::config::Synthesis;
use cuzk_core::schedule::Priority;
use cuzk_core::{Engine, JobHandle, JobOptions, ProveError};
use cuzk_gpu::Backend;

use crate::backends::Faulty;
use crate::gate::{At, Gate, Gated};
use crate::hooked::Hooked;
use crate::segments::{self, BLOCKS, Chains, chains};
use crate::toy::{House, SquaresJob};
use crate::{PLENTY, prove, seeded, until};

/// Far longer than a stage of these circuits takes.
const LIMIT: Duration = Duration::from_secs(2);

fn is_at_rest(engine: &Engine) -> bool {
    let usage = engine.budget().usage();
    usage.used_bytes == usage.idle_bytes
}

/// Whether it is the error of this stage.
fn is_stalled(error: &ProveError, of: &str, in_part: Option<usize>) -> bool {
    matches!(error, ProveError::Stalled { stage, part, limit }
        if *stage == of && *part == in_part && *limit == LIMIT)
}

#[test]
fn a_synthesis_that_hangs_ends_its_job_alone() {
    let mut house = House::new(&[20]);
    house.config.watchdog.synthesis_max = Some(LIMIT);
    let engine = house.engine(PLENTY);
    let (job, gate) = Gated::new(SquaresJob::new(20, 2, 1), At::Synthesis);
    let handle = engine.submit(job, seeded()).expect("there is a place");
    let error = handle.wait().expect_err("it hangs");
    assert!(is_stalled(&error, "synthesis", Some(0)), "{error}");
    assert_eq!(
        error.to_string(),
        "part 0: synthesis has taken longer than its limit of 2 s and was given up"
    );
    assert_eq!(engine.metrics().stages_given_up.count(), 1);
    assert_eq!((engine.jobs(), gate.came()), (0, 1));
    // It holds what it has until its thread returns.
    assert!(!is_at_rest(&engine));
    prove(&engine, &SquaresJob::new(20, 2, 2)).expect("the next job is fine");
    assert!(!is_at_rest(&engine));
    gate.open();
    until(|| is_at_rest(&engine));
}

#[test]
fn a_key_that_never_comes_ends_the_jobs_that_wait_for_it() {
    let mut house = House::new(&[20, 21]);
    house.config.watchdog.other_max = Some(LIMIT);
    let engine = house.engine(PLENTY);
    let (job, gate) = Gated::new(SquaresJob::new(20, 2, 1), At::Key);
    let handle = engine.submit(job, seeded()).expect("there is a place");
    let error = handle.wait().expect_err("it hangs");
    assert!(is_stalled(&error, "key", None), "{error}");
    prove(&engine, &SquaresJob::new(21, 2, 1)).expect("another key is there");
    gate.open();
    until(|| prove(&engine, &SquaresJob::new(20, 2, 1)).is_ok());
}

#[test]
fn a_device_that_hangs_is_out_of_service_and_its_part_is_proved_elsewhere() {
    let mut house = House::new(&[20]);
    house.config.watchdog.prove_max = Some(LIMIT);
    let (hangs, permit) = Faulty::held();
    let works = Arc::new(Faulty::corrupting(0));
    let backends: Vec<Arc<dyn Backend>> = vec![hangs.clone(), works.clone()];
    let engine = house.engine_on_all(PLENTY, backends);
    let job = SquaresJob::new(20, 2, 1);
    let reply = prove(&engine, &job).expect("the other device proves it");
    assert_eq!(reply.retries(), 1);
    assert_eq!((hangs.seen(), works.seen()), (1, 1));
    assert_eq!(engine.metrics().stages_given_up.count(), 1);
    assert!(engine.is_in_service());
    prove(&engine, &SquaresJob::new(20, 2, 3)).expect("one device is left");
    assert_eq!((hangs.seen(), works.seen()), (1, 4));
    // Its columns are its own until it lets go of them, and its proof is nobody's.
    assert!(!is_at_rest(&engine));
    permit.send(()).expect("the backend waits");
    until(|| is_at_rest(&engine));
    assert_eq!(engine.metrics().jobs_completed.count(), 2);
}

#[test]
fn with_the_last_device_hanging_the_error_says_so() {
    let mut house = House::new(&[20]);
    house.config.watchdog.prove_max = Some(LIMIT);
    let (hangs, _permit) = Faulty::held();
    let engine = house.engine_on(PLENTY, hangs.clone());
    let submit = |parts| {
        let job = Arc::new(SquaresJob::new(20, 2, parts));
        let handle = engine.submit(job, JobOptions::default());
        handle.expect("there is a place")
    };
    let first = submit(1);
    until(|| hangs.seen() == 1);
    // It waits for its turn meanwhile, synthesised.
    let handles = [first, submit(2)];
    let want = "nothing proves any more: faulty: squares from 2: part 0: prove has taken longer \
                than its limit of 2 s and was given up";
    for handle in handles {
        let error = handle.wait().expect_err("nothing proves");
        assert_eq!(error.to_string(), want);
    }
    assert!(!engine.is_in_service());
}

/// The stage without a limit takes longer than the other one's, as that one shows, which
/// begins later.
#[test]
fn nothing_is_given_up_without_a_limit() {
    for (slow, limited) in [
        ("synthesis", At::Key),
        ("key", At::Synthesis),
        ("prove", At::Key),
    ] {
        let mut house = House::new(&[20, 21]);
        let watchdog = &mut house.config.watchdog;
        watchdog.prove_max = None;
        watchdog.synthesis_max = (limited == At::Synthesis).then_some(LIMIT);
        watchdog.other_max = (limited == At::Key).then_some(LIMIT);
        let (device, permit) = Faulty::held();
        let engine = house.engine_on(PLENTY, device.clone());
        let at = match slow {
            "synthesis" => At::Synthesis,
            "key" => At::Key,
            _ => At::Nowhere,
        };
        let (job, gate) = Gated::new(SquaresJob::new(20, 2, 1), at);
        let takes_long = engine.submit(job, seeded()).expect("there is a place");
        until(|| gate.came() > 0 || device.seen() > 0);

        let (job, hangs) = Gated::new(SquaresJob::new(21, 2, 1), limited);
        let handle = engine.submit(job, seeded()).expect("there is a place");
        let error = handle.wait().expect_err("it hangs");
        let is_limited = matches!(error, ProveError::Stalled { limit: LIMIT, .. });
        assert!(is_limited, "{slow}: {error}");
        gate.open();
        permit.send(()).expect("the backend waits");
        takes_long.wait().expect(slow);
        assert_eq!(engine.metrics().stages_given_up.count(), 1, "{slow}");
        hangs.open();
        until(|| is_at_rest(&engine));
    }
}

/// An engine with the rows of a circuit stored, and a job of so many segments, which have all
/// three threads until the gate is opened.
fn threads_that_hang(house: &mut House, segments: usize) -> (Engine, JobHandle, Arc<Gate>) {
    let engine = segments::engine(house, Synthesis::Segments, Path::new(""), true);
    segments::prove(&engine, &chains(None, 1)).expect("a good job");
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let mut job = Hooked::new();
    job.job.segments = segments;
    job.segment = Arc::new(move |_| {
        held.pass();
        Ok(())
    });
    let handle = engine.submit(Arc::new(job), seeded());
    let handle = handle.expect("there is a place");
    until(|| gate.came() == 3);
    (engine, handle, gate)
}

/// Whether segments are left that have not begun, or none are.
#[test]
fn segments_that_hang_keep_no_thread_from_others() {
    for segments in [BLOCKS, BLOCKS / 2] {
        let mut house = segments::house(&[Chains::new(None)]);
        house.config.watchdog.synthesis_max = Some(LIMIT);
        let (engine, handle, gate) = threads_that_hang(&mut house, segments);
        let error = handle.wait().expect_err("it hangs");
        assert!(is_stalled(&error, "synthesis", Some(0)), "{error}");
        let next = segments::prove(&engine, &chains(None, 2)).expect("the next job is fine");
        assert_eq!(next.synthesis(), "segments");
        gate.open();
        until(|| is_at_rest(&engine));
    }
}

#[test]
fn a_job_that_waits_for_threads_is_cancelled_at_once_and_raised() {
    let mut house = segments::house(&[Chains::new(None)]);
    let (engine, hangs, gate) = threads_that_hang(&mut house, BLOCKS);
    let waiting = || {
        let job = Arc::new(chains(None, 1));
        let handle = engine.submit(job, seeded()).expect("there is a place");
        until(|| handle.timeline().has("reserve"));
        handle
    };
    let cancelled = waiting();
    cancelled.cancel();
    let error = cancelled.wait().expect_err("it is given up");
    assert!(matches!(error, ProveError::Cancelled), "{error}");
    let raised = waiting();
    raised.raiser().raise(Priority::High);
    raised.wait().expect("it waits for nobody");
    // Those that hang are given up, and whoever comes has their threads.
    hangs.cancel();
    waiting().wait().expect("there are threads");
    gate.open();
    let error = hangs.wait().expect_err("it is given up");
    assert!(matches!(error, ProveError::Cancelled), "{error}");
    until(|| is_at_rest(&engine));
}
