//! Groth16's prover over columns, densities and a key.
//!
//! The formulas are those of Groth 2016 ("On the size of pairing-based
//! non-interactive arguments", section 3.2) in bellperson's arrangement: the same
//! blinding scalars give the same proof bytes.

use std::time::Instant;

use bellperson::groth16::Proof;
use blstrs::{Bls12, G1Affine, G2Affine, Scalar};
use group::Curve;

use crate::backend::{PhaseTimes, Proved};
use crate::column::Columns;
use crate::cpu::h::{CSource, Transforms, quotient};
use crate::cpu::msm::{Density, Point, msm};
use crate::cpu::ntt::Domain;
use crate::cpu::source::PointSource;
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

/// Proves on the current rayon pool. The columns must hold what
/// [`Columns`] says, the third one as `c_source` says; afterwards `a`, `b` and `c`
/// hold nothing of use.
///
/// # Errors
/// If the parts of the request do not fit together, found before any work, or if a
/// section of the key cannot be read.
pub fn prove<S: PointSource>(
    columns: &mut Columns,
    statement: Statement<'_>,
    key: &S,
    c_source: CSource,
    transforms: Transforms,
) -> Result<Proved, BackendError> {
    check(columns, &statement, key)?;
    let Statement {
        inputs,
        shape,
        r,
        s,
    } = statement;
    let vk = key.vk();
    let mut phases = Phases::start();

    let len = shape.sizes.domain();
    let coefficients = columns.a.scalars_mut();
    {
        let domain = Domain::new(len).ok_or(BackendError::Mismatch {
            what: "constraints beyond the largest domain",
            have: shape.sizes.constraints,
            want: 1 << 32,
        })?;
        let c = columns.c.as_mut().ok_or(mismatch("columns", 3, 4))?;
        quotient(
            &domain,
            coefficients,
            columns.b.scalars_mut(),
            c.scalars_mut(),
            c_source,
            transforms,
        );
    }
    phases.end("ntt");

    let points = key.g1(Section::H)?;
    phases.end("key_h");
    let h = msm::<G1Affine>(&points, &coefficients[..len - 1], Density::Full);
    drop(points);
    phases.end("msm_h");

    let aux = columns.aux.scalars();
    let points = key.g1(Section::L)?;
    phases.end("key_l");
    let l = msm::<G1Affine>(&points, aux, Density::Full);
    drop(points);
    phases.end("msm_l");

    let points = key.g1(Section::A)?;
    phases.end("key_a");
    let a = query(
        &points,
        (inputs, Density::Full),
        (aux, Density::Set(&shape.a_aux)),
    );
    drop(points);
    phases.end("msm_a");

    let b_inputs = (inputs, Density::Set(&shape.b_inputs));
    let b_aux = (aux, Density::Set(&shape.b_aux));
    let points = key.g1(Section::BG1)?;
    phases.end("key_b_g1");
    let b_g1 = query::<G1Affine>(&points, b_inputs, b_aux);
    drop(points);
    phases.end("msm_b_g1");

    let points = key.g2()?;
    phases.end("key_b_g2");
    let b_g2 = query::<G2Affine>(&points, b_inputs, b_aux);
    drop(points);
    phases.end("msm_b_g2");

    // A = alpha + sum(a) + r delta, B likewise with s, and
    // C = h + l + s A + r B - r s delta, written out in the sums at hand.
    let proof_a = a + vk.alpha_g1 + vk.delta_g1 * r;
    let proof_b = b_g2 + vk.beta_g2 + vk.delta_g2 * s;
    let blinded_b = b_g1 + vk.beta_g1 + vk.delta_g1 * s;
    let proof_c = h + l + (a + vk.alpha_g1) * s + blinded_b * r;
    let proof = Proof::<Bls12> {
        a: proof_a.to_affine(),
        b: proof_b.to_affine(),
        c: proof_c.to_affine(),
    };
    phases.end("finish");
    Ok(Proved {
        proof,
        phases: PhaseTimes(phases.times),
    })
}

/// A query over inputs and auxiliary variables, whose points stand in this order.
fn query<P: Point>(
    points: &[P],
    inputs: (&[Scalar], Density<'_>),
    aux: (&[Scalar], Density<'_>),
) -> P::Curve {
    let (of_inputs, of_aux) = points.split_at(inputs.1.points(inputs.0.len()));
    msm(of_inputs, inputs.0, inputs.1) + msm(of_aux, aux.0, aux.1)
}

/// Number of points that a circuit wants in each section of its key.
pub fn wanted_counts(shape: &CircuitShape) -> [(Section, usize); 6] {
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

/// Compares the parts of a request with each other.
fn check<S: PointSource>(
    columns: &Columns,
    statement: &Statement<'_>,
    key: &S,
) -> Result<(), BackendError> {
    let shape = statement.shape;
    let sizes = &shape.sizes;
    let domain = sizes.domain();
    let bits = |bitmap: &Bitmap| bitmap.len();
    let c = columns.c.as_ref().map_or(0, |c| c.len());
    for (what, have, want) in [
        ("scalars in column a", columns.a.len(), domain),
        ("scalars in column b", columns.b.len(), domain),
        ("scalars in column c", c, domain),
        ("scalars in column aux", columns.aux.len(), sizes.aux),
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
        let have = key.count(section);
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

fn mismatch(what: &'static str, have: usize, want: usize) -> BackendError {
    BackendError::Mismatch { what, have, want }
}

/// A stopwatch with laps.
struct Phases {
    since: Instant,
    times: Vec<(&'static str, f64)>,
}

impl Phases {
    fn start() -> Self {
        Self {
            since: Instant::now(),
            times: Vec::with_capacity(12),
        }
    }

    /// Ends the phase `name`, in milliseconds, and begins the next.
    fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        let lap = now.duration_since(self.since);
        self.times.push((name, lap.as_secs_f64() * 1e3));
        self.since = now;
    }
}
