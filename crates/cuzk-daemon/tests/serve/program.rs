//! The program itself: `cuzk serve` in a process of its own, asked by `cuzk`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use cuzk_core::{CircuitSpec, Config, Engine};
use cuzk_filecoin::{FilecoinCircuit, ProofKind, SectorSize};

use crate::support::{DEADLINE, keys};

/// A server's process, killed if a test ends before it does.
struct Served {
    process: Child,
    address: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Served {
    fn start(socket: &Path, arguments: &[&str], log: Stdio) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_cuzk"))
            .args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", ""])
            .args(["--set", "hints.file=", "--allow-test-params"])
            .arg("--socket")
            .arg(socket)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the program can be started");
        let output = process.stdout.take().expect("piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let tcp = lines.next().expect("where it listens");
        let address = tcp.strip_prefix("listening on tcp ").expect("an address");
        let socket = lines.next().expect("where it listens");
        assert!(socket.starts_with("listening on socket "), "{socket}");
        Self {
            address: address.to_owned(),
            process,
        }
    }

    fn terminate(&self) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.expect("kill can be started").success());
    }
}

fn cuzk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuzk"))
        .args(arguments)
        .output()
        .expect("the program can be started")
}

fn cuzk_ok(arguments: &[&str]) -> String {
    let output = cuzk(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cuzk {arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn cuzk_fails(arguments: &[&str]) -> (i32, String) {
    let output = cuzk(arguments);
    let code = output.status.code().expect("no signal");
    (code, String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn a_server_is_asked_and_told_to_end() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (socket, request, proof) = (file("s"), file("request.json"), file("proof"));
    let trace = file("trace.json");
    let params = keys().display().to_string();
    let cpu = ["--set", "device.policy=cpu"];
    let arguments = [&["--params", &params, "--trace", &trace][..], &cpu].concat();
    let mut served = Served::start(Path::new(&socket), &arguments, Stdio::inherit());
    let address = served.address.clone();
    let tcp = ["--address", address.as_str()];
    let unix = ["--socket", socket.as_str()];
    let ask = |server: [&str; 2], command: &[&str]| cuzk_ok(&[command, &server].concat());
    let fails = |command: &[&str]| cuzk_fails(&[command, &tcp].concat());

    cuzk_ok(&["fixture", "--kind", "wpost", "--out", &request]);
    let preloaded = ask(unix, &["preload", "wpost-2k"]);
    assert!(preloaded.starts_with("loaded "), "{preloaded}");
    let job = ask(tcp, &["submit", "--request", &request]);
    let job = job.trim();
    let report = ask(unix, &["await", job, "--out", &proof]);
    assert!(report.contains("proof of 192 bytes"), "{report}");
    cuzk_ok(&[
        "verify",
        "--request",
        &request,
        "--proof",
        &proof,
        "--params",
        &params,
        "--allow-test-params",
    ]);
    let status = ask(tcp, &["status"]);
    assert!(status.contains(" 1 proofs made, 0 failed"), "{status}");
    assert!(status.contains("key wpost-2k"), "{status}");
    let no_device = "no device, device.policy is cpu: proofs are made on the processor";
    assert!(status.lines().any(|line| line == no_device), "{status}");
    let status: serde_json::Value =
        serde_json::from_str(&ask(tcp, &["status", "--json"])).expect("JSON");
    assert_eq!(status["device_policy"], "cpu");
    assert_eq!(
        status["no_device_reason"],
        "proofs are made on the processor"
    );
    assert_eq!(status["memory_waits"], serde_json::json!([]));
    assert_eq!(ask(tcp, &["cancel", job]), "was running: false\n");
    assert!(ask(tcp, &["evict", "wpost-2k"]).starts_with("freed "));
    assert_eq!(ask(unix, &["evict", "wpost-2k"]), "was not loaded\n");

    let (code, errors) = fails(&["await", "nothing"]);
    assert_eq!(code, 3, "{errors}");
    let (code, errors) = fails(&["preload", "porep-64g"]);
    assert_eq!(code, 4, "{errors}");
    // Its place is taken while it lives.
    let (code, errors) = cuzk_fails(&["serve", "--listen", "", "--socket", &socket]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("another process listens on it"), "{errors}");

    assert!(!Path::new(&trace).exists());
    served.terminate();
    let ended = served.process.wait().expect("our child");
    assert_eq!(ended.code(), Some(0));
    assert!(!Path::new(&socket).exists());
    let trace = std::fs::read(&trace).expect("written at the end");
    let trace: serde_json::Value = serde_json::from_slice(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let verified = |event: &&serde_json::Value| event["name"] == "verify_all";
    assert_eq!(events.iter().filter(verified).count(), 1);
    let (code, errors) = fails(&["status"]);
    assert_eq!(code, 1);
    assert!(errors.contains("no server answers"), "{errors}");
    assert!(
        errors.contains("is `cuzk serve` running there?"),
        "{errors}"
    );
}

/// What a part of WindowPoSt takes, stored rows aside.
fn part_bytes() -> u64 {
    let mut config = Config::new(keys().to_owned());
    config.allow_test_params = true;
    let engine = Engine::from_config(&config).expect("an engine");
    let circuit = FilecoinCircuit::new(ProofKind::WindowPost, SectorSize::KiB2);
    engine.check(&circuit).expect("there is a key")
}

/// Synthesised whole for lack of memory: whoever made the proof and whoever asked for it
/// are told, in text and in JSON, and so is the log.
#[test]
fn a_part_made_whole_for_lack_of_memory_is_told_everywhere() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (socket, request) = (file("s"), file("request.json"));
    cuzk_ok(&["fixture", "--kind", "wpost", "--out", &request]);
    let params = keys().display().to_string();
    let limit = format!("memory.limit={}", part_bytes());
    let tight = ["--log", "info", "--params", &params, "--set", &limit];
    let want = "whole-no-memory";
    let in_text = format!(", synthesis {want}, retries 0");
    let in_log = |log: &str| {
        let made = log.lines().find(|line| line.contains("proof made"));
        let made = made.expect(log);
        assert!(made.contains(&format!(" synthesis=\"{want}\" ")), "{made}");
    };
    let in_json = |text: &[u8]| {
        let report: serde_json::Value = serde_json::from_slice(text).expect("JSON");
        assert_eq!(report["synthesis"], want);
    };

    let log_file = std::fs::File::create(file("log")).expect("writable");
    let mut served = Served::start(Path::new(&socket), &tight, log_file.into());
    let unix = ["--socket", socket.as_str()];
    let job = cuzk_ok(&[&["submit", "--request", &request][..], &unix].concat());
    let wait = ["await", job.trim()];
    let report = cuzk_ok(&[&wait[..], &unix].concat());
    assert!(report.contains(&in_text), "{report}");
    in_json(cuzk_ok(&[&wait[..], &unix, &["--json"]].concat()).as_bytes());
    served.terminate();
    assert!(served.process.wait().expect("our child").success());
    in_log(&std::fs::read_to_string(file("log")).expect("a log"));

    let prove = |out: &str, more: &[&str]| {
        let out = file(out);
        let prove = ["prove", "--request", &request, "--out", &out];
        let set = ["--set", "hints.file=", "--allow-test-params"];
        let output = cuzk(&[&prove[..], &set, &tight, more].concat());
        in_log(&String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let report = String::from_utf8(prove("one", &[])).expect("text");
    assert!(report.contains(&in_text), "{report}");
    in_json(&prove("two", &["--json"]));
}

/// What a server logs at the default level until it is told to end.
fn log_of(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let log = directory.path().join("log");
    let log_file = std::fs::File::create(&log).expect("writable");
    let socket = directory.path().join("s");
    let mut served = Served::start(&socket, arguments, log_file.into());
    // It prepares while it listens already: what it logs is awaited.
    let begun = std::time::Instant::now();
    let text = loop {
        let text = std::fs::read_to_string(&log).expect("a log");
        if text.lines().any(|line| line.contains(" ready ")) {
            break text;
        }
        assert!(begun.elapsed() < DEADLINE, "never ready: {text}");
        std::thread::yield_now();
    };
    served.terminate();
    assert!(served.process.wait().expect("our child").success());
    text
}

#[test]
fn a_server_says_when_it_is_ready_and_warns_without_keys() {
    let params = keys().display().to_string();
    let log = log_of(&["--params", &params, "--set", "device.policy=cpu"]);
    let [ready] = log.lines().collect::<Vec<_>>()[..] else {
        panic!("more than that it is ready: {log}");
    };
    let told = "ready circuits=\"wpost-2k\" on=\"the processor\"";
    assert!(ready.contains("INFO") && ready.contains(told), "{ready}");

    // Whatever devices there are, none is used.
    let settings = [
        "device.policy=cpu",
        "device.memory=10GiB",
        "tuning.split_on_cpu=true",
    ];
    let given = settings.map(|setting| ["--set", setting]);
    let log = log_of(&[&["--params", &params][..], given.as_flattened()].concat());
    let warned = |text: &str| {
        let lines = log.lines().filter(|line| line.contains(" WARN "));
        lines.filter(|line| line.contains(text)).count()
    };
    assert_eq!(
        warned("reason=\"device.policy is \\\"cpu\\\"\""),
        1,
        "{log}"
    );
    for unused in ["device.memory = 10737418240", "tuning.split_on_cpu = true"] {
        let told = format!("this setting has no effect: {unused} (--set): no device is used");
        assert_eq!(warned(&told), 1, "{log}");
    }
    assert_eq!(warned("has no effect"), 2, "{log}");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (missing, empty) = (path("missing"), path("empty"));
    std::fs::create_dir(&empty).expect("writable");
    for (params, why) in [
        (
            &missing,
            "the directory of the keys (params.directory) is not there",
        ),
        (&empty, "no key of any circuit is there"),
    ] {
        let log = log_of(&["--params", params]);
        let warns = |line: &str| line.contains(" WARN ") && line.contains(why);
        let warning = log.lines().find(|line| warns(line)).expect(&log);
        assert!(warning.contains(params.as_str()), "{warning}");
        assert!(log.contains("ready circuits=\"none\""), "{log}");
    }
    let circuit = FilecoinCircuit::new(ProofKind::WindowPost, SectorSize::KiB2);
    let key = Path::new(&empty).join(circuit.params_file());
    std::fs::write(key, "no key").expect("writable");
    let log = log_of(&["--params", &empty]);
    assert!(log.contains("no key can be used"), "{log}");
}
