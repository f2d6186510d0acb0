//! Multiples of the generators: the points of the CPU.

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::backend;
use crate::cpu::tests::scalar;
use crate::error::BackendError;
use crate::fixed_base::{Multiplier, OnCpu};

/// Lengths around what shares an inversion, a block of threads, and a block of
/// scalars.
#[test]
fn gpu_multiples_are_the_cpus() {
    let Some(gpu) = backend(|_| {}) else { return };
    let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
    let ours = gpu.tables((g1, 1), (g2, 1)).expect("a device");
    let theirs = OnCpu.tables((g1, 1 << 20), (g2, 1 << 16)).expect("the CPU");
    let minus_one = ours.g1(&[-Scalar::ONE]).expect("a point");
    assert_eq!(minus_one, [-g1]);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for len in [1, 2, 63, 64, 65, 127, 128, 129, 8191, 8193, (1 << 20) + 3] {
        let mut scalars: Vec<Scalar> = (0..len).map(|_| scalar(&mut rng)).collect();
        scalars[0] = -Scalar::ONE;
        assert!(
            ours.g1(&scalars).expect("points") == theirs.g1(&scalars).expect("points"),
            "{len} in G1"
        );
        let few = &scalars[..len.min(20_000)];
        assert!(
            ours.g2(few).expect("points") == theirs.g2(few).expect("points"),
            "{len} in G2"
        );
    }
    // Their requests would be each other's.
    let refused = gpu.tables((-g1, 1), (g2, 1)).err().expect("one at a time");
    assert!(matches!(refused, BackendError::Start { .. }), "{refused}");
    let zeros = vec![Scalar::ZERO; 300];
    assert!(ours.g1(&zeros).expect("points") == vec![G1Affine::identity(); 300]);
    drop(ours);
    let other = gpu.tables((-g1, 1), (g2, 1)).expect("the place is free");
    assert_eq!(other.g1(&[Scalar::ONE]).expect("a point"), [-g1]);
}
