//! Running the programs, and the keys that all tests share.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use cuzk_core::Config;
use tempfile::TempDir;

/// The kinds, as request files and commands name them.
pub(crate) const KINDS: [&str; 4] = ["porep", "snap", "wpost", "winning"];

/// The seed of the test keys.
pub(crate) const KEY_SEED: &str = "3";

/// Runs `cuzk`; its caches are in the tests' own directory.
pub(crate) fn cuzk(arguments: &[&str]) -> Output {
    program()
        .args(arguments)
        .output()
        .expect("the program can be started")
}

/// The `cuzk` program, to be started as [`cuzk`] starts it.
pub(crate) fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cuzk_cli"));
    program
        .env("XDG_CACHE_HOME", scratch().join("cache"))
        .env_remove("FIL_PROOFS_PARAMETER_CACHE")
        .env_remove("RUST_BACKTRACE");
    program
}

/// Runs `cuzk` and expects success; its standard output.
pub(crate) fn cuzk_ok(arguments: &[&str]) -> String {
    let output = cuzk(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "cuzk {arguments:?}: {}\n{errors}",
        output.status
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Runs `cuzk` and expects failure: its exit code and why it ended, with the
/// directories of this run replaced by words. Lines of the log, which have a time,
/// are left out.
pub(crate) fn cuzk_fails(arguments: &[&str], here: &Path) -> String {
    let output = cuzk(arguments);
    let code = output.status.code().expect("an exit code and no signal");
    assert_ne!(code, 0, "cuzk {arguments:?} succeeded");
    let errors = String::from_utf8(output.stderr).expect("text");
    let told: Vec<&str> = errors
        .lines()
        .filter(|line| line.starts_with("cuzk:") || line.starts_with("error:"))
        .collect();
    let told = told
        .join("\n")
        .replace(&here.display().to_string(), "HERE")
        .replace(&keys().display().to_string(), "KEYS")
        .replace(&data().display().to_string(), "DATA");
    format!("exit {code}: {told}")
}

/// What the stock software says of a proof, with our generated verifying keys.
pub(crate) fn stock_verdict(request: &Path, proof: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_stock_verify"))
        .args([request, proof])
        .env("FIL_PROOFS_PARAMETER_CACHE", keys())
        .current_dir(scratch())
        .output()
        .expect("the program can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "stock verifier: {errors}");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<TempDir> = OnceLock::new();
    SCRATCH
        .get_or_init(|| TempDir::new().expect("a temporary directory"))
        .path()
}

/// The directory of the test keys. [`key`] makes them.
pub(crate) fn keys() -> PathBuf {
    scratch().join("keys")
}

/// The 2 KiB test key of a kind, made once a run; the directory of all of them.
pub(crate) fn key(kind: &str) -> PathBuf {
    static MADE: [OnceLock<()>; KINDS.len()] = [const { OnceLock::new() }; KINDS.len()];
    let place = KINDS.iter().position(|known| *known == kind);
    MADE[place.expect("a kind with keys")].get_or_init(|| {
        let out = keys().display().to_string();
        cuzk_ok(&[
            "params", "generate", "--kind", kind, "--out", &out, "--seed", KEY_SEED,
        ]);
    });
    keys()
}

/// The key file of a kind.
pub(crate) fn key_file(kind: &str) -> PathBuf {
    let part = match kind {
        "porep" => "stacked-proof-of-replication",
        "snap" => "empty-sector-update",
        "wpost" => "proof-of-spacetime-fallback-merkletree-poseidon_hasher-8-0-0-0170db1f",
        _ => "proof-of-spacetime-fallback",
    };
    let mut found: Vec<PathBuf> = std::fs::read_dir(key(kind))
        .expect("keys were made")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "params")
        })
        .filter(|path| path.display().to_string().contains(part))
        .collect();
    found.sort();
    found.pop().expect("the key was made")
}

/// The request files of really sealed sectors.
pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cuzk-filecoin/tests/data")
}

/// The request file of a kind, of a really sealed 2 KiB sector.
pub(crate) fn real_request(kind: &str) -> PathBuf {
    data().join(format!("{kind}-2k.json"))
}

/// An engine's configuration with the test keys of a kind.
pub(crate) fn config(kind: &str) -> Config {
    let mut config = Config::new(key(kind));
    config.allow_test_params = true;
    config
}

/// Paths as arguments.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}
