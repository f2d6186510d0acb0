//! The coefficients of Groth16's quotient polynomial `h = (A B - C) / Z`.
//!
//! `Z` is one constant on the coset and `C` has a lower degree than `Z`, so
//! `h = interpolation(A B on the coset) / Z - C / Z` holds coefficient by
//! coefficient: C never has to be evaluated on the coset. That is six transforms
//! where the textbook takes seven, with the same result to the last bit.

use blstrs::Scalar;
use ff::PrimeField;
use rayon::prelude::*;

use crate::cpu::ntt::{Domain, bit_reverse, generator_inverse};

/// Scalars in one parallel piece of a pass.
const PIECE_LEN: usize = 1 << 12;

/// How many transforms compute `h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transforms {
    /// C is subtracted as coefficients.
    Six,
    /// C is evaluated on the coset like A and B.
    Seven,
}

/// Where the evaluations of C come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CSource {
    /// They are A times B, as for every satisfied witness; the third column is
    /// scratch. An unsatisfied witness gives a proof that does not verify.
    Product,
    /// Synthesis has written them into the third column.
    Synthesised,
}

/// Replaces the evaluations in `a` by the coefficients of `h`, in natural order.
/// `b` and `c` are scratch afterwards.
///
/// All three have the domain's length. For a satisfied witness the last
/// coefficient is zero.
pub fn quotient(
    domain: &Domain,
    a: &mut [Scalar],
    b: &mut [Scalar],
    c: &mut [Scalar],
    c_source: CSource,
    transforms: Transforms,
) {
    if c_source == CSource::Product {
        c.par_iter_mut()
            .with_min_len(PIECE_LEN)
            .zip(a.par_iter().zip(b.par_iter()))
            .for_each(|(c, (a, b))| *c = a * b);
    }
    domain.interpolate(a);
    domain.interpolate(b);
    domain.interpolate(c);

    let generator = Scalar::MULTIPLICATIVE_GENERATOR;
    domain.shift(&mut [a, b], generator);
    domain.evaluate(a);
    domain.evaluate(b);
    if transforms == Transforms::Seven {
        domain.shift(&mut [c], generator);
        domain.evaluate(c);
    }

    // Each interpolation left a factor of the length in its column. It is taken
    // out where a pass runs anyway: a product of two columns carries it twice.
    let unscale = domain.len_inverse();
    match transforms {
        Transforms::Six => combine(a, b, |a, b| a * b),
        Transforms::Seven => {
            combine(a, b, |a, b| a * b * unscale);
            combine(a, c, |a, c| a - c);
        }
    }
    domain.interpolate(a);
    domain.shift(&mut [a], generator_inverse());

    let c_scale = unscale * domain.vanishing_inverse();
    let a_scale = c_scale * unscale;
    match transforms {
        Transforms::Six => {
            let a_scale = a_scale * unscale;
            combine(a, c, |a, c| a * a_scale - c * c_scale);
        }
        Transforms::Seven => a
            .par_iter_mut()
            .with_min_len(PIECE_LEN)
            .for_each(|a| *a *= a_scale),
    }
    bit_reverse(a);
}

/// Replaces each scalar of `left` by `combined(left, right)`.
fn combine(
    left: &mut [Scalar],
    right: &[Scalar],
    combined: impl Fn(Scalar, Scalar) -> Scalar + Sync,
) {
    left.par_iter_mut()
        .with_min_len(PIECE_LEN)
        .zip(right)
        .for_each(|(left, right)| *left = combined(*left, *right));
}
