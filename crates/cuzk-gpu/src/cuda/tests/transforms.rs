//! Transforms against their definition and against the CPU's.

use blstrs::Scalar;
use ff::{Field, PrimeField};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::device;
use crate::cpu::ntt::{Domain, Points};
use crate::cuda::border::{self, call};
use crate::cuda::device::{Device, Lane};

pub(super) fn random(len: usize, seed: u64) -> Vec<Scalar> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| Scalar::random(&mut rng)).collect()
}

pub(super) fn transformed(
    device: &Device,
    values: &[Scalar],
    direction: u32,
    coset: u32,
) -> Vec<Scalar> {
    let memory = device
        .allocate("a transform", size_of_val(values) as u64)
        .expect("room for a small transform");
    let mut out = vec![Scalar::ZERO; values.len()];
    // SAFETY: waited for by `copy_out`, which is queued behind it.
    unsafe { device.copy_in(Lane::Compute, memory.region(), values) }.expect("a copy");
    call("a transform", |message| {
        // SAFETY: the region holds the scalars.
        unsafe {
            border::cuzk_transform(
                device.raw(),
                memory.region().address(),
                values.len().ilog2(),
                direction,
                coset,
                message,
            )
        }
    })
    .expect("a transform");
    device
        .copy_out(Lane::Compute, &mut out, memory.region())
        .expect("a copy");
    out
}

/// Powers of the domain's generator as the CPU has it: the transform of x.
fn points(domain: &Domain, points: Points) -> Vec<Scalar> {
    let mut values = vec![Scalar::ZERO; domain.len()];
    if values.len() > 1 {
        values[1] = Scalar::ONE;
        domain.forward(&mut values, points);
    } else {
        values[0] = Scalar::ONE;
    }
    values
}

#[test]
fn gpu_transforms_are_the_defining_sum() {
    let Some(device) = device() else { return };
    for log in 0..=12 {
        let len = 1usize << log;
        let domain = Domain::new(len).expect("a power of two");
        let coefficients = random(len, log);
        let points = points(&domain, Points::Subgroup);
        // All of a small one, a sample of a large one.
        let step = (len / 64).max(1);
        let values = transformed(&device, &coefficients, 0, 0);
        for at in (0..len).step_by(step) {
            let expected = coefficients
                .iter()
                .rev()
                .fold(Scalar::ZERO, |sum, c| sum * points[at] + c);
            assert_eq!(values[at], expected, "2^{log} at {at}");
        }
    }
}

#[test]
fn gpu_transforms_are_the_cpus_on_domain_and_coset() {
    let Some(device) = device() else { return };
    for log in [1, 2, 5, 9, 10, 11, 15, 18, 19, 20] {
        let values = random(1 << log, log);
        let domain = Domain::new(values.len()).expect("a power of two");
        for (coset, points) in [(0, Points::Subgroup), (1, Points::Coset)] {
            let mut expected = values.clone();
            domain.forward(&mut expected, points);
            let evaluated = transformed(&device, &values, 0, coset);
            assert!(evaluated == expected, "2^{log} {points:?}");
            let back = transformed(&device, &evaluated, 1, coset);
            assert!(back == values, "2^{log} {points:?}, back");
        }
    }
}

/// Beyond what the CPU does in a test: there and back again.
#[test]
fn gpu_large_transforms_come_back() {
    let Some(device) = device() else { return };
    for log in [22, 24, 26, 27, 28] {
        let bytes = 32u64 << log;
        if bytes > device.room_bytes() {
            println!("skipped 2^{log}: {} bytes are free", device.room_bytes());
            continue;
        }
        let piece = random(1 << 16, log);
        let memory = device.allocate("a transform", bytes).expect("room");
        let piece_bytes = size_of_val(&piece[..]) as u64;
        for at in 0..(bytes / piece_bytes) {
            let to = memory.region().part(at * piece_bytes, piece_bytes);
            // SAFETY: `piece` lives to the end of this turn, which waits.
            unsafe { device.copy_in(Lane::Compute, to, &piece) }.expect("a copy");
        }
        let mut seen = vec![Scalar::ZERO; piece.len()];
        for direction in [0, 1] {
            call("a transform", |message| {
                // SAFETY: the region holds 2^log scalars.
                unsafe {
                    let address = memory.region().address();
                    border::cuzk_transform(device.raw(), address, log as u32, direction, 1, message)
                }
            })
            .expect("a transform");
            let last = memory.region().part(bytes - piece_bytes, piece_bytes);
            device
                .copy_out(Lane::Compute, &mut seen, last)
                .expect("a copy");
            assert_eq!(seen == piece, direction == 1, "2^{log}");
        }
    }
}

/// A polynomial of three terms, of any degree: its values are known without a transform.
#[test]
fn gpu_large_transforms_are_values_of_a_polynomial() {
    let Some(device) = device() else { return };
    for log in [20u32, 27] {
        let len = 1usize << log;
        let bytes = 32u64 << log;
        if bytes > device.room_bytes() {
            println!("skipped 2^{log}: {} bytes are free", device.room_bytes());
            continue;
        }
        let memory = device.allocate("a transform", bytes).expect("room");
        let region = memory.region();
        let terms = [0, len / 3, len - 1].map(|at| (at, random(1, at as u64)[0]));
        device.fill(Lane::Compute, region, 0).expect("zeros");
        for (at, coefficient) in &terms {
            let to = region.part(*at as u64 * 32, 32);
            // SAFETY: waited for below.
            unsafe { device.copy_in(Lane::Compute, to, std::slice::from_ref(coefficient)) }
                .expect("a copy");
        }
        device.wait(Lane::Compute).expect("copies");
        call("a transform", |message| {
            // SAFETY: the region holds 2^log scalars.
            unsafe { border::cuzk_transform(device.raw(), region.address(), log, 0, 1, message) }
        })
        .expect("a transform");
        let root = Scalar::ROOT_OF_UNITY.pow_vartime([1 << (Scalar::S - log)]);
        for at in [0, 1, 2, 1000, len / 2, len / 2 + 1, len - 2, len - 1] {
            let point = Scalar::MULTIPLICATIVE_GENERATOR * root.pow_vartime([at as u64]);
            let expected: Scalar = terms
                .iter()
                .map(|(degree, coefficient)| coefficient * point.pow_vartime([*degree as u64]))
                .sum();
            let mut seen = [Scalar::ZERO];
            device
                .copy_out(Lane::Compute, &mut seen, region.part(at as u64 * 32, 32))
                .expect("a copy");
            assert_eq!(seen[0], expected, "2^{log} at {at}");
        }
    }
}
