//! What `cargo xtask cuda sanitize` runs: every kernel, in sizes that a sanitizer bears.

use blstrs::{G1Affine, G2Affine, Scalar};
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::keys::{KEY_FILE, open, with_key, written};
use super::proofs::{bytes, circuit, compare, cpu, cuda_job, proved};
use super::transforms::{random, transformed};
use super::{backend, device};
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::circuit::Assignment;
use crate::fixed_base::{Multiplier, OnCpu};

#[test]
fn gpu_small_proofs_take_every_kernel_of_a_proof() {
    let cpu = cpu();
    for (c_source, transforms, is_split, window_bits) in [
        (CSource::Product, Transforms::Six, true, None),
        (CSource::Synthesised, Transforms::Seven, false, Some(14)),
    ] {
        let gpu = backend(|options| {
            options.c_source = c_source;
            options.transforms = transforms;
            options.is_split = is_split;
            options.window_bits = window_bits;
        });
        let Some(gpu) = gpu else { return };
        let circuit = circuit(&mut ChaCha8Rng::seed_from_u64(7), 7);
        compare(&cpu, &gpu, c_source, circuit);
    }
}

#[test]
fn gpu_small_key_files_are_decoded() {
    let Some(gpu) = backend(|_| {}) else { return };
    let assignment = Assignment::of(circuit(&mut ChaCha8Rng::seed_from_u64(6), 6));
    let (directory, job) = written(&assignment);
    let key = open(&directory.path().join(KEY_FILE));
    let from_file = with_key(cuda_job(&assignment, &job, CSource::Product), &key);
    let theirs = cpu().submit_job(job).done().expect("a request that fits");
    assert_eq!(bytes(&proved(&gpu, from_file).proof), bytes(&theirs.proof));
}

#[test]
fn gpu_small_multiples_are_the_cpus() {
    let Some(gpu) = backend(|_| {}) else { return };
    let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
    let ours = gpu.tables((g1, 1), (g2, 1)).expect("a device");
    let theirs = OnCpu.tables((g1, 300), (g2, 300)).expect("the CPU");
    let scalars: Vec<Scalar> = random(300, 1);
    let same_g1 = ours.g1(&scalars).expect("points") == theirs.g1(&scalars).expect("points");
    let same_g2 = ours.g2(&scalars).expect("points") == theirs.g2(&scalars).expect("points");
    assert!(same_g1 && same_g2);
}

/// Sizes on both sides of what a block does, a launch, and a pair of launches.
#[test]
fn gpu_small_transforms_come_back() {
    let Some(device) = device() else { return };
    for log in [1, 5, 6, 9, 10, 11, 12, 16, 18, 19] {
        let values = random(1 << log, log);
        for coset in [0, 1] {
            let there = transformed(&device, &values, 0, coset);
            assert!(transformed(&device, &there, 1, coset) == values, "2^{log}");
        }
    }
}
