//! A WindowPoSt deadline of three 2 KiB sectors through a server: two sectors in
//! partition 0, one in partition 1, whose second place repeats it. Each partition is
//! a request of its own; the stock verifier is given both proofs at once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use cuzk_filecoin::fixture::{FixtureOptions, generate};
use cuzk_filecoin::{ProofKind, SectorSize};
use serde_json::Value;
use tempfile::TempDir;

use crate::served::Served;
use crate::support::{cuzk_ok, key, stock_verdict, text};

/// The request file of a partition.
fn partition(here: &Path, registered: u64, index: u32, sector_count: usize) -> PathBuf {
    let options = FixtureOptions {
        first_sector_number: 40,
        window_sector_count: Some(sector_count),
        window_partition_index: index,
        registered_proof: Some(registered),
        ..FixtureOptions::default()
    };
    let fixture = generate(ProofKind::WindowPost, SectorSize::KiB2, 5, &options);
    let path = here.join(format!("partition-{index}.json"));
    let file = File::create(&path).expect("writable");
    let fixture = fixture.expect("a fixture");
    fixture.write_json(file).expect("writable");
    path
}

/// The request file of the first partition with the sectors of all of them.
fn deadline(here: &Path, partitions: &[PathBuf]) -> PathBuf {
    let mut files = partitions.iter().map(|path| -> Value {
        serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON")
    });
    let mut whole = files.next().expect("a partition");
    let sectors = whole["verify"]["sectors"].as_array_mut().expect("a list");
    for mut file in files {
        sectors.append(file["verify"]["sectors"].as_array_mut().expect("a list"));
    }
    let path = here.join("deadline.json");
    fs::write(&path, whole.to_string()).expect("writable");
    path
}

/// What the stock verifier says of these proofs, one after the other.
fn verdict(here: &Path, request: &Path, proofs: &[&PathBuf]) -> String {
    let bytes: Vec<u8> = proofs
        .iter()
        .flat_map(|path| fs::read(path).expect("readable"))
        .collect();
    let whole = here.join("whole");
    fs::write(&whole, bytes).expect("writable");
    stock_verdict(request, &whole)
}

/// Proves both partitions; what the stock verifier says of the second one alone, as
/// if it were the first.
fn is_accepted(registered: u64) -> String {
    let keys = key("wpost");
    let here = TempDir::new().expect("a temporary directory");
    let here = here.path();
    let requests = [(0, 2), (1, 1)].map(|(index, count)| partition(here, registered, index, count));
    let served = Served::start();
    let proofs = requests.clone().map(|request| {
        let file: Value =
            serde_json::from_slice(&fs::read(&request).expect("readable")).expect("JSON");
        assert_eq!(file["request"]["registered_proof"], registered);
        let proof = request.with_extension("proof");
        served.wait_for(&served.submit(&request), &proof);
        cuzk_ok(&[
            "verify",
            "--request",
            text(&request),
            "--params",
            text(&keys),
            "--allow-test-params",
            "--proof",
            text(&proof),
        ]);
        proof
    });
    let [first, second] = &proofs;
    let whole = deadline(here, &requests);
    assert_eq!(verdict(here, &whole, &[first, second]), "accepted");
    assert_eq!(verdict(here, &whole, &[second, first]), "rejected");
    assert_eq!(verdict(here, &requests[0], &[first]), "accepted");
    verdict(here, &requests[1], &[second])
}

#[test]
fn two_partitions_of_version_1() {
    // Its challenges depend on the partition's place in the deadline.
    assert_eq!(is_accepted(5), "rejected");
}

#[test]
fn two_partitions_of_version_1_1() {
    // Its challenges depend on the sectors alone.
    assert_eq!(is_accepted(10), "accepted");
}
