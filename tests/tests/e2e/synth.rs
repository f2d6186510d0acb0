//! `cuzk-bench synth`: records of synthesis, and the check of all rows of a part.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// The cases of a record that the program writes.
fn cases(arguments: &[&str], name: &str) -> Vec<Value> {
    let here = TempDir::new().expect("a temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
        .arg("synth")
        .args(arguments)
        .arg("--out")
        .arg(here.path())
        .output()
        .expect("the program can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let record = fs::read(here.path().join(format!("{name}.json"))).expect("a record");
    let mut record: Value = serde_json::from_slice(&record).expect("JSON");
    assert_eq!(record["name"], name);
    serde_json::from_value(record["cases"].take()).expect("a list")
}

#[test]
fn segments_are_recorded_beside_the_whole_and_bellpersons() {
    let arguments = [
        "--circuits",
        "wpost-8m,winning-8m",
        "--pairs",
        "1",
        "--threads",
        "2",
    ];
    let cases = cases(&arguments, "synth");
    assert_eq!(cases.len(), 8);
    for case in &cases {
        assert_eq!(case["verified"], true, "{case}");
        for side in ["ours", "peer"] {
            assert!(case[side]["median"].as_f64() > Some(0.0), "{case}");
        }
        assert!(case["allocations"].as_u64() > Some(0), "{case}");
        assert!(case["peak"]["host_bytes"].as_u64() > Some(0), "{case}");
        let of = |name: &str| case[name].as_f64().expect("a number");
        // What is counted is what is held, but for what the circuits' crates keep or free
        // of their own meanwhile.
        let (bytes, held) = (of("template_bytes"), of("template_held_bytes"));
        assert!((bytes - held).abs() < 0.01 * held + 16384.0, "{case}");
        let (bytes, peak) = (of("survey_bytes"), of("survey_peak_bytes"));
        assert!(peak < bytes + 262_144.0, "{case}");
    }
    // What the machine's load does not change: bellperson builds what we do not.
    for case in cases
        .iter()
        .filter(|case| case["peer"]["name"] == "bellperson 0.27.0 native")
    {
        let [ours, peer] = ["allocations", "peer_allocations"].map(|name| case[name].as_u64());
        assert!(ours < peer, "{case}");
    }
}

#[test]
fn all_rows_of_a_part_are_checked_in_segments() {
    // Two of them have the trees of sectors of 32 and 64 GiB.
    for (circuit, constraints, part) in [
        ("wpost-2k", 21_889, 0),
        ("winning-2k", 90_883, 0),
        ("winning-32g", 370_723, 0),
        ("winning-64g", 391_447, 0),
        // The last of four partitions: its challenges have the partition's bits set.
        ("snap-8m", 10_007_508, 3),
    ] {
        let name = format!("synth-check-{circuit}");
        let cases = cases(&["--check", circuit, "--threads", "2"], &name);
        let [case] = cases.as_slice() else {
            panic!("one case: {cases:?}");
        };
        assert_eq!(case["constraints"], constraints);
        assert_eq!(case["part"], part);
        assert_eq!(case["verified"], true);
        assert!(case["core_s"].as_f64() >= Some(0.0), "{case}");
    }
}
