//! `cuzk-bench full`: at a small size on the processor, the program that measures the real
//! size on a device.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{key, key_file};

fn full(here: &TempDir, keys: &std::path::Path, arguments: &[&str]) -> Output {
    full_of("2KiB", here, keys, arguments)
}

fn full_of(size: &str, here: &TempDir, keys: &std::path::Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
        .args(["full", "--sector-size", size, "--backend", "cpu"])
        .args(["--threads", "2", "--set", "memory.limit=6GiB"])
        .args(arguments)
        .arg("--keys")
        .arg(keys)
        .arg("--out")
        .arg(here.path())
        .output()
        .expect("the program can be started")
}

fn cases<const COUNT: usize>(here: &TempDir, name: &str) -> [Value; COUNT] {
    let record = fs::read(here.path().join(name)).expect(name);
    let record: Value = serde_json::from_slice(&record).expect("JSON");
    let cases = record["cases"].as_array().expect("a list").clone();
    cases.try_into().expect("as many cases")
}

fn case(here: &TempDir, name: &str) -> Value {
    let [case] = cases(here, name);
    case
}

fn number(case: &Value, name: &str) -> f64 {
    let number = case[name].as_f64();
    number.unwrap_or_else(|| panic!("{name}: no number in {case}"))
}

#[test]
fn a_whole_job_is_proved_within_its_plan_and_checked_by_others() {
    let here = TempDir::new().expect("a temporary directory");
    let output = full(&here, &key("porep"), &["--kind", "porep"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let case = case(&here, "full-porep-2kib.json");
    assert_eq!(case["verified"], true, "{case}");
    assert_eq!(
        case["checked_by"],
        "the verifying key of each part; the stock verifier, as one proof; the secrets of the \
         key, part 0"
    );
    assert_eq!(case["parts"], 1);
    for name in ["gpu_ms_per_part", "core_s_per_part", "wall_s"] {
        assert!(number(&case, name) > 0.0, "{name}: {case}");
    }
    let latency_s = case["request_to_proof_s"][0].as_f64().expect("a number");
    assert!(latency_s >= number(&case, "wall_s"), "{case}");
    // The plan is true to a tenth: nothing that is counted is missing in it.
    let (planned, held) = (
        number(&case, "planned_bytes"),
        number(&case["peak"], "counted_bytes"),
    );
    assert!(held <= 1.1 * planned, "{held} of {planned}: {case}");
    assert!(number(&case["peak"], "host_bytes") > 0.0);
    let phases = case["phases_s"].as_object().expect("a table");
    let names: Vec<&str> = phases.keys().map(String::as_str).collect();
    for name in ["request", "start", "preload", "warm", "job", "oracle"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let told = String::from_utf8(output.stdout).expect("text");
    assert!(told.contains("  oracle: "), "{told}");
    for file in ["full-porep-2kib.svg", "full-porep-2kib.spans.json"] {
        assert!(here.path().join(file).exists(), "{file}");
    }
}

/// Inputs of these lie in blocks; they are told how long they take warm, and prepared.
#[test]
fn proofs_of_time_are_those_that_the_secrets_say() {
    let here = TempDir::new().expect("a temporary directory");
    for (kind, circuit) in [("winning", "winning-2k"), ("wpost", "wpost-2k")] {
        let arguments = ["--kind", kind, "--warm-up", "1", "--rounds", "2"];
        let replay = ["--replay", "1"];
        let output = full(&here, &key(kind), &[&arguments[..], &replay].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind}: {errors}");
        let [case, replayed] = cases(&here, &format!("full-{kind}-2kib.json"));
        assert_eq!(replayed["verified"], true, "{replayed}");
        let name = format!("{circuit}: 1 parts replayed from 1");
        assert_eq!(replayed["case"], name);
        assert!(number(&replayed, "replay_s") > 0.0, "{replayed}");
        let by = case["checked_by"].as_str().expect("text");
        assert!(by.ends_with("the secrets of the key, part 0"), "{case}");
        let latencies = case["request_to_proof_s"].as_array().map(Vec::len);
        assert_eq!(latencies, Some(2), "{case}");
        assert_eq!(case["ours"]["samples"].as_array().map(Vec::len), Some(2));
    }
}

/// A circuit that only sectors of a real size have, from its key to the oracle.
#[test]
fn a_sector_of_512_mib_is_proved_with_a_key_that_is_made_for_it() {
    let here = TempDir::new().expect("a temporary directory");
    let keys = here.path().join("keys");
    let output = full_of("512MiB", &here, &keys, &["--kind", "winning"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let case = case(&here, "full-winning-512mib.json");
    assert_eq!(case["verified"], true, "{case}");
    assert_eq!(
        case["checked_by"],
        "the verifying key of each part; the stock verifier, as one proof; the secrets of the \
         key, part 0"
    );
    assert!(number(&case, "key_s") > 0.0, "{case}");
}

#[test]
fn a_key_is_made_alone_and_another_keys_secrets_do_not_say_the_proof() {
    let here = TempDir::new().expect("a temporary directory");
    let keys = here.path().join("keys");
    let wpost = ["--kind", "wpost"];
    let output = full(&here, &keys, &[&wpost[..], &["--only", "key"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let made = case(&here, "full-wpost-2kib-key.json");
    let bytes = fs::metadata(key_file("wpost")).expect("a key").len() as f64;
    assert_eq!(number(&made, "key_bytes"), bytes, "{made}");

    // What tells the seed tells another one.
    let sidecar = fs::read_dir(&keys).expect("keys").find_map(|entry| {
        let path = entry.expect("readable").path();
        path.to_str()?.ends_with(".insecure.json").then_some(path)
    });
    let sidecar = sidecar.expect("a sidecar");
    let text = fs::read_to_string(&sidecar).expect("text");
    assert!(text.contains("\"seed\": 1"), "{text}");
    fs::write(&sidecar, text.replace("\"seed\": 1", "\"seed\": 2")).expect("writable");
    let output = full(&here, &keys, &[&wpost[..], &["--only", "prove"]].concat());
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("not the one that the secrets of its key say"),
        "{errors}"
    );
    let failed = case(&here, "full-wpost-2kib.json");
    assert_eq!(failed["verified"], false, "{failed}");
    assert!(failed.get("ours").is_none(), "{failed}");
}
