//! The backend against bellperson: transforms, whole proofs, and what happens to
//! requests that do not fit.

pub(crate) mod circuit;
pub(crate) mod conformance;
mod keys;
mod ntt;
mod proofs;
mod requests;

use std::num::NonZeroUsize;
use std::sync::Arc;

use bellperson::groth16::{Parameters, VerifyingKey};
use blstrs::{Bls12, G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_pinned::{AcquireRequest, PinnedPool};
use ff::Field;
use group::{Curve, Group};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::column::{CColumn, Column, Columns};
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::circuit::Assignment;
use crate::cpu::{CpuOptions, Job};
use crate::shape::CircuitShape;

/// Options of a small backend.
pub(crate) fn options(c_source: CSource, transforms: Transforms) -> CpuOptions {
    CpuOptions {
        threads: NonZeroUsize::new(2).expect("two is not zero"),
        queue_len_max: 4,
        c_source,
        transforms,
    }
}

/// `len` different points, not all of them far apart.
pub(crate) fn g1_points(len: usize, seed: u64) -> Vec<G1Affine> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let step = G1Projective::random(&mut rng);
    let first = G1Projective::random(&mut rng);
    let points: Vec<_> = std::iter::successors(Some(first), |point| Some(point + step))
        .take(len)
        .collect();
    let mut affine = vec![G1Affine::default(); len];
    G1Projective::batch_normalize(&points, &mut affine);
    affine
}

/// `len` different points of G2.
pub(crate) fn g2_points(len: usize, seed: u64) -> Vec<G2Affine> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let step = G2Projective::random(&mut rng);
    let first = G2Projective::random(&mut rng);
    std::iter::successors(Some(first), |point| Some(point + step))
        .take(len)
        .map(|point| point.to_affine())
        .collect()
}

/// A key of the right lengths whose points mean nothing: both provers must make
/// the same of it, and it takes no time to generate.
pub(crate) fn meaningless_key(shape: &CircuitShape, seed: u64) -> Parameters<Bls12> {
    let b = shape.b_inputs.ones() + shape.b_aux.ones();
    let fixed = g1_points(3, seed);
    let fixed_g2 = g2_points(3, seed);
    Parameters {
        vk: VerifyingKey {
            alpha_g1: fixed[0],
            beta_g1: fixed[1],
            delta_g1: fixed[2],
            beta_g2: fixed_g2[0],
            gamma_g2: fixed_g2[1],
            delta_g2: fixed_g2[2],
            ic: g1_points(shape.sizes.inputs, seed + 1),
        },
        h: Arc::new(g1_points(shape.sizes.domain() - 1, seed + 2)),
        l: Arc::new(g1_points(shape.sizes.aux, seed + 3)),
        a: Arc::new(g1_points(shape.sizes.inputs + shape.a_aux.ones(), seed + 4)),
        b_g1: Arc::new(g1_points(b, seed + 5)),
        b_g2: Arc::new(g2_points(b, seed + 6)),
    }
}

/// A job for an assignment, its columns filled the way synthesis does.
pub(crate) fn job<S>(
    assignment: &Assignment,
    c: CColumn,
    source: Arc<S>,
    r: Scalar,
    s: Scalar,
) -> Job<S> {
    let shape = Arc::new(assignment.shape());
    let domain = shape.sizes.domain();
    Job {
        columns: Columns {
            a: column(&assignment.a, domain),
            b: column(&assignment.b, domain),
            c: match c {
                CColumn::Absent => None,
                CColumn::Synthesised => Some(column(&assignment.c, domain)),
                CColumn::Scratch => Some(column(&[Scalar::from(3); 1], domain)),
            },
            aux: column(&assignment.aux, assignment.aux.len()),
        },
        inputs: assignment.inputs.clone(),
        shape,
        source,
        r,
        s,
        watch: None,
    }
}

/// A column of `len` scalars that begins with `scalars`.
pub(crate) fn column(scalars: &[Scalar], len: usize) -> Column {
    column_in(&PinnedPool::heap(Budget::new(1 << 30)), scalars, len)
}

/// Such a column from a pool.
pub(crate) fn column_in(pool: &PinnedPool, scalars: &[Scalar], len: usize) -> Column {
    let request = AcquireRequest {
        buffers: &[Column::bytes(len).expect("a small column")],
        bytes: 0,
        consumer: Consumer("columns"),
        wait: Wait::with_priority(Priority::NORMAL),
    };
    let mut acquired = pool.try_acquire(&request).expect("a budget with room");
    let mut column = Column::new(acquired.buffers.remove(0), len);
    column.scalars_mut()[..scalars.len()].copy_from_slice(scalars);
    column
}

/// A seeded random scalar, sometimes a special one.
pub(crate) fn scalar(rng: &mut ChaCha8Rng) -> Scalar {
    match rng.next_u32() % 8 {
        0 => Scalar::ZERO,
        1 => Scalar::ONE,
        2 => -Scalar::ONE,
        3 => Scalar::from(rng.next_u64()),
        _ => Scalar::random(rng),
    }
}
