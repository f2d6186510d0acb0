//! Bad input through the `cuzk` program: an exit code, a message with the place in
//! it, and nothing left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cuzk_core::{Engine, JobOptions, ProveError};
use cuzk_filecoin::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{config, cuzk_fails, cuzk_ok, key, key_file, real_request, text};

/// A directory of one test, and what its commands said.
struct Scene {
    here: TempDir,
    told: Vec<String>,
}

impl Scene {
    fn new() -> Self {
        Self {
            here: TempDir::new().expect("a temporary directory"),
            told: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("writable");
        path
    }

    /// Runs a command that must fail.
    fn fails(&mut self, title: &str, arguments: &[&str]) {
        let told = cuzk_fails(arguments, self.here.path());
        self.told.push(format!("{title}\n  {told}"));
    }

    /// `cuzk prove` of a request file, which must fail and leave no proof.
    fn prove_fails(&mut self, title: &str, request: &Path, more: &[&str]) {
        let out = self.path("proof");
        let mut arguments = vec!["prove", "--request", text(request), "--out", text(&out)];
        arguments.extend(more);
        self.fails(title, &arguments);
        let left = fs::read_dir(self.here.path()).expect("readable");
        for entry in left {
            let name = entry
                .expect("readable")
                .file_name()
                .into_string()
                .expect("text");
            assert!(!name.starts_with("proof"), "{title}: {name} is left");
        }
    }

    /// A copy of a request with a field changed.
    fn changed(&self, kind: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
        let mut file: Value =
            serde_json::from_slice(&fs::read(real_request(kind)).expect("readable")).expect("JSON");
        change(&mut file["request"]);
        self.write("request.json", file.to_string())
    }

    fn told(self) -> String {
        self.told.join("\n")
    }
}

/// A C1 output in the client's wrapper, in base64.
fn wrapped(c1: &[u8]) -> Value {
    let wrapper = json!({"SectorNum": 11, "Phase1Out": STANDARD.encode(c1), "SectorSize": 2048});
    STANDARD.encode(wrapper.to_string()).into()
}

/// The real C1 output.
fn c1() -> Vec<u8> {
    let file: Value =
        serde_json::from_slice(&fs::read(real_request("porep")).expect("readable")).expect("JSON");
    let wrapper = STANDARD.decode(file["request"]["vanilla_proof"].as_str().expect("text"));
    let wrapper: Value = serde_json::from_slice(&wrapper.expect("base64")).expect("JSON");
    STANDARD
        .decode(wrapper["Phase1Out"].as_str().expect("text"))
        .expect("base64")
}

#[test]
fn requests() {
    let mut scene = Scene::new();
    let c1 = c1();
    let html = b"<html><body>502 Bad Gateway</body></html>";
    let mut garbled = c1.clone();
    garbled[c1.len() / 2] = b'@';
    for (title, bytes) in [
        ("truncated C1", &c1[..c1.len() / 2]),
        ("garbled C1", &garbled),
        ("HTML C1", html),
    ] {
        let path = scene.changed("porep", |request| request["vanilla_proof"] = wrapped(bytes));
        scene.prove_fails(title, &path, &[]);
    }
    let bare = scene.write("c1.json", html);
    let out = scene.path("proof");
    let arguments = ["--miner", "1000", "--sector", "11", "--out", text(&out)];
    scene.fails(
        "bare HTML C1",
        &[&["prove", "--c1", text(&bare)][..], &arguments].concat(),
    );
    let bare = scene.write("c1.json", &c1);
    let arguments = ["--miner", "1001", "--sector", "11", "--out", text(&out)];
    scene.fails(
        "bare C1 of another miner",
        &[&["prove", "--c1", text(&bare)][..], &arguments].concat(),
    );

    let changes: [(&str, &str, &str, Value); 7] = [
        ("wrong miner", "porep", "miner_id", 1001.into()),
        ("wrong sector", "porep", "sector_number", 12.into()),
        ("wrong kind", "porep", "proof_kind", "WINNING_POST".into()),
        (
            "sector size that disagrees",
            "porep",
            "sector_size",
            8388608.into(),
        ),
        ("unknown sector size", "wpost", "sector_size", 4096.into()),
        (
            "randomness of 31 bytes",
            "wpost",
            "randomness",
            STANDARD.encode([1; 31]).into(),
        ),
        (
            "other randomness",
            "wpost",
            "randomness",
            STANDARD.encode([1; 32]).into(),
        ),
    ];
    for (title, kind, field, value) in changes {
        let path = scene.changed(kind, |request| request[field] = value);
        let keys = key("wpost");
        scene.prove_fails(
            title,
            &path,
            &["--params", text(&keys), "--allow-test-params"],
        );
    }
    let path = scene.changed("wpost", |request| {
        let proof = request["vanilla_proofs"][1].as_str().expect("text");
        let bytes = STANDARD.decode(proof).expect("base64");
        request["vanilla_proofs"][1] = STANDARD.encode(&bytes[..bytes.len() - 1]).into();
    });
    scene.prove_fails("a sector proof cut by a byte", &path, &[]);
    let path = scene.write(
        "request.json",
        b"{\"request\": {\"proof_kind\": \"WINNING_POST\"",
    );
    scene.prove_fails("a cut request file", &path, &[]);
    let path = scene.path("none.json");
    scene.prove_fails("no request file", &path, &[]);
    insta::assert_snapshot!(scene.told());
}

#[test]
fn keys() {
    let mut scene = Scene::new();
    let request = real_request("wpost");
    let empty = scene.path("empty");
    fs::create_dir(&empty).expect("writable");
    scene.prove_fails("missing key", &request, &["--params", text(&empty)]);
    let keys = key("wpost");
    scene.prove_fails("test key", &request, &["--params", text(&keys)]);

    let good = key_file("wpost");
    let name = good.file_name().expect("a name").to_owned();
    let bytes = fs::read(&good).expect("readable");
    let report: Value =
        serde_json::from_str(&cuzk_ok(&["params", "inspect", text(&good), "--json"]))
            .expect("JSON");
    let place = scene.path("keys");
    fs::create_dir(&place).expect("writable");
    let file = place.join(&name);
    let arguments = [
        "--params",
        text(&place).to_owned().leak(),
        "--set",
        "params.digest=false",
    ];
    let refuse = |scene: &mut Scene, title: &str, bytes: &[u8]| {
        fs::write(&file, bytes).expect("writable");
        scene.prove_fails(title, &request, &arguments);
    };
    for section in report["sections"].as_array().expect("a list") {
        let name = section["section"].as_str().expect("text");
        let offset = section["offset"].as_u64().expect("a number") as usize;
        refuse(
            &mut scene,
            &format!("key cut in {name}"),
            &bytes[..offset + 50],
        );
        let mut flipped = bytes.clone();
        flipped[offset + 150] ^= 4;
        refuse(&mut scene, &format!("byte flipped in {name}"), &flipped);
    }
    refuse(
        &mut scene,
        "HTML instead of a key",
        b"<!DOCTYPE html><html></html>",
    );
    refuse(&mut scene, "empty key", b"");
    fs::write(&file, fs::read(key_file("winning")).expect("readable")).expect("writable");
    scene.prove_fails("key of another circuit", &request, &arguments);
    // Without the sidecar a generated key is only a file with the wrong digest.
    fs::write(&file, &bytes).expect("writable");
    scene.prove_fails("a generated key in disguise", &request, &arguments[..2]);
    insta::assert_snapshot!(scene.told());
}

#[test]
fn limits_and_options() {
    let mut scene = Scene::new();
    let request = real_request("wpost");
    let keys = key("wpost");
    let keys = ["--params", text(&keys), "--allow-test-params"];
    let small = [&keys[..], &["--set", "memory.limit=1MiB"]].concat();
    scene.prove_fails("budget too small", &request, &small);
    let config = scene.write("cuzk.toml", "[memory]\nlimit = \"1GiB\"\nlimmit = 3\n");
    scene.prove_fails("unknown key", &request, &["--config", text(&config)]);
    scene.fails(
        "unknown override",
        &["--set", "tuning.kei_tier=auto", "config"],
    );
    scene.fails(
        "override without a value",
        &["--set", "tuning.key_tier", "config"],
    );
    scene.fails(
        "no configuration",
        &["--config", text(&scene.path("none.toml")), "config"],
    );

    let proof = scene.write("taken", b"mine");
    let arguments = ["prove", "--request", text(&request), "--out", text(&proof)];
    scene.fails("output exists", &arguments);
    assert_eq!(fs::read(&proof).expect("readable"), b"mine");
    let nowhere = scene.path("no/where");
    let arguments = [
        "prove",
        "--request",
        text(&request),
        "--out",
        text(&nowhere),
    ];
    scene.fails("output nowhere", &arguments);

    let verify = |proof| {
        [
            &["verify", "--request", text(&request), "--proof", proof],
            &keys[..],
        ]
        .concat()
    };
    scene.fails("proof of another length", &verify(text(&proof)));
    let zeros = scene.write("zeros", [0; 192]);
    scene.fails("proof that is no point", &verify(text(&zeros)));

    let here = text(scene.here.path()).to_owned();
    let generate = ["params", "generate", "--kind", "wpost", "--out"];
    let again = [&generate[..], &[keys[1]]].concat();
    scene.fails("key exists", &again);
    let unknown = [
        "params",
        "generate",
        "--kind",
        "wpost",
        "--sector-size",
        "4KiB",
        "--out",
        &here,
    ];
    scene.fails("unknown size", &unknown);
    insta::assert_snapshot!(scene.told());
}

#[test]
fn test_keys_do_not_go_where_real_ones_are() {
    let here = TempDir::new().expect("a temporary directory");
    let directory = here.path().join("parameters");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_cuzk_cli"))
        .args([
            "params",
            "generate",
            "--kind",
            "wpost",
            "--out",
            text(&directory),
        ])
        .env("FIL_PROOFS_PARAMETER_CACHE", &directory)
        .output()
        .expect("the program can be started");
    assert_eq!(output.status.code(), Some(4));
    assert!(!directory.exists(), "the directory is not even made");
}

/// Past the native check of the vanilla proofs, as a client of the libraries could
/// go, an unsatisfied witness is still refused, and its first constraint named.
#[test]
fn an_unsatisfied_witness_names_its_constraint() {
    let scene = Scene::new();
    let path = scene.changed("wpost", |request| {
        let proof = request["vanilla_proofs"][1].as_str().expect("text");
        let mut bytes = STANDARD.decode(proof).expect("base64");
        // The commitment to the columns, which comm_r binds, is next to last.
        let comm_c = bytes.len() - 64;
        bytes[comm_c] ^= 1;
        request["vanilla_proofs"][1] = STANDARD.encode(bytes).into();
    });
    let request = Request::from_json(&fs::read(path).expect("readable")).expect("well formed");
    let workload = Arc::new(request.workload().expect("well formed"));
    let mut config = config("wpost");
    config.hints_file = None;
    let engine = Engine::from_config(&config).expect("an engine");
    let error = engine
        .submit(workload, JobOptions::default())
        .expect("room")
        .wait()
        .expect_err("comm_c is another");
    assert!(
        matches!(error, ProveError::Unsatisfied { part: 0, .. }),
        "{error}"
    );
    insta::assert_snapshot!(error);
    assert_eq!(engine.metrics().parts_retried.count(), 0);
}
