//! `cuzk-bench draw`: spans that a measurement wrote, as pictures.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn draw(here: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuzk-bench"))
        .arg("draw")
        .args(arguments)
        .current_dir(here)
        .env_remove("RUST_BACKTRACE")
        .output()
        .expect("the program can be started")
}

#[test]
fn spans_of_a_measurement_become_pictures() {
    let here = TempDir::new().expect("a temporary directory");
    let spans = r#"[
        {"lane": "device 0 upload", "name": "upload", "part": 1,
         "start_ms": 10, "end_ms": 60, "bytes": 2000000000},
        {"lane": "device 0 compute", "name": "msm_h", "part": 0, "start_ms": 0, "end_ms": 40},
        {"lane": "device 0 compute", "name": "msm_h", "part": 1, "start_ms": 60, "end_ms": 100},
        {"lane": "host", "name": "finish", "part": 1, "start_ms": 100, "end_ms": 100.5}
    ]"#;
    fs::write(here.path().join("spans.json"), spans).expect("writable");
    let arguments = ["spans.json", "out.svg", "--trace", "out.json"];
    let output = draw(here.path(), &arguments);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).expect("text");
    assert_eq!(
        told,
        "device 0: busy 80.0 % of 100.0 ms from its first kernel to its last, \
         60.0 % of 50.0 ms of uploads beside a kernel\n  \
         idle 20.0 ms in 1: upload\n  \
         at 40.0 ms: 20.0 ms waiting for the upload of part 1\n"
    );
    let read = |name: &str| fs::read_to_string(here.path().join(name)).expect("text");
    let picture = read("out.svg");
    assert!(
        picture.contains(">spans: 100 ms<") && picture.contains("40.0 GB/s"),
        "{picture}"
    );
    let trace: Value = serde_json::from_str(&read("out.json")).expect("JSON");
    assert_eq!(
        trace["traceEvents"].as_array().map(Vec::len),
        Some(1 + 2 * 3 + 4)
    );

    // Nothing is replaced, and what is no list of spans is told with its place.
    let again = draw(here.path(), &arguments);
    assert!(!again.status.success());
    fs::write(here.path().join("wrong.json"), "[{\"lane\": \"gpu\"}]").expect("writable");
    let wrong = draw(here.path(), &["wrong.json", "other.svg"]);
    let errors = String::from_utf8(wrong.stderr).expect("text");
    assert!(
        errors.contains("wrong.json") && errors.contains("no lane \"gpu\""),
        "{errors}"
    );
    assert!(!here.path().join("other.svg").exists());
}
