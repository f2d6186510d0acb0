//! A client that shares no code with the server: Python and grpcio, with code made
//! from the proto file at test time, against `cuzk serve` in a process of its own.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::served::Served;
use crate::support::{KINDS, key, key_file, real_request, stock_verdict};

/// The Python that has grpcio: the one that CUZK_PYTHON names, or the first on the
/// path. Without one a test says that it is skipped, or fails if CUZK_PYTHON names
/// one or CUZK_REQUIRE_PYTHON is 1.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("CUZK_PYTHON").map(PathBuf::from);
    let is_required = std::env::var("CUZK_REQUIRE_PYTHON").is_ok_and(|value| value == "1");
    let python = named.clone().unwrap_or_else(|| "python3".into());
    let imported = Command::new(&python)
        .args(["-c", "import grpc, grpc_tools"])
        .output();
    let why = match imported {
        Ok(output) if output.status.success() => return Some(python),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let why = why.trim().lines().last().unwrap_or_default().to_owned();
    let python = python.display();
    assert!(
        named.is_none() && !is_required,
        "{python} has no grpcio: {why}; see tests/python/requirements.txt"
    );
    // Not captured, so that whoever runs the tests sees it.
    let _ = writeln!(
        std::io::stderr(),
        "skipped: {python} has no grpcio ({why}); CUZK_PYTHON names one that has"
    );
    None
}

/// Has the client send the real requests of these kinds; its report and its folder.
fn run(python: &Path, served: &Served, options: &[&str], kinds: &[&str]) -> (Value, TempDir) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = TempDir::new().expect("a temporary directory");
    let output = Command::new(python)
        .arg(package.join("python/client.py"))
        .arg("--proto")
        .arg(package.join("../crates/cuzk-daemon/proto"))
        .args(["--tcp", &served.address, "--unix"])
        .arg(&served.socket)
        .arg("--out")
        .arg(out.path())
        .args(options)
        .args(kinds.iter().map(|kind| real_request(kind)))
        .env_remove("http_proxy")
        .env_remove("https_proxy")
        .output()
        .expect("the client can be started");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{}", served.errors());
    let report = fs::read(out.path().join("report.json")).expect("a report");
    (serde_json::from_slice(&report).expect("JSON"), out)
}

/// The circuit's id of a call, which is how request files are named here.
fn circuit(call: &Value) -> &str {
    call["request"].as_str().expect("a name")
}

fn kind(call: &Value) -> &str {
    circuit(call).strip_suffix("-2k").expect("of 2 KiB sectors")
}

fn number(value: &Value, field: &str) -> u64 {
    let number = value[field].as_u64();
    number.unwrap_or_else(|| panic!("no {field} in {value}"))
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().expect("a list")
}

/// The entry of a list whose `field` is `name`.
fn entry<'a>(list: &'a [Value], field: &str, name: &str) -> &'a Value {
    let found = list.iter().find(|entry| entry[field] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list:?}"))
}

/// An answer's fields say what a proof on the CPU, with the key in its file, is.
fn answer_is_true(call: &Value) {
    let result = &call["result"];
    assert_eq!(result["status"], "COMPLETED");
    assert_eq!(result["error_message"], "");
    assert_eq!(result["backend"], "cpu");
    assert_eq!(result["tier"], "file");
    assert_eq!(result["placement"], "heap");
    assert_eq!(result["is_pinned"], false);
    assert_eq!(result["retries"], 0);
    let job = result["job_id"].as_str().expect("an id");
    assert!(job.starts_with(kind(call)), "{job}");
    if call["way"] == "submit" {
        assert_eq!(call["job"]["job_id"], job);
        assert_eq!(call["job"]["assigned_gpu"], "");
    }

    for field in ["synthesis_ms", "gpu_compute_ms"] {
        assert!(number(result, field) > 0, "{result}");
    }
    let stages = [
        "queue_wait_ms",
        "srs_load_ms",
        "synthesis_ms",
        "gpu_compute_ms",
    ];
    let sum: u64 = stages.iter().map(|field| number(result, field)).sum();
    // One part: its stages follow each other; each is rounded by itself.
    assert!(number(result, "total_ms") + 4 >= sum, "{result}");
}

/// The client waited at least as long as the server says that the proof took.
fn took_its_time(call: &Value) {
    let wall_ms = call["wall_ms"].as_f64().expect("a time");
    let total_ms = number(&call["result"], "total_ms");
    assert!(wall_ms >= total_ms as f64, "{wall_ms} {total_ms}");
}

/// Each file's four calls: by each transport and each way.
fn calls_of<'a>(report: &'a Value, kinds: &[&str]) -> Vec<&'a [Value]> {
    let calls: Vec<_> = list(report, "calls").chunks(4).collect();
    assert_eq!(calls.len(), kinds.len());
    for (calls, kind) in calls.iter().zip(kinds) {
        let ways: BTreeSet<String> = calls
            .iter()
            .map(|call| format!("{} {}", call["transport"], call["way"]))
            .collect();
        assert_eq!(ways.len(), 4, "{ways:?}");
        assert!(calls.iter().all(|call| self::kind(call) == *kind));
    }
    calls
}

