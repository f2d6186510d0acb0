//! `cuzk-bench scaling`: a record of two backends at once, both of the processor.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

#[test]
fn backends_that_are_fed_at_once_are_recorded_beside_each_alone() {
    let here = TempDir::new().expect("a temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
        .args(["scaling", "--backend", "cpu", "--devices", "0,1"])
        .args(["--log-size", "8", "--tier", "file", "--slots", "1"])
        .args(["--parts", "4", "--pairs", "2", "--spans", "spans.json"])
        .arg("--out")
        .arg(here.path())
        .output()
        .expect("the program can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let read = |name: &str| -> Value {
        let text = fs::read(here.path().join(name)).expect("a file");
        serde_json::from_slice(&text).expect("JSON")
    };
    let record = read("scaling.json");
    let command = record["command"].as_str().expect("text");
    assert!(command.contains("--backend cpu"), "{command}");
    let case = &record["cases"][0];
    assert_eq!(case["verified"], true);
    for samples in [&case["ours"]["samples"], &case["peer"]["samples"]] {
        assert_eq!(samples.as_array().map(Vec::len), Some(2), "{case}");
    }
    let devices = case["devices"].as_array().expect("a list");
    let numbers: Vec<_> = devices.iter().map(|of| of["device"].as_u64()).collect();
    assert_eq!(numbers, [Some(0), Some(1)]);
    for of in devices {
        for share in ["busy", "busy_alone"] {
            let value = of[share].as_f64().expect("a number");
            assert!(0.0 < value && value <= 1.0, "{share}: {case}");
        }
    }
    // Four of each, the parts numbered over both.
    let spans = read("spans.json");
    let spans = spans.as_array().expect("a list");
    let last = spans.iter().filter_map(|span| span["part"].as_u64()).max();
    assert_eq!(last, Some(7));
}

#[test]
fn what_is_no_scaling_is_refused() {
    for (argument, value, told) in [
        ("--devices", "0", "two or more, each once"),
        ("--devices", "0,0", "two or more, each once"),
        ("--parts", "1", "--parts: want two or more"),
        ("--pairs", "0", "--pairs: want one or more"),
        ("--log-size", "0", "want a number from 2 to 28"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
            .args(["scaling", "--backend", "cpu", argument, value])
            .args(["--out", "nowhere"])
            .output()
            .expect("the program can be started");
        assert!(!output.status.success(), "{argument} {value}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(told), "{errors}");
    }
}
