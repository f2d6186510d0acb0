//! Truncated and flipped bytes of real proofs: an error each time, never a panic.

use cuzk_filecoin::Request;
use proptest::prelude::*;

use crate::support::{POREP, SNAP, WINDOW, WINNING, bare_c1, fate, request};

/// A request where `change` was applied to the last of its vanilla proofs.
fn changed_last(file: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Option<String> {
    let mut request = request(file);
    change(request.vanilla_proofs.last_mut().expect("it has sectors"));
    fate(&request)
}

fn flip(bytes: &mut [u8], at: prop::sample::Index, bit: u8) {
    let at = at.index(bytes.len());
    bytes[at] ^= 1 << bit;
}

/// Every bit of a bincode vanilla proof counts: it is a length, a hash or an index.
fn cases() -> impl Strategy<Value = (&'static [u8], prop::sample::Index, u8)> {
    let files = prop::sample::select(vec![SNAP, WINDOW, WINNING]);
    (files, any::<prop::sample::Index>(), 0..8_u8)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn flipped_bincode_is_refused((file, at, bit) in cases()) {
        let reason = changed_last(file, |bytes| flip(bytes, at, bit));
        prop_assert!(reason.is_some());
    }

    #[test]
    fn truncated_bincode_is_refused((file, at, _) in cases()) {
        let reason = changed_last(file, |bytes| bytes.truncate(at.index(bytes.len())));
        prop_assert!(reason.is_some_and(|reason| reason.starts_with("vanilla_proofs[")));
    }

    #[test]
    fn truncated_c1_is_refused(at in any::<prop::sample::Index>()) {
        let mut request = request(POREP);
        let length = at.index(request.vanilla_proof.len());
        request.vanilla_proof.truncate(length);
        prop_assert!(fate(&request).is_some());
    }

    /// Some bits of JSON count for nothing (the name of a field that is skipped),
    /// so it is enough that there is an answer.
    #[test]
    fn flipped_c1_never_panics(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut request = Request::from_c1(&bare_c1(), 1000, 11).expect("the output is real");
        flip(&mut request.vanilla_proof, at, bit);
        fate(&request);
    }

    #[test]
    fn flipped_request_file_never_panics(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = WINDOW.to_vec();
        flip(&mut bytes, at, bit);
        if let Ok(request) = Request::from_json(&bytes) {
            fate(&request);
        }
    }
}
