//! Sums against double-and-add.

use std::sync::Arc;

use blstrs::{G1Affine, G2Affine, Scalar};
use ec_gpu_gen::multiexp_cpu::{DensityTracker, multiexp_cpu};
use ec_gpu_gen::threadpool::Worker;
use ff::{Field, PrimeField};
use group::{Curve, Group};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::{Density, Point, WINDOW_BITS_MAX, Windows, halved, msm};
use crate::cpu::tests::circuit::bitmap;
use crate::cpu::tests::{g1_points, g2_points, scalar};

/// The sum by double-and-add, point by point.
fn naive<P: Point>(points: &[P], scalars: &[Scalar], bits: &[bool]) -> P::Curve {
    let scalars = scalars.iter().zip(bits).filter(|(_, bit)| **bit);
    points
        .iter()
        .zip(scalars)
        .fold(P::Curve::identity(), |sum, (point, (scalar, _))| {
            sum + double_and_add(point, scalar)
        })
}

/// One product from the scalar's highest bit down, with the group's own addition.
fn double_and_add<P: Point>(point: &P, scalar: &Scalar) -> P::Curve {
    let bytes = scalar.to_bytes_be();
    let bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1));
    bits.fold(P::Curve::identity(), |sum, bit| {
        let sum = sum.double();
        if bit { sum + point } else { sum }
    })
}

/// Points with identities, repeats and opposites among them.
fn points<P: Point>(len: usize, rng: &mut ChaCha8Rng) -> Vec<P> {
    let mut points: Vec<P> = Vec::with_capacity(len);
    for at in 0..len {
        let point = match rng.next_u32() % 8 {
            0 => P::identity(),
            1 | 2 if at > 0 => points[rng.next_u32() as usize % at],
            3 if at > 0 => -points[rng.next_u32() as usize % at],
            _ => P::Curve::random(&mut *rng).to_affine(),
        };
        points.push(point);
    }
    points
}

/// What scalars look like.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Zero,
    One,
    MinusOne,
    Equal,
    Bits,
    Mixed,
    Random,
}

fn scalars(len: usize, kind: Kind, rng: &mut ChaCha8Rng) -> Vec<Scalar> {
    let equal = Scalar::random(&mut *rng);
    (0..len)
        .map(|_| match kind {
            Kind::Zero => Scalar::ZERO,
            Kind::One => Scalar::ONE,
            Kind::MinusOne => -Scalar::ONE,
            Kind::Equal => equal,
            Kind::Bits => Scalar::from(u64::from(rng.next_u32() % 2)),
            Kind::Mixed => scalar(rng),
            Kind::Random => Scalar::random(&mut *rng),
        })
        .collect()
}

const KINDS: [Kind; 7] = [
    Kind::Zero,
    Kind::One,
    Kind::MinusOne,
    Kind::Equal,
    Kind::Bits,
    Kind::Mixed,
    Kind::Random,
];

/// Compares one sum with full and with partial density.
fn compare<P: Point>(len: usize, kind: Kind, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let scalars = scalars(len, kind, &mut rng);
    let points = points::<P>(len, &mut rng);
    assert!(
        msm(&points, &scalars, Density::Full) == naive(&points, &scalars, &vec![true; len]),
        "{len} terms, {kind:?}, seed {seed}"
    );
    let bits: Vec<bool> = (0..len).map(|_| rng.next_u32() % 3 != 0).collect();
    let set = bitmap(&bits);
    let points = &points[..set.ones()];
    assert!(
        msm(points, &scalars, Density::Set(&set)) == naive(points, &scalars, &bits),
        "{len} terms, {kind:?}, seed {seed}, some without a point"
    );
}

#[test]
fn few_terms_of_every_kind() {
    for len in [0, 1, 2, 3, 31, 32, 33, 64, 65] {
        for kind in KINDS {
            compare::<G1Affine>(len, kind, len as u64);
            compare::<G2Affine>(len, kind, len as u64);
        }
    }
}

