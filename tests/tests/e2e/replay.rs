//! `cuzk-bench replay`: a record and spans, from the processor.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_backend_that_is_fed_is_recorded_with_its_spans() {
    let here = TempDir::new().expect("a temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
        .args(["replay", "--backend", "cpu", "--log-size", "8"])
        .args(["--tier", "file", "--slots", "1", "--parts", "12"])
        .args(["--alone", "3", "--spans", "spans.json", "--keys"])
        .arg(here.path().join("keys"))
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
    let record = read("utilisation.json");
    assert_eq!(record["name"], "utilisation");
    let [case] = record["cases"].as_array().expect("a list").as_slice() else {
        panic!("one case: {record}");
    };
    assert_eq!(case["verified"], true);
    assert_eq!(case["case"], "2^8, 1.3 % full scalars, file, 1 slots");
    assert_eq!(case["ours"]["samples"].as_array().map(Vec::len), Some(11));
    assert_eq!(case["allocations_after_warmup"], 0);
    for share in ["busy", "rate_of_alone"] {
        let value = case[share].as_f64().expect("a number");
        assert!(value > 0.0, "{share}: {case}");
    }
    assert!(case["busy"].as_f64() < Some(1.0), "keys are read between");
    assert!(case["p95_over_median"].as_f64() >= Some(1.0), "{case}");

    let spans = read("spans.json");
    let spans = spans.as_array().expect("a list");
    let of_part = |part: u64| spans.iter().filter(move |span| span["part"] == part);
    for part in 0..12 {
        let names: Vec<&str> = of_part(part)
            .map(|span| span["name"].as_str().expect("text"))
            .collect();
        assert_eq!((names[0], names[11]), ("ntt", "finish"), "{names:?}");
    }
    let lanes = |name: &str| {
        let found = spans.iter().find(|span| span["name"] == name);
        found.expect("a span of each name")["lane"].clone()
    };
    assert_eq!(lanes("msm_h"), "cpu compute");
    assert_eq!(lanes("key_h"), "cpu key");
    assert_eq!(lanes("finish"), "host");
    for span in spans {
        let at = |name: &str| span[name].as_f64().expect("a number");
        assert!(0.0 <= at("start_ms") && at("start_ms") <= at("end_ms"));
    }
}
