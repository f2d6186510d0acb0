//! Commands that need no server, as a person at a terminal meets them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cuzk_core::CircuitSpec;
use cuzk_core::keygen::sidecar_path;
use cuzk_filecoin::{FilecoinCircuit, ProofKind, Request, SectorSize};
use tempfile::TempDir;

use crate::support::keys;

fn run(arguments: &[&OsStr], place: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuzk"))
        .args(arguments)
        .current_dir(place)
        .env("XDG_CACHE_HOME", place)
        .env_remove("FIL_PROOFS_PARAMETER_CACHE")
        .output()
        .expect("the program can be started")
}

/// What a command prints, with its exit code in front if it is not zero, and without
/// what differs from machine to machine.
fn told(arguments: &[&str], place: &TempDir) -> String {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let output = run(&arguments, place.path());
    let text = match output.status.code().expect("no signal") {
        0 => String::from_utf8(output.stdout).expect("text"),
        code => format!(
            "exit {code}: {}",
            String::from_utf8(output.stderr).expect("text")
        ),
    };
    let here = place.path().display().to_string();
    let lines = text.lines().map(|line| match line.split_once(": ") {
        Some(("processor", _)) => "processor: (of this machine)".to_owned(),
        _ => line
            .trim_end()
            .replace(&here, "HERE")
            .replace(env!("CARGO_PKG_VERSION"), "VERSION"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn path(directory: &Path, kind: ProofKind, size: SectorSize) -> PathBuf {
    directory.join(FilecoinCircuit::new(kind, size).params_file())
}

fn vk_path(directory: &Path, kind: ProofKind, size: SectorSize) -> PathBuf {
    directory.join(FilecoinCircuit::new(kind, size).vk_file())
}

/// A directory with one of everything that can be where a key should be.
fn mixed_keys(directory: &Path) {
    use ProofKind::{PoRep, WindowPost};
    use SectorSize::{KiB2, MiB8, MiB512};
    fs::create_dir(directory).expect("writable");
    let good = path(keys(), WindowPost, KiB2);
    let good_vk = vk_path(keys(), WindowPost, KiB2);
    let test = path(directory, WindowPost, KiB2);
    fs::copy(&good, &test).expect("copied");
    fs::copy(sidecar_path(&good), sidecar_path(&test)).expect("copied");
    fs::copy(&good_vk, vk_path(directory, WindowPost, KiB2)).expect("copied");
    // Nothing says that these were generated.
    fs::copy(&good, path(directory, WindowPost, MiB8)).expect("copied");
    fs::copy(&good_vk, vk_path(directory, WindowPost, MiB8)).expect("copied");
    let bytes = fs::read(&good).expect("readable");
    let cut = path(directory, WindowPost, MiB512);
    fs::write(cut, &bytes[..bytes.len() / 2]).expect("writable");
    let long = vk_path(directory, WindowPost, MiB512);
    fs::write(long, &bytes[..bytes.len() / 2]).expect("writable");
    fs::write(path(directory, PoRep, KiB2), b"").expect("writable");
    fs::create_dir(vk_path(directory, PoRep, KiB2)).expect("writable");
    fs::create_dir(path(directory, PoRep, MiB8)).expect("writable");
    symlink("elsewhere.params", path(directory, PoRep, MiB512)).expect("writable");
}

#[test]
fn the_doctor_tells_files_as_what_they_are() {
    let here = TempDir::new().expect("a temporary directory");
    mixed_keys(&here.path().join("keys"));
    let doctor = |limit: &str, more: &[&str]| {
        let limit = format!("memory.limit={limit}");
        // Working memory depends on the number of threads.
        let set = ["--set", &limit, "--set", "engine.threads=2"];
        told(
            &[&set[..], &["doctor", "--params", "keys"], more].concat(),
            &here,
        )
    };
    insta::assert_snapshot!("doctor", doctor("1GiB", &[]));
    let digests = doctor("8MiB", &["--digests"]);
    let rows: Vec<&str> = digests
        .lines()
        .filter(|line| line.starts_with("wpost-") || line.starts_with("  keys/"))
        .collect();
    insta::assert_snapshot!("doctor_digests", rows.join("\n"));
}

#[test]
fn a_directory_need_not_be_text() {
    let here = TempDir::new().expect("a temporary directory");
    let name = OsStr::from_bytes(b"keys-\xff\xfe");
    symlink(keys(), here.path().join(name)).expect("writable");
    let arguments = ["doctor", "--params"].map(OsStr::new);
    let output = run(&[&arguments[..], &[name]].concat(), here.path());
    let text = String::from_utf8(output.stdout).expect("text");
    let row = text.lines().find(|line| line.starts_with("wpost-2k"));
    assert!(row.expect("a row").contains("test key"), "{text}");
}

#[test]
fn fixtures_take_their_options() {
    let here = TempDir::new().expect("a temporary directory");
    let options = "fixture --kind wpost --sectors 1 --partition 3 --registered-proof 5 \
                   --miner 1234 --first-sector 50 --seed 7 --out request.json";
    let arguments: Vec<&str> = options.split_whitespace().collect();
    assert_eq!(told(&arguments, &here), "");
    let file = fs::read(here.path().join("request.json")).expect("written");
    let request = Request::from_json(&file).expect("a request");
    assert_eq!(request.registered_proof, 5);
    assert_eq!(request.partition_index, 3);
    assert_eq!(request.vanilla_proofs.len(), 1);
    assert_eq!(request.miner_id, 1234);
    // The partitions before it are full: two sectors each.
    assert_eq!(request.request_id, "wpost-2k-1234-56-7-p5");
    let workload = request.workload().expect("a good one");
    workload.check_vanilla().expect("holds");

    let wrong = [
        "--kind wpost --sectors 3",
        "--kind wpost --sectors 0",
        "--kind wpost --partition 3000",
        "--kind wpost --registered-proof 0",
        "--kind wpost --registered-proof 6",
        "--kind wpost --registered-proof 15",
        "--kind wpost --first-sector 18446744073709551615",
        "--kind porep --registered-proof 10",
        "--kind porep --registered-proof 7",
        "--kind snap --registered-proof 5",
        "--kind winning --registered-proof 5",
        "--kind porep --sectors 1",
        "--kind winning --partition 0",
    ];
    let told: Vec<String> = wrong
        .iter()
        .map(|options| {
            let arguments: Vec<&str> = ["fixture"]
                .into_iter()
                .chain(options.split_whitespace())
                .collect();
            format!("{options}\n  {}", told(&arguments, &here))
        })
        .collect();
    insta::assert_snapshot!("fixture_options", told.join("\n"));
}

#[test]
fn help_says_what_options_mean() {
    let here = TempDir::new().expect("a temporary directory");
    for command in ["fixture", "doctor", "submit"] {
        insta::assert_snapshot!(format!("help_{command}"), told(&[command, "--help"], &here));
    }
}

#[test]
fn a_verifying_key_is_told_from_a_cut_key() {
    let here = TempDir::new().expect("a temporary directory");
    let vk = vk_path(keys(), ProofKind::WindowPost, SectorSize::KiB2);
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let report = told(&["params", "inspect", &text(&vk)], &here);
    let lines: Vec<&str> = report.lines().collect();
    assert!(
        lines[0].ends_with(".vk: a verifying key, 3.00 KiB, an insecure test key"),
        "{report}"
    );
    assert_eq!(lines[2], "ic                 23              868");
    assert_eq!(
        lines[3],
        "checked: every point is in the prime-order subgroup"
    );

    let cut = here.path().join("cut.vk");
    let bytes = fs::read(&vk).expect("readable");
    fs::write(&cut, &bytes[..bytes.len() - 1]).expect("writable");
    let report = told(&["params", "check", &text(&cut)], &here);
    assert_eq!(
        report,
        "exit 4: cuzk: key file HERE/cut.vk: section ic at offset 864 needs 2212 bytes, \
         the file has 2211 left"
    );
}

#[test]
fn what_comes_from_outside_cannot_speak_to_the_terminal() {
    let here = TempDir::new().expect("a temporary directory");
    let hostile = r#"{"request": {"proof_kind": "\u001b[2J\u009b31m\nexit 0: fine"}}"#;
    fs::write(here.path().join("request.json"), hostile).expect("writable");
    let out = ["--request", "request.json", "--out", "proof"];
    assert_eq!(
        told(&[&["prove"], &out[..]].concat(), &here),
        r"exit 3: cuzk: proof_kind: unknown proof kind `\u{1b}[2J\u{9b}31m\nexit 0: fine`, expected one of porep, snap, wpost, winning"
    );
    let named = told(&["params", "inspect", "\u{1b}[31mkey\u{202e}"], &here);
    assert_eq!(
        named,
        r"exit 4: cuzk: key file \u{1b}[31mkey\u{202e}: No such file or directory (os error 2)"
    );
}

#[test]
fn a_limit_of_more_memory_than_there_is_is_warned_of() {
    let here = TempDir::new().expect("a temporary directory");
    let limit = |limit: &str| format!("memory.limit={limit}");
    let wanted = "warning: memory.limit is 1.00 EiB (1152921504606846976 bytes), and there are ";
    let doctor = |bytes: &str| told(&["doctor", "--set", &limit(bytes), "--params", "."], &here);
    assert!(doctor("1048576TiB").contains(wanted));
    assert!(!doctor("1MiB").contains("warning: memory.limit"));
    // A start is told too, here of one that then finds no key.
    let fixture = ["fixture", "--kind", "wpost", "--out", "request.json"];
    assert_eq!(told(&fixture, &here), "");
    let prove = |bytes: &str| {
        let limit = limit(bytes);
        let arguments = ["prove", "--request", "request.json", "--out", "proof"];
        let more = [
            "--set",
            &limit,
            "--set",
            "device.policy=cpu",
            "--params",
            ".",
        ];
        told(&[&arguments[..], &more].concat(), &here)
    };
    assert!(prove("1048576TiB").contains("memory.limit is 1.00 EiB"));
    assert!(!prove("1MiB").contains("memory.limit"));
}

#[test]
fn a_proof_that_is_none_is_wrong_input_whatever_keys_there_are() {
    let here = TempDir::new().expect("a temporary directory");
    let at = |name: &str| here.path().join(name);
    assert_eq!(
        told(
            &["fixture", "--kind", "wpost", "--out", "request.json"],
            &here
        ),
        ""
    );
    fs::write(at("short"), b"no proof").expect("writable");
    fs::write(at("zeros"), [0; 192]).expect("writable");
    fs::create_dir(at("keys")).expect("writable");
    let verify = |proof: &str| {
        let arguments = ["verify", "--request", "request.json", "--params", "keys"];
        told(&[&arguments[..], &["--proof", proof]].concat(), &here)
    };
    assert_eq!(verify("short"), "exit 3: cuzk: proof: 8 bytes, must be 192");
    assert!(verify("zeros").starts_with("exit 3: cuzk: proof[0]: "));
    assert!(verify("keys").starts_with("exit 3: cuzk: keys: not a regular file"));
    assert!(verify("none").starts_with("exit 3: cuzk: none: No such file"));
}

/// The value of a field on a line of the log.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!(" {name}=")).expect(name);
    rest.split(' ').next().unwrap_or_default()
}

#[test]
fn a_proof_is_reported_and_its_stages_are_logged() {
    let here = TempDir::new().expect("a temporary directory");
    told(
        &["fixture", "--kind", "wpost", "--out", "request.json"],
        &here,
    );
    let keys = keys().as_os_str();
    let arguments = [
        "prove",
        "--log",
        "info",
        "--request",
        "request.json",
        "--out",
        "proof",
    ]
    .map(OsStr::new);
    let key_options = ["--allow-test-params", "--params"].map(OsStr::new);
    let output = run(
        &[&arguments[..], &key_options, &[keys]].concat(),
        here.path(),
    );
    let log = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{log}");
    let report = String::from_utf8(output.stdout).expect("text");
    let key = path(Path::new(keys), ProofKind::WindowPost, SectorSize::KiB2);
    let line = format!("insecure test key: {}", key.display());
    assert!(report.lines().any(|have| have == line), "{report}");

    let with =
        |what: &str| -> Vec<&str> { log.lines().filter(|line| line.contains(what)).collect() };
    let stages: Vec<&str> = with("stage ended")
        .iter()
        .map(|line| field(line, "stage"))
        .collect();
    let want = ["reserve", "synthesis", "prove", "verify"].map(|stage| format!("\"{stage}\""));
    assert_eq!(stages, want);
    let [timing] = with("CUZK_TIMING")[..] else {
        panic!("{log}");
    };
    assert_eq!(field(timing, "num_circuits"), "1");
    assert_eq!(field(timing, "abc_bytes_each"), (32 << 15).to_string());
    assert_eq!(field(timing, "is_pinned"), "false");
    let ms = |name| field(timing, name).parse::<f64>().expect("a number");
    assert_eq!(ms("pin_abc_ms"), 0.0);
    let parts = ms("ntt_msm_h_ms") + ms("tail_msm_ms") + ms("b_g2_msm_ms");
    assert!(parts > 0.0 && parts <= ms("gpu_total_ms") + 0.2, "{timing}");
    assert_eq!(with("proof made").len(), 1, "{log}");
}

#[test]
fn a_doctor_who_finds_nothing_that_proves_fails() {
    let here = TempDir::new().expect("a temporary directory");
    let doctor = |policy: &str| {
        let policy = format!("device.policy={policy}");
        let arguments = ["doctor", "--set", &policy, "--set", "device.index=4711"];
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        run(&arguments, here.path())
    };
    let required = doctor("require-gpu");
    assert_eq!(required.status.code(), Some(1));
    let why = String::from_utf8(required.stderr).expect("text");
    assert!(why.contains("nothing can be proved"), "{why}");
    // What it found is printed all the same.
    let text = String::from_utf8(required.stdout).expect("text");
    assert!(text.contains("device.index: 4711\n"), "{text}");
    for policy in ["cpu", "prefer-gpu"] {
        assert!(doctor(policy).status.success(), "{policy}");
    }
}
