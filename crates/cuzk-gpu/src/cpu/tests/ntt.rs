//! Transforms against the defining sum and against bellperson's.

use bellperson::domain::EvaluationDomain;
use blstrs::Scalar;
use ec_gpu_gen::threadpool::Worker;
use ff::{Field, PrimeField};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::cpu::h::{CSource, Transforms, quotient};
use crate::cpu::ntt::{Domain, Points, bit_reverse};

fn random(len: usize, seed: u64) -> Vec<Scalar> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| Scalar::random(&mut rng)).collect()
}

fn domain(len: usize) -> Domain {
    Domain::new(len).expect("a power of two")
}

/// The value of a polynomial at each point of the domain, term by term.
fn evaluated(coefficients: &[Scalar], points: Points) -> Vec<Scalar> {
    let log_len = coefficients.len().ilog2();
    let omega = (log_len..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square());
    let first = match points {
        Points::Subgroup => Scalar::ONE,
        Points::Coset => Scalar::from(7),
    };
    std::iter::successors(Some(first), |point| Some(point * omega))
        .take(coefficients.len())
        .map(|point| {
            let powers = std::iter::successors(Some(Scalar::ONE), |power| Some(power * point));
            coefficients.iter().zip(powers).map(|(c, p)| c * p).sum()
        })
        .collect()
}

#[test]
fn small_transforms_are_the_defining_sum() {
    for log_len in 0..=8 {
        for points in [Points::Subgroup, Points::Coset] {
            let coefficients = random(1 << log_len, log_len);
            let mut values = coefficients.clone();
            domain(1 << log_len).forward(&mut values, points);
            assert_eq!(values, evaluated(&coefficients, points), "2^{log_len}");
            domain(1 << log_len).inverse(&mut values, points);
            assert_eq!(values, coefficients, "back from 2^{log_len}");
        }
    }
}

/// Sizes on both sides of where bit reversal goes by tiles (2^10) and where
/// transforms become parallel (2^15).
#[test]
fn transforms_are_bellpersons() {
    let worker = Worker::new();
    for log_len in [1, 5, 9, 10, 11, 13, 15, 16, 17] {
        let values = random(1 << log_len, log_len);
        let theirs = || EvaluationDomain::from_coeffs(values.clone()).expect("a small domain");
        let domain = domain(1 << log_len);
        let ours = |transform: &dyn Fn(&mut [Scalar])| {
            let mut values = values.clone();
            transform(&mut values);
            values
        };

        let mut forward = theirs();
        forward.fft(&worker, &mut None).expect("no device is used");
        let values = ours(&|values| domain.forward(values, Points::Subgroup));
        assert_eq!(values, forward.into_coeffs(), "forward 2^{log_len}");

        let mut inverse = theirs();
        inverse.ifft(&worker, &mut None).expect("no device is used");
        let values = ours(&|values| domain.inverse(values, Points::Subgroup));
        assert_eq!(values, inverse.into_coeffs(), "inverse 2^{log_len}");

        let mut forward = theirs();
        forward
            .coset_fft(&worker, &mut None)
            .expect("no device is used");
        let values = ours(&|values| domain.forward(values, Points::Coset));
        assert_eq!(values, forward.into_coeffs(), "coset forward 2^{log_len}");

        let mut inverse = theirs();
        inverse
            .icoset_fft(&worker, &mut None)
            .expect("no device is used");
        let values = ours(&|values| domain.inverse(values, Points::Coset));
        assert_eq!(values, inverse.into_coeffs(), "coset inverse 2^{log_len}");
    }
}

#[test]
fn only_powers_of_two_up_to_the_fields_order_are_domains() {
    for len in [0, 3, 6, 1 << 33] {
        assert!(Domain::new(len).is_none(), "{len}");
    }
    assert_eq!(domain(1).len(), 1);
}

#[test]
fn bit_reversal_is_its_own_inverse_and_moves_each_index() {
    for bits in 0..=13 {
        let values: Vec<Scalar> = (0..1u64 << bits).map(Scalar::from).collect();
        let mut reversed = values.clone();
        bit_reverse(&mut reversed);
        for (at, value) in reversed.iter().enumerate() {
            let from = (0..bits).fold(0, |from, bit| from | ((at >> bit) & 1) << (bits - 1 - bit));
            assert_eq!(*value, values[from], "index {at} of 2^{bits}");
        }
        bit_reverse(&mut reversed);
        assert_eq!(reversed, values, "twice over 2^{bits}");
    }
}

/// A B - C of any columns, satisfied or not: the two ways agree, and both are
/// what bellperson computes step by step.
#[test]
fn quotients_are_bellpersons_by_six_and_by_seven_transforms() {
    let worker = Worker::new();
    for log_len in [0, 1, 2, 6, 12, 16] {
        let len = 1 << log_len;
        let (a, b) = (random(len, 1), random(len, 2));
        let product: Vec<Scalar> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        for (c, c_source) in [
            (product.clone(), CSource::Synthesised),
            (product, CSource::Product),
            (random(len, 3), CSource::Synthesised),
        ] {
            let theirs = {
                let lift = |values: &[Scalar]| {
                    let mut domain =
                        EvaluationDomain::from_coeffs(values.to_vec()).expect("a small domain");
                    domain.ifft(&worker, &mut None).expect("no device is used");
                    domain
                        .coset_fft(&worker, &mut None)
                        .expect("no device is used");
                    domain
                };
                let mut quotient = lift(&a);
                quotient.mul_assign(&worker, &lift(&b));
                quotient.sub_assign(&worker, &lift(&c));
                quotient.divide_by_z_on_coset(&worker);
                quotient
                    .icoset_fft(&worker, &mut None)
                    .expect("no device is used");
                quotient.into_coeffs()
            };
            for transforms in [Transforms::Six, Transforms::Seven] {
                let mut ours = a.clone();
                let mut third = match c_source {
                    CSource::Product => random(len, 4),
                    CSource::Synthesised => c.clone(),
                };
                quotient(
                    &domain(len),
                    &mut ours,
                    &mut b.clone(),
                    &mut third,
                    c_source,
                    transforms,
                );
                assert_eq!(ours, theirs, "{c_source:?} {transforms:?} 2^{log_len}");
            }
        }
    }
}
