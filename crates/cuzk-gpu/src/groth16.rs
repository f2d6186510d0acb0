//! Groth16 apart from the arithmetic: what a request must hold, and how a proof is
//! put together from its sums.
//!
//! The formulas are those of Groth 2016 ("On the size of pairing-based
//! non-interactive arguments", section 3.2) in bellperson's arrangement: the same
//! blinding scalars give the same proof bytes.

use bellperson::groth16::{Proof, VerifyingKey};
use blstrs::{Bls12, G1Projective, G2Projective, Scalar};
use group::Curve;

use crate::column::{ColumnLayout, Columns};
use crate::error::BackendError;
use crate::key::Section;
use crate::shape::{Bitmap, CircuitShape, CircuitSizes};

/// What a proof is made of, beside its columns and its key.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    /// Public inputs, the constant one first.
    pub inputs: &'a [Scalar],
    /// Sizes and densities of the circuit.
    pub shape: &'a CircuitShape,
    /// Groth16's blinding scalar of A.
    pub r: Scalar,
    /// Groth16's blinding scalar of B.
    pub s: Scalar,
}

/// The five sums of a proof: points of a query times their scalars.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    pub(crate) h: G1Projective,
    pub(crate) l: G1Projective,
    pub(crate) a: G1Projective,
    pub(crate) b_g1: G1Projective,
    pub(crate) b_g2: G2Projective,
}

/// Puts a proof together.
pub(crate) fn assemble(
    vk: &VerifyingKey<Bls12>,
    sums: &Sums,
    r: Scalar,
    s: Scalar,
) -> Proof<Bls12> {
    // A = alpha + sum(a) + r delta, B likewise with s, and
    // C = h + l + s A + r B - r s delta, written out in the sums at hand.
    let proof_a = sums.a + vk.alpha_g1 + vk.delta_g1 * r;
    let proof_b = sums.b_g2 + vk.beta_g2 + vk.delta_g2 * s;
    let blinded_b = sums.b_g1 + vk.beta_g1 + vk.delta_g1 * s;
    let proof_c = sums.h + sums.l + (sums.a + vk.alpha_g1) * s + blinded_b * r;
    Proof {
        a: proof_a.to_affine(),
        b: proof_b.to_affine(),
        c: proof_c.to_affine(),
    }
}

/// Number of points that a circuit wants in each section of its key.
fn wanted_counts(shape: &CircuitShape) -> [(Section, usize); 6] {
    let CircuitSizes { inputs, aux, .. } = shape.sizes;
    let b = shape.b_inputs.ones() + shape.b_aux.ones();
    [
        (Section::Ic, inputs),
        (Section::H, shape.sizes.domain() - 1),
        (Section::L, aux),
        (Section::A, inputs + shape.a_aux.ones()),
        (Section::BG1, b),
        (Section::BG2, b),
    ]
}

/// Compares the parts of a request with each other: the columns with `layout`, and
/// the points in each section, `count`, with what the circuit wants.
pub(crate) fn check(
    columns: &Columns,
    layout: &ColumnLayout,
    statement: &Statement<'_>,
    count: impl Fn(Section) -> usize,
) -> Result<(), BackendError> {
    let shape = statement.shape;
    let sizes = &shape.sizes;
    let bits = |bitmap: &Bitmap| bitmap.len();
    let c = columns.c.as_ref().map_or(0, |c| c.len());
    let c_want = if layout.has_c() { layout.rows } else { c };
    for (what, have, want) in [
        ("scalars in column a", columns.a.len(), layout.rows),
        ("scalars in column b", columns.b.len(), layout.rows),
        ("scalars in column c", c, c_want),
        ("scalars in column aux", columns.aux.len(), layout.aux),
        ("public inputs", statement.inputs.len(), sizes.inputs),
        ("bits in the density of a", bits(&shape.a_aux), sizes.aux),
        (
            "bits in the input density of b",
            bits(&shape.b_inputs),
            sizes.inputs,
        ),
        ("bits in the density of b", bits(&shape.b_aux), sizes.aux),
    ] {
        if have != want {
            return Err(mismatch(what, have, want));
        }
    }
    for (section, want) in wanted_counts(shape) {
        let have = count(section);
        if have != want {
            return Err(mismatch(points_in(section), have, want));
        }
    }
    Ok(())
}

/// Names what is counted in a section.
fn points_in(section: Section) -> &'static str {
    match section {
        Section::VerifyingKey => "points in key section vk",
        Section::Ic => "points in key section ic",
        Section::H => "points in key section h",
        Section::L => "points in key section l",
        Section::A => "points in key section a",
        Section::BG1 => "points in key section b_g1",
        Section::BG2 => "points in key section b_g2",
    }
}

pub(crate) fn mismatch(what: &'static str, have: usize, want: usize) -> BackendError {
    BackendError::Mismatch { what, have, want }
}
