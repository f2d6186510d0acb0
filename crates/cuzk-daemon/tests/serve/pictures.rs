//! Where the time went, as files and over HTTP.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use cuzk_core::timeline::read_spans;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Server, assert_proof, keys, window, within};

/// Runs a command that proves, in a place of its own with a request.
fn cuzk(place: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuzk"))
        .args(arguments)
        .args(["--set", "hints.file="])
        .current_dir(place)
        .env("XDG_CACHE_HOME", place.join("cache"))
        .env_remove("FIL_PROOFS_PARAMETER_CACHE")
        .output()
        .expect("the program can be started")
}

fn scene() -> TempDir {
    let here = TempDir::new().expect("a temporary directory");
    let made = cuzk(
        here.path(),
        &["fixture", "--kind", "wpost", "--out", "request.json"],
    );
    assert!(made.status.success(), "{made:?}");
    here
}

fn prove(here: &TempDir, more: &[&str]) -> Output {
    let keys = keys().to_str().expect("text");
    let request = ["prove", "--request", "request.json", "--out", "proof"];
    let params = ["--params", keys, "--allow-test-params"];
    cuzk(here.path(), &[&request[..], &params, more].concat())
}

/// The files there, besides the request.
fn files(here: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(here.path()).expect("readable");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().expect("text"))
        .filter(|name| name != "request.json")
        .collect();
    names.sort();
    names
}

/// The names of the stretches of time of a trace, and the lanes that have some.
fn told(trace: &str) -> (Vec<String>, Vec<String>) {
    let trace: Value = serde_json::from_str(trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let of = |ph: &'static str| events.iter().filter(move |event| event["ph"] == ph);
    for event in of("X") {
        let known = ["ts", "dur"].map(|field| event[field].as_f64() >= Some(0.0));
        assert_eq!(known, [true; 2], "{event}");
        let thread = of("M").any(|about| about["tid"] == event["tid"]);
        assert!(thread && event["args"]["job"].is_string(), "{event}");
    }
    let names = of("X").map(|event| text(&event["name"]));
    let threads = of("M").filter(|event| event["name"] == "thread_name");
    let lanes = threads.map(|event| text(&event["args"]["name"]));
    (names.collect(), lanes.collect())
}

#[test]
fn a_proof_comes_with_pictures_of_where_its_time_went() {
    let here = scene();
    let draw = [
        "--trace",
        "trace.json",
        "--timeline",
        "waterfall.svg",
        "--json",
    ];
    let output = prove(&here, &draw);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(files(&here), ["proof", "trace.json", "waterfall.svg"]);
    let read = |name: &str| fs::read_to_string(here.path().join(name)).expect("text");

    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let spans = read_spans(&report["timeline"].to_string()).expect("spans");
    let (names, lanes) = told(&read("trace.json"));
    assert_eq!(names.len(), spans.len(), "what the job has, the engine has");
    for name in [
        "queue",
        "key",
        "reserve",
        "synthesis",
        "ntt",
        "msm_b_g2",
        "verify",
    ] {
        assert_eq!(
            names.iter().filter(|have| *have == name).count(),
            1,
            "{name}"
        );
    }
    for lane in ["queue", "core 0", "cpu compute", "check"] {
        assert!(lanes.iter().any(|have| have == lane), "{lane} in {lanes:?}");
    }
    let picture = read("waterfall.svg");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(picture.contains("cpu: busy "), "{picture}");

    assert_eq!(report["utilisation"][0]["unit"], "cpu");
    let savings = report["savings"]["names"].as_array().expect("names");
    let sums: f64 = savings
        .iter()
        .filter_map(|one| one["on_path_ms"].as_f64())
        .sum();
    let whole = |name: &str| report["savings"][name].as_f64().expect("a number");
    let close = (sums + whole("between_ms") - whole("wall_ms")).abs() < 1.0;
    assert!(close, "{}", report["savings"]);
}

#[test]
fn what_cannot_be_written_is_told_before_anything_is_proved() {
    let here = scene();
    fs::write(here.path().join("there"), "kept").expect("writable");
    let mut told = Vec::new();
    for draw in [
        ["--trace", "no/where.json"],
        ["--timeline", "there"],
        ["--trace", "proof"],
    ] {
        let output = prove(&here, &draw);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        told.push(String::from_utf8(output.stderr).expect("text"));
        assert_eq!(files(&here), ["there"]);
    }
    let output = prove(&here, &["--trace", "one", "--timeline", "one"]);
    told.push(String::from_utf8(output.stderr).expect("text"));
    assert_eq!(
        told.concat(),
        "cuzk: no: no such directory\n\
         cuzk: there: exists already and is not replaced\n\
         cuzk: proof: named for two files\n\
         cuzk: one: named for two files\n"
    );
    assert_eq!(fs::read(here.path().join("there")).expect("there"), b"kept");
}

/// What took so long is of more use then than ever.
#[test]
fn a_job_without_a_proof_has_its_pictures_too() {
    let here = scene();
    let little = ["--set", "memory.limit=1MiB", "--trace", "trace.json"];
    let output = prove(&here, &little);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(files(&here), ["trace.json"]);
    let trace = fs::read_to_string(here.path().join("trace.json")).expect("text");
    let (names, _) = told(&trace);
    assert!(names.iter().any(|name| name == "queue"), "{names:?}");
    assert!(names.iter().all(|name| name != "synthesis"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_shows_what_all_its_jobs_did() {
    let server = Server::start(|config| config.spans_max = 40).await;
    let mut client = server.client().await;
    for seed in 1..=3 {
        assert_proof(&within(client.prove(window(seed))).await.expect("taken"));
    }
    let body = |path: &str| {
        let page = server.page(path);
        let (head, body) = page.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        (head.to_ascii_lowercase(), body.to_owned())
    };
    let (head, trace) = body("/trace");
    assert!(head.contains("content-type: application/json"), "{head}");
    let (names, _) = told(&trace);
    assert_eq!(names.len(), 40, "as many as are kept");
    let (head, picture) = body("/timeline.svg");
    assert!(head.contains("content-type: image/svg+xml"), "{head}");
    assert!(picture.contains("older spans were not kept"), "{picture}");

    let (_, metrics) = body("/metrics");
    let number = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        let number = line.map(|rest| rest.trim().parse::<f64>());
        number
            .unwrap_or_else(|| panic!("{name} in\n{metrics}"))
            .expect("a number")
    };
    // All of them are counted, whatever was dropped.
    for stage in ["queue", "verify", "msm_h", "verify_all"] {
        let name = format!("cuzk_stage_spans_total{{stage=\"{stage}\"}}");
        assert_eq!(number(&name), 3.0, "{stage}");
    }
    let of = |stage: &str| number(&format!("cuzk_stage_seconds_total{{stage=\"{stage}\"}}"));
    let kernels = ["ntt", "msm_h", "msm_l", "msm_a", "msm_b_g1", "msm_b_g2"];
    let kernels: f64 = kernels.into_iter().map(of).sum();
    let busy = number("cuzk_device_busy_seconds_total{device=\"cpu\"}");
    // One backend, one part at a time: no two kernels overlap.
    assert!((busy - kernels).abs() < 1e-6, "{busy} of {kernels}");
    assert!(number("cuzk_device_gap_seconds_total{device=\"cpu\",reason=\"key\"}") > 0.0);
    let spans: u64 = metrics
        .lines()
        .filter(|line| line.starts_with("cuzk_stage_spans_total{"))
        .filter_map(|line| line.split_once("} ")?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(number("cuzk_spans_dropped_total") as u64, spans - 40);
}
