//! Every single call of opening a device fails in turn: a typed error, and opening again
//! works. What a process makes once, tables and sppark's streams, is made by its first
//! opening; that one is tried in processes of its own.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::case::Case;
use crate::failures::assert_typed;
use crate::faults::{Fault, failing, unknown_function};
use crate::gpu::{Gpu, proved};
use crate::processes::child;

/// Calls after which a device opens all the same: they clean up, name the device, or
/// restore which one is current.
const UNHEARD: [&str; 9] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cudaGetDevice",
    "cudaSetDevice",
];

/// Set for a process that is to fail a call of its first opening: the call's number, or
/// zero for one that counts the calls of its first and its second opening.
const FIRST: &str = "CUZK_TEST_FIRST_OPENING";

/// Opens a device while call number `at` fails, and again. The name of the call, unless
/// there are fewer.
fn open_twice(gpu: &Gpu, at: u64, fault: Fault, case: &Case, expected: &[u8]) -> Option<String> {
    let buffers = gpu.buffers();
    let (opened, counted) = failing(at, fault, || gpu.open_with(buffers));
    let name = counted.failed.unwrap_or("none");
    let place = format!("{fault:?} at call {at} of opening, {name}");
    match opened {
        Err(error) => assert_typed(&error, &place),
        Ok(backend) => {
            assert!(
                counted.failed.is_none() || UNHEARD.contains(&name),
                "{place}: it opened all the same"
            );
            assert!(
                proved(&backend, case.job()) == expected,
                "{place}: wrong bytes"
            );
        }
    }
    let backend = gpu.open();
    assert!(
        proved(&backend, case.job()) == expected,
        "{place}: wrong bytes afterwards"
    );
    counted.failed.map(str::to_owned)
}

#[test]
fn gpu_any_call_of_opening_may_fail() {
    let Some(gpu) = Gpu::find() else { return };
    let case = Case::new(5, 8);
    let expected = case.on_cpu();
    drop(gpu.open());
    for fault in [Fault::Once, Fault::Sticky] {
        let begin = Instant::now();
        let calls = (1..)
            .take_while(|&at| open_twice(&gpu, at, fault, &case, &expected).is_some())
            .count();
        let elapsed = begin.elapsed();
        println!("opening again, {fault:?}: {calls} calls in {elapsed:.1?}");
        assert!(calls > 8, "opening makes calls");
    }
    assert_eq!(unknown_function(), None, "a function that nothing fails");
}

/// The name of the test below.
const NAME: &str = "opening::gpu_any_call_of_a_first_opening_may_fail";
/// Processes at a time: each takes a second, most of it the driver's.
const PROCESSES: usize = 6;
/// Calls that a first opening makes before those that only it makes, at the most.
const BEFORE: u64 = 40;

#[test]
fn gpu_any_call_of_a_first_opening_may_fail() {
    let Some(gpu) = Gpu::find() else { return };
    match std::env::var(FIRST).ok().and_then(|at| at.parse().ok()) {
        Some(0) => {
            let calls = [(); 2].map(|()| {
                let buffers = gpu.buffers();
                let (opened, counted) = failing(0, Fault::Once, || gpu.open_with(buffers));
                drop(opened.expect("a device that works"));
                counted.calls
            });
            println!("\nanswer: {}", calls[0] - calls[1]);
        }
        Some(at) => {
            let case = Case::new(5, 8);
            let name = open_twice(&gpu, at, Fault::Once, &case, &case.on_cpu());
            println!("\nanswer: {}", name.as_deref().unwrap_or("nothing"));
        }
        None => fail_first_openings(),
    }
}

fn fail_first_openings() {
    let more = answer_of_process(0).parse::<u64>();
    let more = more.expect("how many calls only a first opening makes");
    assert!(more > 20, "a first opening makes the tables");
    let (next, last) = (AtomicU64::new(1), more + BEFORE);
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at > last {
                        return;
                    }
                    println!("call {at}: {}", answer_of_process(at));
                }
            });
        }
    });
    println!("a first opening: {more} calls beside those of a later one, {last} failed");
}

/// Runs a process that fails a call of its first opening, and gives its answer.
fn answer_of_process(at: u64) -> String {
    let mut command: Command = child(NAME);
    let output = command.env(FIRST, at.to_string()).output();
    let output = output.expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "call {at}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let line = text.lines().find_map(|line| line.strip_prefix("answer: "));
    line.expect("a process that opened twice").to_owned()
}