proptest! {
    // Sizes where batches of 512 fill up, in cases that stay short.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn many_terms(len in 0usize..1500, kind in 0usize..7, seed in any::<u64>()) {
        compare::<G1Affine>(len, KINDS[kind], seed);
        compare::<G2Affine>(len / 4, KINDS[kind], seed);
    }
}

/// Many blocks and several rounds. The points are `first + i step`, so the sum is
/// known from two sums of scalars.
fn compare_with_a_line<P: Point>(points: &[P], kind: Kind) {
    let len = points.len();
    let scalars = scalars(len, kind, &mut ChaCha8Rng::seed_from_u64(41));
    let first = points[0];
    let step = points[1].to_curve() - first.to_curve();
    let plain: Scalar = scalars.iter().sum();
    let weighted: Scalar = (0..len as u64)
        .map(Scalar::from)
        .zip(&scalars)
        .map(|(i, s)| i * s)
        .sum();
    assert!(
        msm(points, &scalars, Density::Full) == first.to_curve() * plain + step * weighted,
        "{len} terms, {kind:?}"
    );
}

#[test]
fn several_rounds_of_terms() {
    let points = g1_points(300_000, 42);
    for kind in [Kind::One, Kind::Equal, Kind::Mixed, Kind::Random] {
        compare_with_a_line(&points, kind);
    }
    let points = g2_points(20_000, 43);
    for kind in [Kind::One, Kind::Equal, Kind::Mixed] {
        compare_with_a_line(&points, kind);
    }
}

/// A second oracle, at a size that double-and-add would take long for.
#[test]
fn sums_are_bellpersons() {
    let len = 1 << 14;
    let mut rng = ChaCha8Rng::seed_from_u64(46);
    let scalars = scalars(len, Kind::Mixed, &mut rng);
    let bits: Vec<bool> = (0..len).map(|_| rng.next_u32() % 3 != 0).collect();
    let set = bitmap(&bits);
    let points = g1_points(set.ones(), 47);

    let mut density = DensityTracker::new();
    for (at, &bit) in bits.iter().enumerate() {
        density.add_element();
        if bit {
            density.inc(at);
        }
    }
    let exponents = scalars.iter().map(|scalar| scalar.to_repr()).collect();
    let source = (Arc::new(points.clone()), 0);
    let theirs = multiexp_cpu(
        &Worker::new(),
        source,
        Arc::new(density),
        Arc::new(exponents),
    );
    let theirs = theirs.wait().expect("a key without identities");
    assert_eq!(msm(&points, &scalars, Density::Set(&set)), theirs);
}

/// One thread has one set of buckets, forty have three.
#[test]
fn sums_do_not_depend_on_the_number_of_threads() {
    let points = g1_points(200_000, 44);
    for threads in [1, 40] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("threads");
        pool.install(|| compare_with_a_line(&points, Kind::Random));
    }
}

#[test]
fn digits_of_every_width_make_up_the_scalar() {
    let mut rng = ChaCha8Rng::seed_from_u64(45);
    let half = -Scalar::ONE * Scalar::from(2).invert().expect("two is not zero");
    let mut scalars = vec![Scalar::ONE, -Scalar::ONE, half, half + Scalar::ONE];
    scalars.extend((0..20).map(|_| Scalar::random(&mut rng)));
    for bits in 2..=WINDOW_BITS_MAX {
        let windows = Windows::new(bits);
        let base = Scalar::from(1 << bits);
        for scalar in &scalars {
            let (limbs, is_negated) = halved(*scalar);
            let sum = (0..windows.count).rev().fold(Scalar::ZERO, |sum, window| {
                let digit = windows.digit(&limbs, window);
                let size = digit.unsigned_abs();
                assert!(size as usize <= windows.buckets(), "{digit} of {bits} bits");
                let size = Scalar::from(u64::from(size));
                sum * base + if digit < 0 { -size } else { size }
            });
            let expected = if is_negated { -scalar } else { *scalar };
            assert_eq!(sum, expected, "{bits} bits");
        }
    }
}
