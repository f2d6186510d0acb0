//! Many proofs: random circuits of all sizes, and two circuits by turns for long.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use blstrs::Scalar;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::proofs::{bytes, circuit, cuda_job, proved};
use super::{backend, device};
use crate::column::CColumn;
use crate::cpu::CpuBackend;
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::circuit::{Assignment, RandomCircuit};
use crate::cpu::tests::{job, meaningless_key, options, scalar};
use crate::cuda::CudaBackend;

/// How often each size is drawn: small ones are cheap and have the odd cases. A proof of
/// 2^18 takes the CPU as long as all of those up to 2^13.
const WEIGHTS: [(u32, u32); 15] = [
    (4, 8),
    (5, 8),
    (6, 8),
    (7, 8),
    (8, 8),
    (9, 8),
    (10, 8),
    (11, 8),
    (12, 8),
    (13, 4),
    (14, 4),
    (15, 4),
    (16, 3),
    (17, 2),
    (18, 1),
];

/// Percent of the auxiliary variables that are zero or one, beside those that the
/// circuit makes so.
const BIT_PERCENT: [u32; 5] = [0, 50, 90, 99, 100];

/// A circuit to compare.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    seed: u64,
    log: u32,
    circuit: RandomCircuit,
    bit_percent: u32,
}

impl Drawn {
    fn of(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let total: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut at = rng.next_u32() % total;
        let log = WEIGHTS
            .into_iter()
            .find_map(|(log, weight)| match at.checked_sub(weight) {
                Some(rest) => {
                    at = rest;
                    None
                }
                None => Some(log),
            })
            .expect("a number below the sum");
        Self {
            seed,
            log,
            circuit: circuit(&mut rng, log),
            bit_percent: BIT_PERCENT[rng.next_u32() as usize % BIT_PERCENT.len()],
        }
    }

    /// Proves it on both.
    fn compare(&self, cpu: &CpuBackend, gpu: &CudaBackend) {
        let mut assignment = Assignment::of(self.circuit);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        // Neither prover asks whether the witness satisfies the circuit.
        for value in &mut assignment.aux {
            if rng.next_u32() % 100 < self.bit_percent {
                *value = Scalar::from(u64::from(rng.next_u32() % 2));
            }
        }
        let (r, s) = (scalar(&mut rng), scalar(&mut rng));
        let key = Arc::new(meaningless_key(&assignment.shape(), self.seed));
        let job = job(&assignment, CColumn::Scratch, key, r, s);
        let cuda_job = cuda_job(&assignment, &job, CSource::Product);
        let theirs = cpu.submit_job(job).done().expect("a request that fits");
        let ours = proved(gpu, cuda_job);
        assert_eq!(bytes(&ours.proof), bytes(&theirs.proof), "{self:?}");
    }
}

/// Seeds to compare: as many as `CUZK_GPU_CIRCUITS` asks for, or the one that
/// `CUZK_GPU_CIRCUIT` names.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("CUZK_GPU_CIRCUIT") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CUZK_GPU_CIRCUITS").unwrap_or(60),
    }
}

/// The CPU's proofs take nearly all of the time: one a processor at a time, the largest
/// first.
#[test]
fn gpu_random_circuits_give_the_cpus_bytes() {
    let workers = std::thread::available_parallelism().map_or(2, |count| count.get());
    let Some(gpu) = backend(|options| options.queue_len_max = workers) else {
        return;
    };
    let mut drawn: Vec<Drawn> = seeds().map(Drawn::of).collect();
    drawn.sort_by_key(|drawn| std::cmp::Reverse(drawn.log));
    let (begin, next) = (Instant::now(), AtomicUsize::new(0));
    let work = || {
        let cpu = CpuBackend::new(options(CSource::Product, Transforms::Six)).expect("threads");
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(drawn_here) = drawn.get(at) else {
                return;
            };
            let compared = catch_unwind(AssertUnwindSafe(|| drawn_here.compare(&cpu, &gpu)));
            if let Err(panic) = compared {
                eprintln!("CUZK_GPU_CIRCUIT={} runs it alone", drawn_here.seed);
                resume_unwind(panic);
            }
            if (at + 1).is_multiple_of(50) {
                let seconds = begin.elapsed().as_secs();
                println!("{} of {} circuits, {seconds} s", at + 1, drawn.len());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
}

const PROOFS: usize = 300;
/// Proofs after which nothing grows any more.
const SETTLED: usize = 20;
/// What the allocator may keep beside what is used.
const GROWTH_MAX_KIB: u64 = 16 << 10;
const BY_TURNS: &str = "cuda::tests::endurance::gpu_two_circuits_by_turns_allocate_nothing";
/// Set for the process that proves by turns.
const ALONE: &str = "CUZK_TEST_ALONE";

/// Two circuits by turns, in a process of their own, so that its memory is theirs: nothing
/// is allocated on the device after the start, what is in use there stays the same, and
/// this side's memory does not grow.
#[test]
fn gpu_two_circuits_by_turns_allocate_nothing() {
    if device().is_none() {
        return;
    }
    if std::env::var_os(ALONE).is_some() {
        return prove_by_turns();
    }
    let program = std::env::current_exe().expect("a program that runs has a path");
    let output = Command::new(program)
        .args([BY_TURNS, "--exact", "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "it ran");
}

fn prove_by_turns() {
    let gpu = backend(|_| {}).expect("a device, as a moment ago");
    let at_start = gpu.device_allocations();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let prepared = [9, 12].map(|log| {
        let assignment = Assignment::of(circuit(&mut rng, log));
        let key = Arc::new(meaningless_key(&assignment.shape(), 1));
        let (r, s) = (Scalar::from(3), Scalar::from(4));
        let job = job(&assignment, CColumn::Scratch, key, r, s);
        (assignment, job)
    });
    let mut first = Vec::new();
    let mut settled = None;
    for turn in 0..PROOFS {
        let (assignment, job) = &prepared[turn % 2];
        let proof = bytes(&proved(&gpu, cuda_job(assignment, job, CSource::Product)).proof);
        if turn < 2 {
            first.push(proof);
            continue;
        }
        assert_eq!(proof, first[turn % 2], "turn {turn}");
        if turn >= SETTLED {
            let now = gpu.device_bytes();
            let (then, _) = *settled.get_or_insert((now, anonymous_kib()));
            assert_eq!(now, then, "turn {turn}");
        }
    }
    assert_eq!(gpu.device_allocations(), at_start);
    let (bytes, before) = settled.expect("more proofs than that");
    let after = anonymous_kib();
    println!(
        "{PROOFS} proofs: {bytes} bytes of the device in use, anonymous memory {before} KiB \
         after {SETTLED} and {after} KiB at the end"
    );
    assert!(
        after <= before + GROWTH_MAX_KIB,
        "{before} KiB, {after} KiB"
    );
}

/// Anonymous memory of this process that is there.
fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a number of KiB")
}
