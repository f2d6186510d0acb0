//! Proofs that go through a streamed key together.

use std::sync::Arc;

use bellperson::groth16::Parameters;
use blstrs::{Bls12, Scalar};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::proofs::{bytes, circuit, cpu, cuda_job};
use super::{backend_with, page_locked};
use crate::column::CColumn;
use crate::cpu::Job;
use crate::cpu::h::CSource;
use crate::cpu::tests::circuit::Assignment;
use crate::cpu::tests::{column, job, meaningless_key};
use crate::cuda::{CudaBackend, CudaJob};
use crate::key::KeyTier;
use crate::{BackendError, KeyMemory, Pending};

/// Proofs of one circuit and key, each with values of its own.
struct Set {
    assignment: Assignment,
    job: Job<Parameters<Bls12>>,
    key_bytes: u64,
}

/// Proofs of a set.
const PROOFS: usize = 4;

impl Set {
    fn new(log: u32) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(u64::from(log));
        let assignment = Assignment::of(circuit(&mut rng, log));
        let key = Arc::new(meaningless_key(&assignment.shape(), 1));
        let g1 = key.h.len() + key.l.len() + key.a.len() + key.b_g1.len();
        let key_bytes = (g1 * 96 + key.b_g2.len() * 192) as u64;
        let (r, s) = (Scalar::from(3), Scalar::from(5));
        let job = job(&assignment, CColumn::Scratch, key, r, s);
        Self {
            assignment,
            job,
            key_bytes,
        }
    }

    /// Proof `at`: of other values, with other blinding.
    fn cuda_job(&self, at: usize) -> CudaJob {
        let mut job = cuda_job(&self.assignment, &self.job, CSource::Product);
        job.columns.aux = self.aux(at);
        (job.r, job.s) = blinding(at);
        job
    }

    fn aux(&self, at: usize) -> crate::Column {
        let mut aux = self.assignment.aux.clone();
        // Neither prover asks whether the witness satisfies the circuit.
        for value in aux.iter_mut().skip(at).step_by(PROOFS + 1) {
            *value += Scalar::from(at as u64);
        }
        column(&aux, aux.len())
    }

    fn expected(&self, at: usize) -> Vec<u8> {
        let (r, s) = blinding(at);
        let key = Arc::clone(&self.job.source);
        let mut job = job(&self.assignment, CColumn::Scratch, key, r, s);
        job.shape = Arc::clone(&self.job.shape);
        job.columns.aux = self.aux(at);
        let proved = cpu().submit_job(job).done();
        bytes(&proved.expect("a request that fits").proof)
    }
}

fn blinding(at: usize) -> (Scalar, Scalar) {
    (Scalar::from(7 + at as u64), Scalar::from(11 + at as u64))
}

/// A device on which every key is streamed, and has been once from page-locked memory.
fn streaming(key_batch: usize, plug: &Set, sets: &[&Set]) -> Option<CudaBackend> {
    let host_keys = KeyMemory {
        bytes_max: 1 << 30,
        take: Arc::new(|lens: &[usize]| page_locked(lens)),
    };
    let change = |options: &mut crate::DeviceOptions| {
        options.is_key_resident = false;
        options.key_batch = key_batch;
        options.slots = PROOFS + 1;
        options.queue_len_max = PROOFS + 2;
    };
    let gpu = backend_with(change, None, Some(host_keys))?;
    for set in sets.iter().chain([&plug]) {
        for tier in [KeyTier::File, KeyTier::Pinned] {
            let proved = gpu.submit_job(set.cuda_job(0)).done();
            assert_eq!(proved.expect("a request that fits").tier, Some(tier));
        }
    }
    Some(gpu)
}

/// Submits jobs behind one that keeps the device busy until all of them are uploaded.
fn behind(gpu: &CudaBackend, plug: &Set, jobs: Vec<CudaJob>) -> Vec<Pending> {
    let plugs = plug.cuda_job(0);
    let mut first = gpu.submit_job(plugs);
    let pending = jobs.into_iter().map(|job| gpu.submit_job(job)).collect();
    first.done().expect("a request that fits");
    pending
}

