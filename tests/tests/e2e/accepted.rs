//! Proofs that the stock software accepts.

use std::path::Path;

use tempfile::TempDir;

use crate::support::{cuzk, cuzk_ok, key, real_request, stock_verdict, text};

/// Proves a request with `cuzk prove`; the proof is accepted by the stock verifier
/// and by `cuzk verify`, and not once a bit of it is flipped.
fn is_accepted(kind: &str, request: &Path) {
    let here = TempDir::new().expect("a temporary directory");
    let keys = key(kind);
    let proof = here.path().join("proof");
    let report = cuzk_ok(&[
        "prove",
        "--request",
        text(request),
        "--params",
        text(&keys),
        "--allow-test-params",
        "--out",
        text(&proof),
        "--json",
    ]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["backend"], "cpu");
    assert_eq!(report["is_pinned"], false);
    assert_eq!(report["proof_bytes"], 192);
    assert_eq!(stock_verdict(request, &proof), "accepted");

    let verify = |proof: &Path| {
        cuzk(&[
            "verify",
            "--request",
            text(request),
            "--params",
            text(&keys),
            "--allow-test-params",
            "--proof",
            text(proof),
        ])
    };
    assert_eq!(verify(&proof).status.code(), Some(0));
    // The proof's C is another point of the curve: its sign bit says so.
    let mut bytes = std::fs::read(&proof).expect("readable");
    bytes[144] ^= 0x20;
    let flipped = here.path().join("flipped");
    std::fs::write(&flipped, bytes).expect("writable");
    assert_eq!(stock_verdict(request, &flipped), "rejected");
    assert_eq!(verify(&flipped).status.code(), Some(6));
}

/// A synthetic request of a kind, made by `cuzk fixture`.
fn is_accepted_synthetic(kind: &str) {
    let here = TempDir::new().expect("a temporary directory");
    let request = here.path().join("request.json");
    cuzk_ok(&[
        "fixture",
        "--kind",
        kind,
        "--seed",
        "5",
        "--out",
        text(&request),
    ]);
    is_accepted(kind, &request);
}

#[test]
fn a_real_window_post() {
    is_accepted("wpost", &real_request("wpost"));
}

#[test]
fn a_real_winning_post() {
    is_accepted("winning", &real_request("winning"));
}

#[test]
fn a_real_porep() {
    is_accepted("porep", &real_request("porep"));
}

#[test]
fn a_real_replica_update() {
    is_accepted("snap", &real_request("snap"));
}

#[test]
fn a_synthetic_window_post() {
    is_accepted_synthetic("wpost");
}

#[test]
fn a_synthetic_winning_post() {
    is_accepted_synthetic("winning");
}

#[test]
fn a_synthetic_porep() {
    is_accepted_synthetic("porep");
}

#[test]
fn the_demo_proves_from_nothing() {
    let here = TempDir::new().expect("a temporary directory");
    let told = cuzk_ok(&["demo", "--dir", text(here.path())]);
    assert!(told.contains("proof of 192 bytes, verified"), "{told}");
    assert!(
        told.contains("msm_h") && told.contains("synthesis"),
        "{told}"
    );
    // The key is kept for the next time.
    let kept = std::fs::read_dir(here.path()).expect("readable").count();
    assert_eq!(
        kept, 3,
        "a key, its verifying key, and the file that says it is insecure"
    );
    cuzk_ok(&["demo", "--dir", text(here.path())]);
}
