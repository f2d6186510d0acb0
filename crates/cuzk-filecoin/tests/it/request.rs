use std::ops::RangeInclusive;

use cuzk_filecoin::{Priority, ProofKind, Request, SectorSize, prover_id};

use crate::support::{POREP, SNAP, WINDOW, WINNING, refused, request};

#[test]
fn real_requests_read() {
    let porep = request(POREP);
    assert_eq!(porep.proof_kind, ProofKind::PoRep);
    assert_eq!(porep.priority, Priority::Normal);
    assert_eq!((porep.miner_id, porep.sector_number), (1000, 11));
    let window = request(WINDOW);
    assert_eq!(window.vanilla_proofs.len(), 2);
    assert_eq!(window.randomness.len(), 32);
    assert_eq!(request(WINNING).priority, Priority::Critical);
    let snap = request(SNAP);
    assert_eq!(snap.comm_r_old.len(), 32);
}

#[test]
fn the_inner_object_serves_alone() {
    let text = r#"{"request_id": "a", "proof_kind": "winning", "sector_size": 2048, "vanilla_proofs": ["AAE="]}"#;
    let bare = Request::from_json(text.as_bytes()).unwrap();
    let wrapped = format!(r#"{{"request": {text}, "verify": {{"comm_r": "00"}}}}"#);
    assert_eq!(Request::from_json(wrapped.as_bytes()).unwrap(), bare);
    assert_eq!(bare.vanilla_proofs, [[0, 1]]);
    assert_eq!(bare.priority, Priority::Critical);
}

#[test]
fn debug_shows_no_proofs() {
    insta::assert_snapshot!(
        format!("{:?}", request(WINNING)),
        @r#"Request { request_id: "winning-2k-1000-1", proof_kind: WinningPost, sector_size: 2048, registered_proof: 0, miner_id: 1000, sector_number: 0, partition_index: 0, .. }"#
    );
}

#[test]
fn files_that_are_not_requests() {
    let files = [
        "",
        "<!DOCTYPE html>\n<html>502 Bad Gateway</html>",
        "{\"request\": {\"proof_kind\": \"WINNING_POST\",",
        "{\"request\": {\"miner\": 1000}}",
        "{\"request\": {}, \"verfy\": {}}",
        "{\"miner\": 1000}",
        "{}",
        "{\"proof_kind\": \"C2\"}",
        "{\"proof_kind\": \"WINNING_POST\", \"priority\": \"high\"}",
        "{\"proof_kind\": \"WINNING_POST\", \"sector_size\": -1}",
        "{\"proof_kind\": \"WINNING_POST\", \"randomness\": \"%%%%\"}",
        "{\"proof_kind\": \"WINNING_POST\", \"vanilla_proofs\": [\"AAAA\", \"AAA\"]}",
    ];
    let reasons: Vec<String> = files
        .into_iter()
        .map(|file| Request::from_json(file.as_bytes()).unwrap_err().to_string())
        .collect();
    insta::assert_snapshot!(reasons.join("\n"));
}

/// Every number from 0 to `count` goes with one sector size, and only those of some
/// groups of five with the kind of the file. The proofs come later: when the numbers
/// agree, the reason is that their `field` is empty.
fn numbers_go_with_sizes(file: &[u8], count: u64, groups: RangeInclusive<u64>, field: &str) {
    for number in 0..count {
        for (index, size) in SectorSize::ALL.into_iter().enumerate() {
            let reason = refused(file, |request| {
                request.registered_proof = number;
                request.sector_size = size.bytes();
                request.vanilla_proof.clear();
                request.vanilla_proofs.clear();
            });
            let agrees = number % 5 == index as u64 && groups.contains(&(number / 5));
            let field = if agrees { field } else { "registered_proof:" };
            assert!(reason.starts_with(field), "{number} and {size}: {reason}");
        }
    }
}

#[test]
fn proof_numbers_go_with_kinds_and_sizes() {
    numbers_go_with_sizes(POREP, 20, 0..=2, "vanilla_proof:");
    numbers_go_with_sizes(WINNING, 15, 0..=0, "vanilla_proofs:");
    numbers_go_with_sizes(WINDOW, 15, 1..=2, "vanilla_proofs:");
}

#[test]
fn numbers_that_disagree_are_named() {
    let reasons = [
        refused(POREP, |it| it.registered_proof = 20),
        refused(POREP, |it| it.registered_proof = u64::MAX),
        refused(POREP, |it| it.registered_proof = 8),
        refused(POREP, |it| it.registered_proof = 15),
        refused(POREP, |it| it.sector_size = 4096),
        refused(WINDOW, |it| it.registered_proof = 0),
        refused(WINNING, |it| it.registered_proof = 3),
        refused(WINNING, |it| it.registered_proof = 15),
    ];
    insta::assert_snapshot!(reasons.join("\n"));
}

#[test]
fn prover_ids_are_leb128() {
    let cases: [(u64, &[u8]); 5] = [
        (0, &[0]),
        (127, &[0x7f]),
        (128, &[0x80, 0x01]),
        (1000, &[0xe8, 0x07]),
        (
            u64::MAX,
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ),
    ];
    for (miner, payload) in cases {
        let mut want = [0; 32];
        want[..payload.len()].copy_from_slice(payload);
        assert_eq!(prover_id(miner), want, "{miner}");
    }
}
