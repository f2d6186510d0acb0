//! The end of a server's process: what becomes of the proofs that it makes.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::served::Served;
use crate::support::{cuzk_ok, key, real_request, stock_verdict, text};

/// Synthetic WinningPoSt requests, about a second's work each.
fn winning_requests(here: &Path, count: u64) -> Vec<PathBuf> {
    let request = |seed: u64| {
        let path = here.join(format!("request-{seed}.json"));
        let (seed, out) = (seed.to_string(), text(&path));
        let kind = ["--kind", "winning"];
        cuzk_ok(&[&["fixture", "--seed", &seed, "--out", out], &kind[..]].concat());
        path
    };
    (1..=count).map(request).collect()
}

/// Terminates a server; it drains, and refuses new jobs.
fn drain(served: &Served, request: &Path) {
    served.terminate();
    served.says("draining");
    let refused = served.try_submit(request);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.contains("takes no new jobs"), "{errors}");
}

#[test]
fn a_server_that_is_terminated_finishes_its_proofs() {
    key("winning");
    let here = TempDir::new().expect("a temporary directory");
    let requests = winning_requests(here.path(), 7);
    let (late, requests) = requests.split_last().expect("some");
    let mut served = Served::start();
    let waits: Vec<_> = requests
        .iter()
        .map(|request| {
            let proof = request.with_extension("proof");
            let job = served.submit(request);
            (request, served.begin_wait(&job, &proof), proof)
        })
        .collect();
    served.works_on("WINNING_POST");
    drain(&served, late);
    for (request, wait, proof) in waits {
        let ended = wait.wait_with_output().expect("our child");
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{errors}\n{}", served.errors());
        assert_eq!(stock_verdict(request, &proof), "accepted");
    }
    assert_eq!(served.wait().code(), Some(0), "{}", served.errors());
    assert!(!served.socket.exists());
}

#[test]
fn a_server_that_is_terminated_twice_ends_at_once() {
    key("porep");
    let here = TempDir::new().expect("a temporary directory");
    let late = winning_requests(here.path(), 1);
    let mut served = Served::start();
    // Half a minute's work.
    let job = served.submit(&real_request("porep"));
    served.works_on("POREP_SEAL_COMMIT");
    let proof = here.path().join("proof");
    let wait = served.begin_wait(&job, &proof);
    drain(&served, &late[0]);
    served.terminate();
    assert_eq!(served.wait().code(), Some(1), "{}", served.errors());
    let errors = served.errors();
    assert!(errors.contains("ended with 1 jobs unfinished"), "{errors}");
    // Who waited is told that there is no proof.
    let ended = wait.wait_with_output().expect("our child");
    assert_eq!(ended.status.code(), Some(1));
    assert!(!proof.exists());
}
