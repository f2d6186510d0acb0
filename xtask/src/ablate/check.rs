//! The method, tested on this machine: sets of the same setting beside itself, and sets of
//! which one side is slowed by a known share.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::samples::Set;
use super::stats::ratio;

/// A real workload that takes little time.
const WORKLOAD: [&str; 4] = ["synth", "--circuit", "wpost-2k", "--set"];
const SWITCH: &str = "engine.threads=1";
const PAIRS: usize = 48;

/// What of it is compared: its one thread's time, in which others on the machine show less
/// than by the clock.
const METRIC: &str = "processor_ms";

/// Of twenty intervals that hold what is true nineteen times in twenty, so many hold it
/// but for one time in thirteen.
const HELD_OF_TWENTY: usize = 18;

/// By how much the other sets are slowed, and how many there are.
const SLOWED: f64 = 0.03;
const SLOWED_SETS: usize = 5;

/// Measures the sets and prints each; whether the method holds.
pub(super) fn run(program: &Path, kept: &Path, sets: usize) -> anyhow::Result<bool> {
    ensure!(sets > 0, "no sets");
    let mut held = 0;
    for set in 0..sets {
        let found = measured(program, kept, set, None)?;
        let holds = found.low <= 1.0 && 1.0 <= found.high;
        held += usize::from(holds);
        let verdict = if holds { "holds 1" } else { "does not hold 1" };
        println!(
            "{set:>2}: {:.4} [{:.4}, {:.4}] {verdict}",
            found.median, found.low, found.high
        );
    }
    let mut detected = 0;
    for set in 0..SLOWED_SETS {
        let found = measured(program, kept, set, Some(SLOWED))?;
        let is_detected = found.high < 1.0;
        detected += usize::from(is_detected);
        let verdict = if is_detected {
            "detected"
        } else {
            "not detected"
        };
        println!(
            "slowed by {SLOWED}, {set}: {:.4} [{:.4}, {:.4}] {verdict}",
            found.median, found.low, found.high
        );
    }
    println!("{held} of {sets} hold 1, {detected} of {SLOWED_SETS} slowed ones are detected");
    Ok(held * 20 >= HELD_OF_TWENTY * sets && detected == SLOWED_SETS)
}

fn measured(
    program: &Path,
    kept: &Path,
    set: usize,
    slowed: Option<f64>,
) -> anyhow::Result<crate::record::Spread> {
    let path = kept.join(format!(
        "check-{set}{}.jsonl",
        if slowed.is_some() { "-slowed" } else { "" }
    ));
    // What is there is of another day's machine.
    let _ = std::fs::remove_file(&path);
    let mut command = Command::new(program);
    command.arg("compare").args(WORKLOAD).arg(SWITCH);
    command.args([
        "--setting",
        "one",
        "--setting",
        "same",
        "--pairs",
        &PAIRS.to_string(),
    ]);
    if let Some(share) = slowed {
        command.args(["--hook-slow", &format!("same={share}")]);
    }
    command
        .arg("--samples")
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.status().context("cuzk-bench cannot be started")?;
    ensure!(status.success(), "set {set}: {status}");
    let text = std::fs::read_to_string(&path)?;
    let samples = Set::parse(&text)?;
    Ok(ratio(&samples.pairs("same", "one", METRIC)?))
}