/// Bytes of the key over the bus fall as 1/n; those of the proofs are the processor's.
#[test]
fn gpu_proofs_share_the_pass_of_their_key() {
    let (plug, set) = (Set::new(17), Set::new(12));
    let expected: Vec<_> = (0..PROOFS).map(|at| set.expected(at)).collect();
    for batch in [1, 2, 4] {
        let Some(gpu) = streaming(batch, &plug, &[&set]) else {
            return;
        };
        let at_start = (gpu.device_allocations(), gpu.key_bytes_brought());
        let jobs = (0..PROOFS).map(|at| set.cuda_job(at)).collect();
        let mut told = 0;
        for (at, mut pending) in behind(&gpu, &plug, jobs).into_iter().enumerate() {
            let proved = pending.done().expect("a request that fits");
            assert_eq!(proved.tier, Some(KeyTier::Pinned));
            assert!(bytes(&proved.proof) == expected[at], "{at} of {batch}");
            let keys = proved
                .phases
                .iter()
                .filter(|phase| phase.name.starts_with("key_"));
            told += keys.filter_map(|phase| phase.bytes).sum::<u64>();
        }
        let brought = gpu.key_bytes_brought() - at_start.1 - plug.key_bytes;
        let passes = (PROOFS / batch) as u64;
        assert_eq!(brought, passes * set.key_bytes, "passes of {batch}");
        assert_eq!(told, brought, "phases of {batch}");
        assert_eq!(gpu.device_allocations(), at_start.0);
    }
}

/// Several pieces of a query, from the file and from page-locked memory, for proofs that
/// go together and for one after the other, whose pieces go round the places.
#[test]
fn gpu_a_pass_of_many_pieces_gives_the_cpus_bytes() {
    let set = Set::new(12);
    let expected: Vec<_> = (0..PROOFS).map(|at| set.expected(at)).collect();
    for (has_memory, batch) in [(false, 1), (false, PROOFS), (true, 1), (true, PROOFS)] {
        let host_keys = has_memory.then(|| KeyMemory {
            bytes_max: 1 << 30,
            take: Arc::new(|lens: &[usize]| page_locked(lens)),
        });
        let change = |options: &mut crate::DeviceOptions| {
            options.is_key_resident = false;
            options.key_batch = batch;
            options.slots = PROOFS;
            options.key_piece_log_max = 9;
        };
        let Some(gpu) = backend_with(change, None, host_keys) else {
            return;
        };
        for round in 0..3 {
            let jobs = (0..PROOFS).map(|at| set.cuda_job(at));
            let pending: Vec<_> = jobs.map(|job| gpu.submit_job(job)).collect();
            for (at, mut pending) in pending.into_iter().enumerate() {
                let proved = pending.done().expect("a request that fits");
                assert!(bytes(&proved.proof) == expected[at], "{round}: {at}");
            }
        }
    }
}

/// One of a pass fails, and the others make their proofs.
#[test]
fn gpu_a_proof_that_fails_leaves_its_pass() {
    let (plug, set) = (Set::new(17), Set::new(12));
    let Some(gpu) = streaming(PROOFS, &plug, &[&set]) else {
        return;
    };
    let expected: Vec<_> = (0..PROOFS).map(|at| set.expected(at)).collect();
    for wrong in 0..PROOFS {
        let brought = gpu.key_bytes_brought();
        let jobs = (0..PROOFS).map(|at| {
            let mut job = set.cuda_job(at);
            if at == wrong {
                let mut aux = job.columns.aux.scalars().to_vec();
                // SAFETY: any limbs are a value in memory; arithmetic never sees this one.
                aux[9] = unsafe { std::mem::transmute::<[u64; 4], Scalar>([u64::MAX; 4]) };
                job.columns.aux = column(&aux, aux.len());
            }
            job
        });
        let pending = behind(&gpu, &plug, jobs.collect());
        for (at, mut pending) in pending.into_iter().enumerate() {
            assert!(pending.columns_read().is_some(), "the columns come back");
            match pending.done() {
                Ok(proved) => assert!(bytes(&proved.proof) == expected[at], "{at}, not {wrong}"),
                Err(error) => {
                    assert_eq!(at, wrong, "{error}");
                    let is_told = matches!(error, BackendError::Unreduced { count: 1, .. });
                    assert!(is_told, "{error}");
                }
            }
        }
        let brought = gpu.key_bytes_brought() - brought - plug.key_bytes;
        assert_eq!(brought, set.key_bytes, "one pass, whoever left it");
    }
}

/// Keys by turns, in passes: none waits for another's, and no proof is lost.
#[test]
fn gpu_passes_of_two_keys_by_turns() {
    let sets = [Set::new(13), Set::new(11)];
    let expected = sets.each_ref().map(|set| set.expected(1));
    let Some(gpu) = streaming(2, &sets[0], &[&sets[1]]) else {
        return;
    };
    let mut running = std::collections::VecDeque::new();
    for turn in 0..60 {
        let at = turn * 3 % 5 % 2;
        running.push_back((at, gpu.submit_job(sets[at].cuda_job(1))));
        if running.len() > PROOFS + 1 {
            let (at, mut pending) = running.pop_front().expect("six");
            let proved = pending.done().expect("a request that fits");
            assert!(bytes(&proved.proof) == expected[at], "turn {turn}");
        }
    }
    for (at, mut pending) in running {
        let proved = pending.done().expect("a request that fits");
        assert!(bytes(&proved.proof) == expected[at]);
    }
}
