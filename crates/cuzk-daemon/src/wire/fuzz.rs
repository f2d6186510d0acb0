//! Requests with one field changed, as bytes on the wire: each is a request, or is
//! refused with the name of a field.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use cuzk_filecoin::Request;
use prost::Message;

use super::{SubmitProofRequest, message_of, request_of};

/// Cases, unless `CUZK_FUZZ_CASES` says otherwise.
const CASES: u64 = 100_000;
const FIELDS: [&str; 14] = [
    "request_id",
    "proof_kind",
    "sector_size",
    "registered_proof",
    "priority",
    "vanilla_proof",
    "vanilla_proofs",
    "sector_number",
    "miner_id",
    "randomness",
    "partition_index",
    "comm_r_old",
    "comm_r_new",
    "comm_d_new",
];

/// Numbers that mean the same on every machine: splitmix64 of a case and a counter.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// A number: absent, small, large, or anything.
    fn number(&mut self) -> u64 {
        match self.below(5) {
            0 => 0,
            1 => u64::from(self.next() as u8),
            2 => 2048 << self.below(30),
            3 => u64::MAX,
            _ => self.next(),
        }
    }

    /// Bytes in place of others: absent, of a wrong length, oversized, or noise.
    fn bytes(&mut self, bytes: &mut Vec<u8>) {
        match self.below(8) {
            0 => bytes.clear(),
            1 => bytes.push(self.next() as u8),
            2 => bytes.truncate(bytes.len().saturating_sub(1)),
            3 => {
                let len = self.below(bytes.len());
                bytes.truncate(len);
            }
            4 => bytes.resize(64 << 10, 0xff),
            5 => bytes.iter_mut().for_each(|byte| *byte = self.next() as u8),
            6 => *bytes = (0..self.below(100)).map(|_| self.next() as u8).collect(),
            // A length that no memory holds, where bincode expects one.
            _ => bytes.iter_mut().take(8).for_each(|byte| *byte = 0xff),
        }
    }

    fn list(&mut self, list: &mut Vec<Vec<u8>>) {
        match self.below(5) {
            0 => list.clear(),
            1 => list.push(Vec::new()),
            2 => *list = vec![Vec::new(); self.below(5000)],
            3 => list.extend_from_within(..),
            _ => {
                let index = self.below(list.len());
                if let Some(bytes) = list.get_mut(index) {
                    self.bytes(bytes);
                }
            }
        }
    }
}

/// Changes the field of a number on the wire; which one it was.
fn change(message: &mut SubmitProofRequest, draw: &mut Draw) -> &'static str {
    let field = draw.below(FIELDS.len());
    match field {
        0 => message.request_id = "\u{1b}[2J\n".repeat(draw.below(100)),
        1 => message.proof_kind = draw.number() as i32,
        2 => message.sector_size = draw.number(),
        3 => message.registered_proof = draw.number(),
        4 => message.priority = draw.number() as i32,
        5 => draw.bytes(&mut message.vanilla_proof),
        6 => draw.list(&mut message.vanilla_proofs),
        7 => message.sector_number = draw.number(),
        8 => message.miner_id = draw.number(),
        9 => draw.bytes(&mut message.randomness),
        10 => message.partition_index = draw.number() as u32,
        11 => draw.bytes(&mut message.comm_r_old),
        12 => draw.bytes(&mut message.comm_r_new),
        _ => draw.bytes(&mut message.comm_d_new),
    }
    FIELDS[field]
}

/// A message of bytes that is no message; a request that is refused with a reason, or
/// one that is taken.
fn answer(bytes: &[u8]) -> Result<(), Option<String>> {
    let message = SubmitProofRequest::decode(bytes).map_err(|_| None)?;
    let request = request_of(message).map_err(|error| Some(error.to_string()))?;
    let workload = request.workload();
    workload.map(drop).map_err(|error| Some(error.to_string()))
}

fn real() -> Vec<SubmitProofRequest> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuzk-filecoin/tests/data");
    let read = |kind| {
        let file = std::fs::read(data.join(format!("{kind}-2k.json"))).expect("a file");
        message_of(Request::from_json(&file).expect("a request"))
    };
    ["porep", "snap", "wpost", "winning"].map(read).into()
}

#[test]
fn changed_fields_are_refused_by_name() {
    let cases = match std::env::var("CUZK_FUZZ_CASES") {
        Ok(text) => text.parse().expect("CUZK_FUZZ_CASES is a number"),
        Err(_) => CASES,
    };
    let real = real();
    let (mut taken, mut undecoded) = (0_u64, 0_u64);
    let mut refused: BTreeMap<&str, u64> = BTreeMap::new();
    for case in 0..cases {
        let mut draw = Draw(case << 20);
        let mut message = real[draw.below(real.len())].clone();
        let changed = change(&mut message, &mut draw);
        let mut bytes = message.encode_to_vec();
        // Of some the wire itself: what no client that speaks protobuf sends.
        let is_flipped = draw.below(8) == 0;
        if is_flipped && !bytes.is_empty() {
            let at = draw.below(bytes.len().min(400));
            bytes[at] ^= 1 << draw.below(8);
        }
        let answer = catch_unwind(AssertUnwindSafe(|| answer(&bytes)));
        match answer.unwrap_or_else(|_| panic!("case {case} panics: {changed}")) {
            Ok(()) => taken += 1,
            Err(None) => {
                assert!(is_flipped, "case {case}: {changed}");
                undecoded += 1;
            }
            Err(Some(reason)) => {
                let named = reason.split([':', '[', '.']).next().unwrap_or_default();
                let known = FIELDS.iter().find(|field| **field == named);
                let field = known.unwrap_or_else(|| panic!("case {case}: {changed}: {reason}"));
                *refused.entry(field).or_default() += 1;
            }
        }
    }
    println!("fuzzed request fields: {cases} cases, {taken} taken, {undecoded} not protobuf");
    println!("refused by {refused:?}");
    // Most changes are of what another kind uses, and then it is a good request.
    assert!(
        taken > cases / 10 && taken < cases * 9 / 10,
        "{taken} taken"
    );
    for field in FIELDS {
        // Whose sector it is shows in the proofs, and they are named then.
        let is_free = ["sector_number", "miner_id"].contains(&field);
        assert!(
            is_free || refused.contains_key(field),
            "{field}: {refused:?}"
        );
    }
}
