//! `cuzk-bench live`: a whole engine on the processor, its record and its spans.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::key;

const JOBS: usize = 3;

fn number(value: &Value, name: &str) -> f64 {
    let number = value[name].as_f64();
    number.unwrap_or_else(|| panic!("{name}: no number in {value}"))
}

#[test]
fn what_a_device_lacks_under_live_synthesis_is_recorded_for_each_setting() {
    let here = TempDir::new().expect("a temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
        .args(["live", "--kind", "wpost", "--jobs", &JOBS.to_string()])
        .args(["--warm-up", "1", "--rounds", "2"])
        .args(["--dispatch", "reactive,burst", "--slots", "2"])
        .args(["--backend", "cpu", "--threads", "2"])
        .args(["--set", "memory.limit=1GiB", "--spans", "spans.json"])
        .arg("--keys")
        .arg(key("wpost"))
        .arg("--out")
        .arg(here.path())
        .output()
        .expect("the program can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let read = |name: &str| -> Value {
        let text = fs::read(here.path().join(name)).expect(name);
        serde_json::from_slice(&text).expect("JSON")
    };
    let record = read("live.json");
    assert_eq!(record["name"], "live");
    assert_eq!(record["tuning"]["memory.limit"], "1GiB");
    let cases = record["cases"].as_array().expect("a list");
    let names: Vec<&str> = cases
        .iter()
        .map(|case| case["case"].as_str().expect("text"))
        .collect();
    assert_eq!(
        names,
        ["wpost-2k: reactive, 2 slots", "wpost-2k: burst, 2 slots",]
    );
    cases.iter().for_each(check_case);
    let told = String::from_utf8(output.stdout).expect("text");
    let turns: Vec<&str> = told
        .lines()
        .filter_map(|line| line.split_once(" s  round "))
        .filter_map(|(_, rest)| rest.split_once(": "))
        .map(|(turn, _)| turn)
        .collect();
    assert_eq!(
        turns,
        [
            "1, reactive, 2 slots",
            "1, burst, 2 slots",
            "2, burst, 2 slots",
            "2, reactive, 2 slots",
        ]
    );

    let spans = read("spans-burst-2.json");
    let spans = spans.as_array().expect("a list");
    for job in 0..JOBS {
        let label = format!("wpost round 2.{job}");
        let names: Vec<&str> = spans
            .iter()
            .filter(|span| span["job"] == label)
            .map(|span| span["name"].as_str().expect("text"))
            .collect();
        for name in ["queue", "reserve", "synthesis", "msm_h", "verify"] {
            assert!(names.contains(&name), "{label}: no {name} in {names:?}");
        }
    }
    let is_round = |span: &Value| {
        let job = span["job"].as_str();
        job.is_some_and(|job| job.starts_with("wpost round 2."))
    };
    assert!(spans.iter().all(is_round), "nothing of the warm-up");
}

fn check_case(case: &Value) {
    assert_eq!(case["verified"], true, "{case}");
    assert_eq!(case["ours"]["unit"], "s");
    assert_eq!(case["ours"]["samples"].as_array().map(Vec::len), Some(2));
    assert_eq!(case["parts"], JOBS);
    assert_eq!(case["backend"], "cpu");
    assert_eq!(case["retries"], 0);
    for share in ["busy", "all_threads_busy", "uploads_overlapped"] {
        let value = number(case, share);
        assert!((0.0..=1.0).contains(&value), "{share}: {case}");
    }
    assert!(number(case, "busy") > 0.0 && number(case, "parts_per_s") > 0.0);
    assert!(number(case, "part_ms_p95") >= number(case, "part_ms_median"));
    let latency = &case["latency_s"];
    let median = number(latency, "median");
    assert!(0.0 < median && median <= number(latency, "max"), "{case}");
    assert!(number(&case["peak"], "counted_bytes") > 0.0);
    let limit = case["limited_by"].as_str().expect("text");
    let limits = ["device", "link", "cores", "memory", "engine"];
    assert!(limits.contains(&limit), "{limit}");
    // Every gap is explained by one lack, or told as unknown.
    let gaps = case["gaps"].as_object().expect("a table");
    let ends = ["idle_ms", "before_first_kernel_ms", "after_last_kernel_ms"];
    let lacks = gaps
        .iter()
        .filter(|(name, _)| !ends.contains(&name.as_str()));
    let lacks: Vec<f64> = lacks.filter_map(|(_, ms)| ms.as_f64()).collect();
    assert_eq!(lacks.len(), 11, "{case}");
    let idle_ms = number(&case["gaps"], "idle_ms");
    let sum: f64 = lacks.iter().sum();
    assert!((sum - idle_ms).abs() < 0.02, "{sum} of {idle_ms}: {case}");
    assert!(number(&case["gaps"], "before_first_kernel_ms") > 0.0);
}
