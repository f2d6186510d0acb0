//! Truncated and flipped bytes of real proofs: an error each time, never a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cuzk_filecoin::Request;
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use rayon::prelude::*;

use crate::support::{POREP, SNAP, WINDOW, WINNING, bare_c1, fate, request};

/// How often each real request is changed, unless `CUZK_FUZZ_CASES` says otherwise.
const CASES: u64 = 2000;

/// Where the changes begin; a failure names its case, which is a stream of this seed.
const SEED: u64 = 0x6675_7a7a;

/// One change of the bytes of a vanilla proof.
#[derive(Debug)]
enum Change {
    /// Only so many bytes are left.
    Truncate(usize),
    /// A bit of a byte is the other one.
    Flip { byte: usize, bit: u32 },
}

impl Change {
    /// Half of the cases are truncations, half are flips.
    fn draw(random: &mut ChaCha20Rng, length: usize) -> Self {
        let at = (random.next_u64() % length as u64) as usize;
        match random.next_u32() {
            draw if draw % 2 == 0 => Self::Truncate(at),
            draw => Self::Flip {
                byte: at,
                bit: draw / 2 % 8,
            },
        }
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        match *self {
            Self::Truncate(length) => bytes.truncate(length),
            Self::Flip { byte, bit } => bytes[byte] ^= 1 << bit,
        }
    }
}

/// The vanilla proof of a request that is changed: the last one of a list.
fn last_proof(request: &mut Request) -> &mut Vec<u8> {
    match request.vanilla_proofs.last_mut() {
        Some(proof) => proof,
        None => &mut request.vanilla_proof,
    }
}

/// Changes a vanilla proof of a valid request `count` times, one change at a time, and
/// has the decoder, and then the vanilla check, answer. Neither may panic, a truncated
/// proof must be refused as such, and so must a flipped one where `every_bit_counts`.
/// Returns how many were refused.
fn fuzz(request: &Request, count: u64, every_bit_counts: bool) -> u64 {
    let refused = |case: u64| {
        let mut random = ChaCha20Rng::seed_from_u64(SEED);
        random.set_stream(case);
        let mut request = request.clone();
        let proof = last_proof(&mut request);
        let change = Change::draw(&mut random, proof.len());
        change.apply(proof);
        let fate = catch_unwind(AssertUnwindSafe(|| fate(&request)));
        let Ok(reason) = fate else {
            panic!("case {case} of seed {SEED:#x} panics: {change:?}");
        };
        match &reason {
            Some(reason) => assert!(
                !matches!(change, Change::Truncate(_)) || reason.starts_with("vanilla_proof"),
                "case {case}: {change:?} is refused for another field: {reason}"
            ),
            None => assert!(
                !every_bit_counts && matches!(change, Change::Flip { .. }),
                "case {case} of seed {SEED:#x} is accepted: {change:?}"
            ),
        }
        u64::from(reason.is_some())
    };
    (0..count).into_par_iter().map(refused).sum()
}

fn cases() -> u64 {
    match std::env::var("CUZK_FUZZ_CASES") {
        Ok(text) => text.parse().expect("CUZK_FUZZ_CASES is a number"),
        Err(_) => CASES,
    }
}

/// Every bit of a bincode vanilla proof is part of a length, a hash or an index.
fn bincode_is_refused(file: &[u8]) {
    let count = cases();
    assert_eq!(fuzz(&request(file), count, true), count);
}

#[test]
fn changed_snap_is_refused() {
    bincode_is_refused(SNAP);
}

#[test]
fn changed_window_post_is_refused() {
    bincode_is_refused(WINDOW);
}

#[test]
fn changed_winning_post_is_refused() {
    bincode_is_refused(WINNING);
}

/// Some bits of JSON count for nothing (the name of a field that is skipped). In the
/// wrapper nearly all changes hit its base64, so half of the cases change the bare
/// output.
#[test]
fn changed_c1_is_refused_or_means_the_same() {
    let count = cases();
    let bare = Request::from_c1(&bare_c1(), 1000, 11).expect("the output is real");
    for request in [request(POREP), bare] {
        let refused = fuzz(&request, count / 2, false);
        // All truncations at least, which are half of the cases.
        assert!(refused >= count / 5, "{refused} of {count} refused");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn flipped_request_file_never_panics(
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let mut bytes = WINDOW.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(request) = Request::from_json(&bytes) {
            fate(&request);
        }
    }
}
