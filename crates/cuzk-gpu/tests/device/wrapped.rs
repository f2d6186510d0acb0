//! The list of calls that can be made to fail, against the archive of device code. It
//! needs no device.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What the archive calls and no test fails: what runs before `main` and after it, and
/// words for errors.
const LEFT_ALONE: [&str; 6] = [
    "__cudaRegisterFatBinary",
    "__cudaRegisterFatBinaryEnd",
    "__cudaRegisterFunction",
    "__cudaRegisterVar",
    "__cudaUnregisterFatBinary",
    "cudaGetErrorString",
];

/// A call that is missing would never fail in a test; one too many hides a change.
#[test]
fn every_cuda_call_of_the_archive_can_be_failed() {
    let Some(archive) = option_env!("CUZK_CUDA_ARCHIVE") else {
        println!("skipped: this build has no device code");
        return;
    };
    if !Path::new(archive).exists() {
        println!("skipped: {archive} is on the machine that built this program");
        return;
    }
    let output = Command::new("nm").args(["-u", archive]).output();
    let output = output.expect("nm, which comes with a linker");
    assert!(
        output.status.success(),
        "nm -u {archive}: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).expect("names of functions are ASCII");
    let called: BTreeSet<&str> = text
        .split_whitespace()
        .filter(|word| word.trim_start_matches('_').starts_with("cuda"))
        .filter(|word| !LEFT_ALONE.contains(word))
        .collect();
    let failed: BTreeSet<&str> = option_env!("CUZK_CUDA_WRAPPED")
        .unwrap_or_default()
        .split(' ')
        .collect();
    assert_eq!(called, failed, "build/faults.rs and cuda/tests/faults.cpp");
}
