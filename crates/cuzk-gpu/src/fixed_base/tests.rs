use ff::Field;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::*;

/// Double and add, bit by bit.
fn product<P: AffinePoint>(base: &P, scalar: &Scalar) -> P {
    let mut sum = P::Curve::identity();
    for byte in scalar.to_repr().iter().rev() {
        for bit in (0..8).rev() {
            sum = sum.double();
            if byte >> bit & 1 == 1 {
                sum += base;
            }
        }
    }
    sum.to_affine()
}

fn check<P: AffinePoint + Send + Sync>(base: P, window_bits: u32, scalars: &[Scalar]) {
    let table = FixedBase::new(base, window_bits);
    // Filled with something else first: every product must be written.
    let mut products = vec![P::generator(); scalars.len()];
    table.mul_many(scalars, &mut products);
    for (scalar, have) in scalars.iter().zip(products) {
        let want = product(&base, scalar);
        assert_eq!(have, want, "window of {window_bits} bits, {scalar:?}");
    }
}

/// Zero, one, minus one, the halves of the group order, each power of two and its
/// neighbours and negatives: what carries, or ends at a window's edge.
fn corners() -> Vec<Scalar> {
    let half = Scalar::TWO_INV;
    let mut scalars = vec![Scalar::ZERO, half, half - Scalar::ONE, -half];
    let mut power = Scalar::ONE;
    for _ in 0..256 {
        scalars.extend([power, power - Scalar::ONE, power + Scalar::ONE]);
        scalars.extend([-power, Scalar::ONE - power]);
        power = power.double();
    }
    scalars
}

#[test]
fn corner_scalars_of_every_window() {
    for window_bits in WINDOW_BITS_MIN..=12 {
        check(G1Affine::generator(), window_bits, &corners());
    }
    for window_bits in [2, 5, 8] {
        check(G2Affine::generator(), window_bits, &corners()[..400]);
    }
    check(G1Affine::generator(), 16, &corners());
}

#[test]
fn no_scalars_and_one() {
    check(G1Affine::generator(), 4, &[]);
    check(G2Affine::generator(), 4, &[-Scalar::ONE]);
}

#[test]
fn the_base_at_infinity_has_no_other_multiple() {
    check(G1Affine::identity(), 5, &corners()[..50]);
    check(G2Affine::identity(), 5, &corners()[..50]);
}

#[test]
fn batches_hold_equal_zero_and_few_scalars() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let random = Scalar::random(&mut rng);
    for len in [1, 2, 3, BATCH_SCALARS - 1, 2 * BATCH_SCALARS + 1] {
        check(G1Affine::generator(), 7, &vec![random; len]);
        check(G1Affine::generator(), 7, &vec![Scalar::ZERO; len]);
    }
}

#[test]
fn sums_are_right_in_every_case() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut random = || blstrs::G1Projective::random(&mut rng).to_affine();
    let (p, q) = (random(), random());
    let zero = G1Affine::identity();
    let pairs = [
        (zero, zero),
        (p, zero),
        (zero, q),
        (p, q),
        (p, p),
        (q, -q),
        (q, p),
    ];
    let mut sums: Vec<_> = pairs.iter().map(|pair| pair.0).collect();
    let addends: Vec<_> = pairs.iter().map(|pair| pair.1).collect();
    BatchAdder::new().add(&mut sums, &addends);
    for (sum, (left, right)) in sums.iter().zip(pairs) {
        assert_eq!(*sum, (left.to_curve() + right).to_affine());
    }
}

#[test]
fn windows_grow_with_the_job() {
    let sizes: Vec<_> = [0, 1, 100, 10_000, 1_000_000, 10_000_000, 1 << 30]
        .map(window_bits_for)
        .into();
    assert!(sizes.is_sorted(), "{sizes:?}");
    assert_eq!(sizes.first(), Some(&WINDOW_BITS_MIN));
    assert_eq!(sizes.last(), Some(&WINDOW_BITS_DEFAULT_MAX));
}

proptest! {
    // A product by double and add takes a fraction of a millisecond, so that a
    // case is dominated by its table; twelve bits build in a few milliseconds.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn random_scalars(seed: u64, window_bits in WINDOW_BITS_MIN..=12, len in 0_usize..40) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let scalars: Vec<_> = (0..len).map(|_| Scalar::random(&mut rng)).collect();
        let base = blstrs::G1Projective::random(&mut rng).to_affine();
        check(base, window_bits, &scalars);
        let base = blstrs::G2Projective::random(&mut rng).to_affine();
        check(base, window_bits, &scalars);
    }
}
