//! Whole proofs: the bytes of the CPU backend.

use std::sync::Arc;

use bellperson::groth16::{Parameters, Proof};
use blstrs::{Bls12, Scalar};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use cuzk_pinned::StagingRing;

use super::{THREADS, backend, backend_with, page_locked};
use crate::column::CColumn;
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::circuit::{Assignment, RandomCircuit};
use crate::cpu::tests::{column, job, meaningless_key, options, scalar};
use crate::cpu::{CpuBackend, Job};
use crate::cuda::{CudaBackend, CudaJob, PointBytes};
use crate::key::KeyTier;
use crate::{BackendError, Columns, DeviceBuffers, DeviceOptions, KeyMemory, Proved, TakeBuffers};

pub(super) fn bytes(proof: &Proof<Bls12>) -> Vec<u8> {
    let mut bytes = Vec::new();
    proof.write(&mut bytes).expect("a vector takes all bytes");
    bytes
}

/// The same job for the device, with columns of one scalar a constraint.
pub(super) fn cuda_job(
    assignment: &Assignment,
    job: &Job<Parameters<Bls12>>,
    c_source: CSource,
) -> CudaJob {
    let rows = assignment.a.len();
    let source: Arc<Parameters<Bls12>> = Arc::clone(&job.source);
    CudaJob {
        columns: Columns {
            a: column(&assignment.a, rows),
            b: column(&assignment.b, rows),
            c: (c_source == CSource::Synthesised).then(|| column(&assignment.c, rows)),
            aux: column(&assignment.aux, assignment.aux.len()),
        },
        inputs: job.inputs.clone(),
        shape: Arc::clone(&job.shape),
        source: source as Arc<dyn PointBytes>,
        r: job.r,
        s: job.s,
        watch: job.watch.clone(),
    }
}

pub(super) fn proved(backend: &CudaBackend, job: CudaJob) -> Proved {
    let mut pending = backend.submit_job(job);
    assert!(pending.columns_read().is_some(), "the columns come back");
    pending.done().expect("a request that fits")
}

pub(super) fn cpu() -> CpuBackend {
    CpuBackend::new(options(CSource::Product, Transforms::Six)).expect("threads")
}

/// Proves one circuit on both; the key is the same for each `key_seed` and shape.
pub(super) fn compare(
    cpu: &CpuBackend,
    gpu: &CudaBackend,
    c_source: CSource,
    circuit: RandomCircuit,
) {
    let assignment = Assignment::of(circuit);
    let mut rng = ChaCha8Rng::seed_from_u64(circuit.seed);
    let (r, s) = (scalar(&mut rng), scalar(&mut rng));
    let key = Arc::new(meaningless_key(&assignment.shape(), circuit.seed));
    let job = job(&assignment, CColumn::Scratch, key, r, s);
    let cuda_job = cuda_job(&assignment, &job, c_source);
    let theirs = cpu.submit_job(job).done().expect("a request that fits");
    let ours = proved(gpu, cuda_job);
    assert_eq!(bytes(&ours.proof), bytes(&theirs.proof), "{circuit:?}");
}

/// A circuit of about 2^log constraints.
pub(super) fn circuit(rng: &mut ChaCha8Rng, log: u32) -> RandomCircuit {
    let products = (1usize << log) - 8 + rng.next_u32() as usize % 16;
    RandomCircuit {
        seed: rng.next_u64(),
        products: products.max(1),
        early_inputs: rng.next_u32() as usize % 4,
        late_inputs: rng.next_u32() as usize % 3,
        unused: rng.next_u32() as usize % 3,
        is_boolean: rng.next_u32().is_multiple_of(3),
        has_no_aux: log < 8 && rng.next_u32().is_multiple_of(8),
        has_inputs_in_b: rng.next_u32().is_multiple_of(2),
    }
}

