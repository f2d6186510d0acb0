//! Every single call of opening a device fails in turn: a typed error, and opening again
//! works. What a process makes once, tables and sppark's streams, is made by its first
//! opening; that one is tried in processes of its own.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Set for a process that is to fail a call of its first opening: the call's number.
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
    for fault in [Fault::Once, Fault::OutOfMemory, Fault::Sticky] {
        let calls = (1..)
            .take_while(|&at| open_twice(&gpu, at, fault, &case, &expected).is_some())
            .count();
        println!("opening again, {fault:?}: {calls} calls");
        assert!(calls > 8, "opening makes calls");
    }
    assert_eq!(unknown_function(), None, "a function that nothing fails");
}

#[test]
fn gpu_any_call_of_a_first_opening_may_fail() {
    const NAME: &str = "opening::gpu_any_call_of_a_first_opening_may_fail";
    /// Processes at a time: each takes a second, most of it the driver's.
    const PROCESSES: usize = 6;
    if let Ok(at) = std::env::var(FIRST) {
        let Some(gpu) = Gpu::find() else { return };
        let case = Case::new(5, 8);
        let at = at.parse().expect("the number of a call");
        match open_twice(&gpu, at, Fault::Once, &case, &case.on_cpu()) {
            Some(name) => println!("\nfailed: {name}"),
            None => println!("\nfailed: nothing"),
        }
        return;
    }
    let Some(_gpu) = Gpu::find() else { return };
    let next = AtomicU64::new(1);
    let last = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at > last.load(Ordering::Relaxed) {
                        return;
                    }
                    match first_opening(NAME, at).as_str() {
                        "nothing" => {
                            last.fetch_min(at, Ordering::Relaxed);
                        }
                        name => println!("call {at}: {name}"),
                    }
                }
            });
        }
    });
    let calls = last.load(Ordering::Relaxed) - 1;
    println!("a first opening: {calls} calls, each failed in a process of its own");
    assert!(calls > 30, "a first opening makes the tables");
}

/// Fails one call of a process's first opening; says which it was.
fn first_opening(test: &str, at: u64) -> String {
    let mut command: Command = child(test);
    let output = command
        .env(FIRST, at.to_string())
        .output()
        .expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "call {at}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let line = text.lines().find_map(|line| line.strip_prefix("failed: "));
    line.expect("a process that opened twice").to_owned()
}
