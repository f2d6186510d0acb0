//! Truncated and flipped bytes of real proofs: an error each time, never a panic, and
//! never much memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use cuzk_filecoin::Request;
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use rayon::prelude::*;

use crate::support::{POREP, SNAP, WINDOW, WINNING, bare_c1, fate, request};

/// How often each real request is changed, unless `CUZK_FUZZ_CASES` says otherwise.
const CASES: u64 = 100_000;

/// Where the changes begin; a failure names its case, which is a stream of this seed.
const SEED: u64 = 0x6675_7a7a;

/// Every case is decoded. Of those that decode, one in so many is hashed too: that is
/// where nearly all of the time goes, and another flipped sibling says nothing new.
const HASHED_EVERY: u64 = 4;

/// Address space of a process that fuzzes, in KiB: the program, its threads, and proofs
/// of a hundred kilobytes. A length that is believed before it is checked does not fit.
const MEMORY_KIB: u64 = 2 << 20;

/// Set in a process that fuzzes.
const CHILD: &str = "CUZK_FUZZ_CHILD";

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

/// What became of the cases.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Refused by the decoder.
    undecoded: u64,
    /// Decoded, hashed and refused.
    unproven: u64,
    /// Decoded, hashed and accepted.
    accepted: u64,
    /// Decoded and no more.
    decoded: u64,
}

impl Tally {
    fn add(self, other: Self) -> Self {
        Self {
            undecoded: self.undecoded + other.undecoded,
            unproven: self.unproven + other.unproven,
            accepted: self.accepted + other.accepted,
            decoded: self.decoded + other.decoded,
        }
    }

    fn count(&self) -> u64 {
        self.undecoded + self.unproven + self.accepted + self.decoded
    }
}

/// Changes a vanilla proof of a valid request `count` times, one change at a time, and
/// has the decoder, and of some the vanilla check, answer. Neither may panic, a
/// truncated proof must be refused by the decoder and as such.
fn fuzz(request: &Request, count: u64) -> Tally {
    let of_case = |case: u64| {
        let mut random = ChaCha20Rng::seed_from_u64(SEED);
        random.set_stream(case);
        let mut request = request.clone();
        let proof = last_proof(&mut request);
        let change = Change::draw(&mut random, proof.len());
        change.apply(proof);
        let is_hashed = random.next_u64().is_multiple_of(HASHED_EVERY);
        let answer = catch_unwind(AssertUnwindSafe(|| {
            let workload = request.workload().map_err(|error| error.to_string())?;
            Ok::<_, String>(is_hashed.then(|| workload.check_vanilla()))
        }));
        let Ok(answer) = answer else {
            panic!("case {case} of seed {SEED:#x} panics: {change:?}");
        };
        let is_cut = matches!(change, Change::Truncate(_));
        let mut tally = Tally::default();
        match answer {
            Err(reason) => {
                assert!(
                    !is_cut || reason.starts_with("vanilla_proof"),
                    "case {case}: {change:?} is refused for another field: {reason}"
                );
                tally.undecoded = 1;
            }
            Ok(_) if is_cut => panic!("case {case} of seed {SEED:#x} decodes: {change:?}"),
            Ok(None) => tally.decoded = 1,
            Ok(Some(Ok(()))) => tally.accepted = 1,
            Ok(Some(Err(_))) => tally.unproven = 1,
        }
        tally
    };
    (0..count)
        .into_par_iter()
        .map(of_case)
        .reduce(Tally::default, Tally::add)
}

fn cases() -> u64 {
    match std::env::var("CUZK_FUZZ_CASES") {
        Ok(text) => text.parse().expect("CUZK_FUZZ_CASES is a number"),
        Err(_) => CASES,
    }
}

/// Runs the test that calls it again, in a process that may have little memory, and
/// `work` in that.
fn in_little_memory(test: &str, work: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    let script = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().expect("this program has a path"))
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        // Each thread and each arena takes address space of its own.
        .envs([("RAYON_NUM_THREADS", "2"), ("MALLOC_ARENA_MAX", "2")])
        .output()
        .expect("a shell");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{told}\n{errors}",
        output.status
    );
    let tally = told.lines().find(|line| line.starts_with("fuzzed "));
    println!("{}", tally.expect("the process counts"));
}

fn tell(what: &str, tally: Tally) {
    // Behind what the harness began to print on this line.
    println!(
        "\nfuzzed {what}: {} cases, {} refused by the decoder, {} by the vanilla check, {} \
         mean the same, {} decoded and not hashed",
        tally.count(),
        tally.undecoded,
        tally.unproven,
        tally.accepted,
        tally.decoded
    );
}

/// Every bit of a bincode vanilla proof is part of a length, a hash or an index.
fn bincode_is_refused(test: &str, file: &[u8]) {
    in_little_memory(test, || {
        let tally = fuzz(&request(file), cases());
        tell(test, tally);
        assert_eq!(tally.accepted, 0);
        assert!(tally.unproven > 0, "{tally:?}");
    });
}

#[test]
fn changed_snap_is_refused() {
    bincode_is_refused("hostile::changed_snap_is_refused", SNAP);
}

#[test]
fn changed_window_post_is_refused() {
    bincode_is_refused("hostile::changed_window_post_is_refused", WINDOW);
}

#[test]
fn changed_winning_post_is_refused() {
    bincode_is_refused("hostile::changed_winning_post_is_refused", WINNING);
}

/// Some bits of JSON count for nothing (the name of a field that is skipped). In the
/// wrapper nearly all changes hit its base64, so half of the cases change the bare
/// output.
#[test]
fn changed_c1_is_refused_or_means_the_same() {
    let test = "hostile::changed_c1_is_refused_or_means_the_same";
    in_little_memory(test, || {
        let bare = Request::from_c1(&bare_c1(), 1000, 11).expect("the output is real");
        let half = cases() / 2;
        let tally = fuzz(&request(POREP), half).add(fuzz(&bare, half));
        tell(test, tally);
        // All truncations at least, which are half of the cases.
        assert!(tally.undecoded >= tally.count() * 2 / 5, "{tally:?}");
    });
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