#[test]
fn gpu_every_switch_gives_the_cpus_bytes() {
    let cpu = cpu();
    for (at, (c_source, transforms)) in [
        (CSource::Product, Transforms::Six),
        (CSource::Product, Transforms::Seven),
        (CSource::Synthesised, Transforms::Six),
        (CSource::Synthesised, Transforms::Seven),
    ]
    .into_iter()
    .enumerate()
    {
        for is_split in [true, false] {
            for window_bits in [None, Some(10), Some(13), Some(20)] {
                let gpu = backend(|options| {
                    options.c_source = c_source;
                    options.transforms = transforms;
                    options.is_split = is_split;
                    options.window_bits = window_bits;
                    options.chunk_len_max = 512;
                });
                let Some(gpu) = gpu else { return };
                let mut rng = ChaCha8Rng::seed_from_u64(at as u64);
                compare(&cpu, &gpu, c_source, circuit(&mut rng, 11));
            }
        }
    }
}

/// What the host can do of a proof, with the key on the device and in pieces.
#[test]
fn gpu_what_the_host_does_gives_the_cpus_bytes() {
    let cpu = cpu();
    for (is_split_on_host, is_b_g2_on_host) in [(true, false), (false, true), (true, true)] {
        for limit in [4 << 30, 80 << 20] {
            let gpu = backend(|options| {
                options.is_split_on_host = is_split_on_host;
                options.is_b_g2_on_host = is_b_g2_on_host;
                options.memory_bytes_max = Some(limit);
            });
            let Some(gpu) = gpu else { return };
            for log in [3, 9, 16, 17] {
                let mut rng = ChaCha8Rng::seed_from_u64(log);
                compare(&cpu, &gpu, CSource::Product, circuit(&mut rng, log as u32));
            }
        }
    }
}

/// The host counts values that are no scalars too.
#[test]
fn gpu_the_host_refuses_unreduced_scalars() {
    let Some(gpu) = backend(|options| options.is_split_on_host = true) else {
        return;
    };
    let assignment = Assignment::of(circuit(&mut ChaCha8Rng::seed_from_u64(1), 8));
    let key = Arc::new(meaningless_key(&assignment.shape(), 1));
    let (r, s) = (Scalar::from(3), Scalar::from(4));
    let job = job(&assignment, CColumn::Scratch, key, r, s);
    let mut wrong = cuda_job(&assignment, &job, CSource::Product);
    let mut aux = assignment.aux.clone();
    // SAFETY: any limbs are a value in memory; arithmetic never sees this one.
    aux[3] = unsafe { std::mem::transmute::<[u64; 4], Scalar>([u64::MAX; 4]) };
    wrong.columns.aux = column(&aux, aux.len());
    let mut pending = gpu.submit_job(wrong);
    assert!(pending.columns_read().is_some(), "the columns come back");
    let error = pending.done().expect_err("a value that is no scalar");
    assert!(
        matches!(error, BackendError::Unreduced { count: 1, .. }),
        "{error}"
    );
    proved(&gpu, cuda_job(&assignment, &job, CSource::Product));
}