/// A status after this many proofs, when nothing runs.
fn status_is_true(status: &Value, completed: u64, used: &[&str]) {
    assert_eq!(number(status, "total_proofs_completed"), completed);
    assert_eq!(number(status, "total_proofs_failed"), 0);
    assert_eq!(list(status, "gpus").len(), 0);
    assert_eq!(number(status, "pinned_memory_bytes"), 0);
    assert_eq!(number(status, "pinned_memory_limit_bytes"), 0);
    let queues = list(status, "queues");
    for kind in [
        "POREP_SEAL_COMMIT",
        "SNAP_DEALS_UPDATE",
        "WINDOW_POST_PARTITION",
        "WINNING_POST",
    ] {
        let queue = entry(queues, "proof_kind", kind);
        assert_eq!(number(queue, "pending") + number(queue, "in_progress"), 0);
    }
    let keys = list(status, "loaded_srs");
    assert_eq!((queues.len(), keys.len()), (4, KINDS.len()));
    for kind in KINDS {
        let srs = entry(keys, "circuit_id", &format!("{kind}-2k"));
        let tier = if used.contains(&kind) { "WARM" } else { "COLD" };
        assert_eq!(srs["tier"], tier, "{srs}");
        assert_eq!(number(srs, "ref_count"), 0);
        let file = fs::metadata(key_file(kind)).expect("the key was made");
        assert_eq!(number(srs, "size_bytes"), file.len(), "{srs}");
    }
}

/// What the client saw of a SnapDeals job that ran while it waited.
fn running_is_true(call: &Value) {
    assert_eq!(
        (&call["transport"], &call["way"]),
        (&"unix".into(), &"submit".into())
    );
    assert_eq!(call["job"]["queue_position"], 0);
    assert_eq!(call["early"]["status"], "TIMEOUT");
    assert_eq!(call["early"]["proof"], "");
    let during = &call["during"];
    for queue in list(during, "queues") {
        let running = u64::from(queue["proof_kind"] == "SNAP_DEALS_UPDATE");
        assert_eq!(number(queue, "in_progress"), running, "{during}");
        assert_eq!(number(queue, "pending"), 0, "{during}");
    }
    assert_eq!(number(during, "total_proofs_completed"), 1);
}

#[test]
fn a_client_in_another_language() {
    let Some(python) = python() else {
        return;
    };
    for kind in KINDS {
        key(kind);
    }
    let mut served = Served::start();

    // The first call of each file makes the proof, the others are the same job.
    let (report, out) = run(&python, &served, &[], &KINDS);
    status_is_true(&report["before"], 0, &[]);
    status_is_true(&report["after"], 4, &KINDS);
    for calls in calls_of(&report, &KINDS) {
        took_its_time(&calls[0]);
        for call in calls {
            answer_is_true(call);
            assert_eq!(call["result"], calls[0]["result"]);
        }
        let kind = kind(&calls[0]);
        let (transport, way) = (&calls[0]["transport"], &calls[0]["way"]);
        let name = format!("{kind}-2k-{transport}-{way}.proof").replace('"', "");
        let proof = out.path().join(name);
        assert_eq!(fs::metadata(&proof).expect("a proof").len(), 192);
        assert_eq!(stock_verdict(&real_request(kind), &proof), "accepted");
        if kind == "snap" {
            running_is_true(&calls[0]);
        }
    }
    let said = &report["refusals"];
    for (what, code) in [
        ("unknown job", "NOT_FOUND: job_id: "),
        ("no request", "INVALID_ARGUMENT: submit: "),
        ("empty request", "INVALID_ARGUMENT: sector_size: "),
    ] {
        let said = said[what].as_str().expect("text");
        assert!(said.starts_with(code), "{what}: {said}");
    }

    // Under a name of its own every call makes a proof.
    let cheap = ["wpost", "winning"];
    let (report, out) = run(&python, &served, &["--fresh"], &cheap);
    status_is_true(&report["before"], 4, &KINDS);
    status_is_true(&report["after"], 12, &KINDS);
    for calls in calls_of(&report, &cheap) {
        let mut proofs = BTreeSet::new();
        for call in calls {
            answer_is_true(call);
            took_its_time(call);
            proofs.insert(call["result"]["proof"].as_str().expect("bytes"));
        }
        assert_eq!(proofs.len(), 4, "blinding is fresh");
    }
    for entry in fs::read_dir(out.path()).expect("readable") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|kind| kind == "proof") {
            let name = path.file_name().expect("a file").to_string_lossy();
            let kind = name.split('-').next().expect("a kind");
            assert_eq!(stock_verdict(&real_request(kind), &path), "accepted");
        }
    }
    let metrics = report["metrics"].as_str().expect("text");
    for line in [
        "cuzk_proofs_completed_total 12",
        "cuzk_proofs_failed_total 0",
        "cuzk_queue_depth 0",
        "cuzk_running_jobs 0",
        "cuzk_proof_duration_seconds_count{proof_kind=\"POREP_SEAL_COMMIT\"} 1",
        "cuzk_proof_duration_seconds_count{proof_kind=\"SNAP_DEALS_UPDATE\"} 1",
        "cuzk_proof_duration_seconds_count{proof_kind=\"WINDOW_POST_PARTITION\"} 5",
        "cuzk_proof_duration_seconds_count{proof_kind=\"WINNING_POST\"} 5",
    ] {
        assert!(
            metrics.lines().any(|have| have == line),
            "{line} in\n{metrics}"
        );
    }
    served.terminate();
    assert_eq!(served.wait().code(), Some(0), "{}", served.errors());
}
