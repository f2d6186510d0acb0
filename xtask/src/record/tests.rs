//! Records that hold together and records that do not.

use super::*;

pub(super) const WELL: &str = r#"{
  "name": "peer-prove",
  "claim": "ours is faster",
  "commit": "0123456789abcdef",
  "dirty": false,
  "date": "2026-12-01",
  "command": "cuzk-bench peer-prove --out DIR",
  "machine": {
    "cpu": "a processor", "cores": 16, "ram_gib": 128,
    "gpu": "a device", "driver": "580.1", "toolkit": "13.0", "archs": ["sm_90"]
  },
  "tuning": { "tuning.key_tier": "resident", "tuning.slots": 2 },
  "cases": [
    {
      "case": "2^24, 11 % full scalars",
      "verified": true,
      "ours": { "median": 1234.5, "low": 1200.0, "high": 1300.0, "unit": "ms",
                "samples": [1300.0, 1234.5, 1200.0] },
      "peer": { "name": "other 1.0", "median": 6000.0, "low": 5900.0, "high": 6100.0,
                "unit": "ms", "samples": [5900.0, 6100.0] },
      "ratio": { "median": 4.86, "low": 4.7, "high": 5.0 },
      "phases_ms": { "upload": 80.25, "ntt": 9.6, "msm_h": 162.0, "msm_l": 0.04, "msm_a": 100.0,
                     "msm_b_g1": 101.0, "msm_b_g2": 459.0, "finish": 1.5, "verify": 1.31 },
      "peak": { "host_bytes": 8589934592, "device_bytes": 1048576 },
      "pcie_bytes": 4096,
      "verdict": "win"
    },
    { "case": "2^26", "verified": false, "why": "out of device memory" }
  ]
}"#;

fn found(text: &str) -> Vec<String> {
    problems(&SourceFile {
        path: "bench/records/h200-16c/peer-prove.json".to_owned(),
        text: text.to_owned(),
    })
}

/// The problems of [`WELL`] with one text in it replaced.
fn changed(from: &str, to: &str) -> Vec<String> {
    assert!(WELL.contains(from), "{from}");
    found(&WELL.replacen(from, to, 1))
}

#[test]
fn a_record_is_a_table() {
    assert!(found(WELL).is_empty(), "{:?}", found(WELL));
    let record = Record::parse(WELL).expect("a record");
    let line = table::line("h200-16c/peer-prove", &record);
    let whole = table::whole("h200-16c/peer-prove", &record);
    insta::assert_snapshot!(format!("{line}\n\n{whole}"));
}

#[test]
fn a_case_that_is_not_verified_has_no_figures() {
    let not_verified = changed("\"verified\": true", "\"verified\": false");
    assert_eq!(
        not_verified,
        [
            "cases[0] (2^24, 11 % full scalars): not verified, yet it has ours, peer, ratio, \
             phases_ms, peak, pcie_bytes, verdict"
        ]
    );
    let one = changed("\"why\": \"out of device memory\"", "\"wall_s\": 1.5");
    assert_eq!(one, ["cases[1] (2^26): not verified, yet it has wall_s"]);
    let none = changed("\"verified\": false", "\"verified\": true");
    assert_eq!(none, ["cases[1] (2^26): verified, yet it has no figure"]);
}

#[test]
fn broken_records_are_caught_with_their_place() {
    for (from, to, expected) in [
        (
            "\"peer-prove\",",
            "\"kernels\",",
            "name: \"kernels\" stands in",
        ),
        ("\"ours is faster\"", "\" \"", "claim: empty"),
        ("2026-12-01", "01.12.2026", "date: \"01.12.2026\" is no"),
        ("\"dirty\": false,", "", "missing field `dirty`"),
        (
            "\"dirty\": false,",
            "\"dirty\": 0,",
            "expected a boolean at line 5",
        ),
        ("\"tuning\": {", "\"tunings\": {", "unknown field `tunings`"),
        ("\"cpu\"", "\"gpus\": 2, \"cpu\"", "unknown field `gpus`"),
        (
            "1234.5, \"low\"",
            "1299.0, \"low\"",
            "ours.median: 1299, but that of the samples is 1234.5",
        ),
        (
            "\"low\": 5900.0",
            "\"low\": 6050.0",
            "peer: 6000 is not within [6050, 6100]",
        ),
        ("[5900.0, 6100.0]", "[]", "peer.samples: none"),
        (
            "4.7, \"high\"",
            "4.9, \"high\"",
            "ratio: 4.86 is not within [4.9, 5]",
        ),
        ("\"peer\": {", "\"twin\": {", "one is not there"),
        (
            "\"unit\": \"ms\", \"samples\": [5",
            "\"unit\": \"s\", \"samples\": [5",
            "differ in unit",
        ),
        ("\"ratio\":", "\"ratio\"", "expected `:` at line 21"),
    ] {
        let problems = changed(from, to);
        assert_eq!(problems.len(), 1, "{from} -> {to}: {problems:?}");
        assert!(problems[0].contains(expected), "{problems:?}");
    }
}

#[test]
fn only_files_in_the_folder_of_records_are_records() {
    assert!(is_record("bench/records/h200-16c/params.json"));
    assert!(!is_record("bench/records/README.md"));
    assert!(!is_record("tests/golden/params.json"));
    assert_eq!(
        short_name("bench/records/h200-16c/params.json"),
        "h200-16c/params"
    );
}