/// More than the device has is refused with both numbers, before any proof.
#[test]
fn gpu_an_arena_that_cannot_be_had_is_refused() {
    if backend(|_| {}).is_none() {
        return;
    }
    let keys = page_locked(&[1 << 16; 2]).expect("there is a device");
    let mut options = DeviceOptions::new(0, THREADS, 1);
    options.memory_bytes_max = Some(1 << 50);
    let buffers = DeviceBuffers {
        keys: keys.try_into().expect("as many as asked"),
        columns: None,
        host_keys: None,
    };
    match CudaBackend::start(options, buffers) {
        Err(BackendError::DeviceMemory { asked, free, .. }) => {
            assert_eq!(asked, 1 << 50);
            assert!(free > 0 && free < asked, "{free}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("an arena of a pebibyte"),
    }
}

/// A device with room for one key at a time, as far as the limit says.
#[test]
fn gpu_keys_make_room_for_each_other_and_a_proof_that_never_fits_is_refused() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let assignment = Assignment::of(circuit(&mut rng, 10));
    let jobs = [1, 2].map(|seed| {
        let key = Arc::new(meaningless_key(&assignment.shape(), seed));
        job(
            &assignment,
            CColumn::Scratch,
            key,
            Scalar::from(3),
            Scalar::from(4),
        )
    });
    let Some(gpu) = backend(|_| {}) else { return };
    let expected = jobs
        .each_ref()
        .map(|job| bytes(&proved(&gpu, cuda_job(&assignment, job, CSource::Product)).proof));
    let both = gpu.device_bytes();
    drop(gpu);

    let gpu = backend(|options| options.memory_bytes_max = Some(both - 1));
    let Some(gpu) = gpu else { return };
    for turn in 0..6 {
        let job = &jobs[turn % 2];
        let proof = bytes(&proved(&gpu, cuda_job(&assignment, job, CSource::Product)).proof);
        assert_eq!(proof, expected[turn % 2]);
        assert!(gpu.device_bytes() < both);
    }
    drop(gpu);

    let gpu = backend(|options| options.memory_bytes_max = Some(4 << 20));
    let Some(gpu) = gpu else { return };
    let mut pending = gpu.submit_job(cuda_job(&assignment, &jobs[0], CSource::Product));
    assert!(pending.columns_read().is_some(), "the columns come back");
    let error = pending.done().expect_err("a proof that does not fit");
    assert!(
        error.to_string().contains("the limit is 4194304"),
        "{error}"
    );
}

/// A device whose memory holds no whole key: the points come in pieces, the bytes of
/// the proof are the same, and it says so.
#[test]
fn gpu_a_key_that_does_not_fit_is_streamed() {
    let assignment = Assignment::of(circuit(&mut ChaCha8Rng::seed_from_u64(18), 18));
    let key = Arc::new(meaningless_key(&assignment.shape(), 1));
    let job = job(
        &assignment,
        CColumn::Scratch,
        key,
        Scalar::from(3),
        Scalar::from(4),
    );
    let Some(gpu) = backend(|_| {}) else { return };
    let new_job = || cuda_job(&assignment, &job, CSource::Product);
    let resident = proved(&gpu, new_job());
    assert_eq!(resident.tier, Some(KeyTier::Resident));
    let held = gpu.device_bytes();
    drop(gpu);
    let key_bytes = (1u64 << 18) * (96 * 4 + 192);
    let limit = held - key_bytes / 2;
    let tiers = |host_keys: Option<KeyMemory>, tiers: &[KeyTier]| {
        let change = |options: &mut DeviceOptions| options.memory_bytes_max = Some(limit);
        let gpu = backend_with(change, None, host_keys).expect("there is a device");
        let at_start = gpu.device_allocations();
        for &tier in tiers {
            let streamed = proved(&gpu, new_job());
            assert_eq!(streamed.tier, Some(tier));
            assert_eq!(bytes(&streamed.proof), bytes(&resident.proof));
        }
        // Two at once, from where the last one left the key.
        let pending = [(); 2].map(|()| gpu.submit_job(new_job()));
        for mut pending in pending {
            let streamed = pending.done().expect("a request that fits");
            assert_eq!(streamed.tier, tiers.last().copied());
            assert_eq!(bytes(&streamed.proof), bytes(&resident.proof));
        }
        assert_eq!(gpu.device_allocations(), at_start);
    };
    let memory = |bytes_max, take: Arc<TakeBuffers>| Some(KeyMemory { bytes_max, take });
    let takes: Arc<TakeBuffers> = Arc::new(|lens: &[usize]| page_locked(lens));
    let (file, pinned) = (KeyTier::File, KeyTier::Pinned);
    tiers(None, &[file, file]);
    tiers(memory(1 << 30, Arc::clone(&takes)), &[file, pinned, pinned]);
    // Less than the key takes, and a refusal.
    tiers(memory(key_bytes / 2, takes), &[file, file]);
    tiers(memory(1 << 30, Arc::new(|_: &[usize]| None)), &[file, file]);
}

/// Chunks far smaller than a column, so that each is waited for many times, by the
/// threads that fill them.
#[test]
fn gpu_columns_go_through_a_small_ring() {
    let Some(chunks) = page_locked(&[1 << 16; 3]) else {
        return;
    };
    let ring = StagingRing::from_buffers(chunks, THREADS);
    let Some(gpu) = backend_with(|_| {}, Some(ring), None) else {
        return;
    };
    let cpu = cpu();
    for seed in 0..4 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        compare(&cpu, &gpu, CSource::Product, circuit(&mut rng, 16));
    }
}
