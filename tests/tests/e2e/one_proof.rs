//! `cuzk-bench one-proof`: from no key to a record.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_window_post_of_8_mib_is_recorded_with_its_key() {
    let here = TempDir::new().expect("a temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
        .args(["one-proof", "--kind", "wpost", "--sector-size", "8m"])
        .arg("--keys")
        .arg(here.path().join("keys"))
        .arg("--out")
        .arg(here.path())
        .output()
        .expect("the program can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let record = fs::read(here.path().join("one-proof-wpost-8m.json")).expect("a record");
    let record: Value = serde_json::from_slice(&record).expect("JSON");
    assert_eq!(record["name"], "one-proof-wpost-8m");
    let [key, proof] = record["cases"].as_array().expect("a list").as_slice() else {
        panic!("two cases: {record}");
    };
    for case in [key, proof] {
        assert_eq!(case["verified"], true);
        assert!(case["ours"]["median"].as_f64() > Some(0.0), "{case}");
        assert!(case["peak"]["host_bytes"].as_u64() > Some(0), "{case}");
    }
    let name = proof["case"].as_str().expect("text");
    assert!(
        name.starts_with("wpost-8m: a proof of 64289 constraints"),
        "{name}"
    );
    assert!(proof["peak"]["counted_bytes"].as_u64() > Some(0));
    for phase in ["synthesis", "msm_h", "verify"] {
        assert!(proof["phases_ms"][phase].as_f64() > Some(0.0), "{phase}");
    }
}
