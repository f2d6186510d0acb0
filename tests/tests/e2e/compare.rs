//! `cuzk-bench compare`: samples of every setting, gone on with, and refused where a run
//! does not verify.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Two settings of a small job.
fn compare(here: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
        .args(["compare", "prove", "--circuit", "mixed-8-13"])
        .args(["--setting", "seven: tuning.c_from_ab=false"])
        .args(["--setting", "six: tuning.c_from_ab=true", "--parts", "2"])
        .args(["--warm-up", "0"])
        .args(more)
        .arg("--keys")
        .arg(here)
        .arg("--samples")
        .arg(here.join("samples"))
        .output()
        .expect("the program can be started")
}

/// A name with a slip in it leaves nothing that is in the way of the right one.
#[test]
fn a_circuit_that_there_is_not_leaves_no_samples() {
    let here = TempDir::new().expect("a temporary directory");
    for name in ["mixed-1-13", "mixed-64-13", "mixed-3-13", "mixed-8-1001"] {
        let output = Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
            .args(["compare", "prove", "--circuit", name, "--setting", "one"])
            .arg("--samples")
            .arg(here.path().join("samples"))
            .output()
            .expect("the program can be started");
        assert_eq!(output.status.code(), Some(1));
        let told = errors(&output);
        assert!(told.starts_with(&format!("Error: {name}: ")), "{told}");
        assert!(!here.path().join("samples").exists(), "{name}");
    }
}

fn samples(here: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(here.join("samples")).expect("samples");
    let lines = text.lines().skip(1);
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn settings_are_measured_by_turns_and_a_set_goes_on() {
    let here = TempDir::new().expect("a temporary directory");
    let output = compare(here.path(), &["--pairs", "2"]);
    assert!(output.status.success(), "{}", errors(&output));
    let output = compare(here.path(), &["--pairs", "3"]);
    assert!(output.status.success(), "{}", errors(&output));
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told.trim(), r#"{"of":3,"rounds":3}"#);
    let samples = samples(here.path());
    let order: Vec<&str> = samples
        .iter()
        .map(|sample| sample["setting"].as_str().expect("a name"))
        .collect();
    assert_eq!(order, ["seven", "six", "six", "seven", "six", "seven"]);
    for sample in &samples {
        assert_eq!(sample["verified"], true);
        assert!(
            sample["metrics"]["wall_ms"].as_f64() > Some(0.0),
            "{sample}"
        );
        assert!(
            sample["metrics"]["msm_h_ms"].as_f64() > Some(0.0),
            "{sample}"
        );
        assert_eq!(sample["used"]["tier"], "resident");
    }
    // Another job's samples are not put beside them.
    let output = compare(
        here.path(),
        &["--pairs", "4", "--set", "tuning.key_tier=file"],
    );
    assert!(!output.status.success());
    assert!(
        errors(&output).contains("another settings"),
        "{}",
        errors(&output)
    );
}

#[test]
fn a_run_that_does_not_verify_is_no_sample_and_ends_the_set() {
    let here = TempDir::new().expect("a temporary directory");
    let spoiled = ["--pairs", "2", "--hook-unverified", "six"];
    let output = compare(here.path(), &spoiled);
    assert!(!output.status.success());
    let told = errors(&output);
    assert!(
        told.contains("setting six") && told.contains("verify"),
        "{told}"
    );
    let samples = samples(here.path());
    assert_eq!(samples[0]["setting"], "seven");
    let failed = samples[1]["failed"].as_str().expect("why it failed");
    assert!(failed.contains("does not verify"), "{failed}");
    assert_eq!(samples.len(), 2);
    let output = compare(here.path(), &spoiled);
    assert!(!output.status.success(), "it would leave the failure out");
    assert!(
        errors(&output).contains("ends the set"),
        "{}",
        errors(&output)
    );
}
