//! The proof of a part as arithmetic with scalars, from the secrets of its key (Groth 2016,
//! section 3.2). It takes no key, no transform and no multiplication of many points, so
//! that it shares nothing with a prover but the witness; rows live no longer than it takes
//! to add them up, so that a part of 2^27 rows takes 1 GB a thread.

use anyhow::{Context, Result, ensure};
use bellperson::groth16::{Proof, VerifyingKey};
use blstrs::{Bls12, G1Projective, Scalar};
use cuzk_core::Part;
use cuzk_core::keygen::ToxicWaste;
use cuzk_synth::{AssignColumns, Extent, FilledSegment, Template};
use ff::{BatchInverter, Field, PrimeField};
use group::Curve;

use crate::synth::segments::in_threads;

/// Lagrange values that share an inversion.
const BATCH: usize = 1 << 12;

/// A key's secrets, and the sum of its circuit's inputs that anybody can see.
pub(super) struct Oracle<'a> {
    pub(super) waste: &'a ToxicWaste,
    pub(super) vk: &'a VerifyingKey<Bls12>,
}

/// `sum_i x_i L_i(tau)` of the three columns.
#[derive(Clone, Copy)]
struct Sums {
    a: Scalar,
    b: Scalar,
    c: Scalar,
}

impl Oracle<'_> {
    /// The proof of a part by its blinding scalars, encoded; `public` are its inputs as a
    /// verifier computes them.
    pub(super) fn proof(
        &self,
        template: &Template,
        part: &dyn Part,
        public: &[Scalar],
        (r, s): (Scalar, Scalar),
        threads: usize,
    ) -> Result<Vec<u8>> {
        let ToxicWaste {
            g1,
            g2,
            alpha,
            beta,
            gamma,
            delta,
            ..
        } = *self.waste;
        let Sums { a: u, b: v, c: w } = self.sums(template, part, public, threads)?;
        let a = alpha + u + r * delta;
        let b = beta + v + s * delta;
        let inverse = |secret: Scalar| -> Result<Scalar> {
            Option::from(secret.invert()).context("a secret of the key is zero")
        };
        // All variables, and h(tau) Z(tau) by the quotient's definition; what the public
        // ones have of it is what gamma divides in the verifying key.
        let all = beta * u + alpha * v + w + (u * v - w);
        let c = all * inverse(delta)? + s * a + r * b - r * s * delta;
        ensure!(
            self.vk.ic.len() == public.len() + 1,
            "a verifying key of other inputs"
        );
        let ic = std::iter::zip(&self.vk.ic[1..], public);
        let public: G1Projective = ic.map(|(point, x)| point * x).sum();
        let public = (public + self.vk.ic[0]) * (gamma * inverse(delta)?);
        let proof: Proof<Bls12> = Proof {
            a: (G1Projective::from(g1) * a).to_affine(),
            b: (blstrs::G2Projective::from(g2) * b).to_affine(),
            c: (G1Projective::from(g1) * c - public).to_affine(),
        };
        let mut bytes = Vec::new();
        proof.write(&mut bytes)?;
        Ok(bytes)
    }

    /// The sums of all rows, a segment at a time.
    fn sums(
        &self,
        template: &Template,
        part: &dyn Part,
        public: &[Scalar],
        threads: usize,
    ) -> Result<Sums> {
        let sizes = template.sizes();
        let basis = Basis::new(sizes.constraints, self.waste.tau)?;
        let segments = part.segments();
        let each = template.blocks() / segments.max(1);
        ensure!(
            each * segments == template.blocks(),
            "{segments} segments do not divide {} blocks",
            template.blocks()
        );
        let pieces: Vec<usize> = (0..segments).collect();
        let done = in_threads(threads, pieces, |_, segment| {
            segment_sums(template, part, segment, each, &basis)
        })?;
        let mut sums = Sums::zero();
        let mut inputs: Vec<Scalar> = Vec::new();
        for (of_segment, filled) in done {
            sums.add(of_segment);
            let shared = if inputs.is_empty() {
                0
            } else {
                template.shared().inputs
            };
            inputs.extend_from_slice(&filled.into_inputs()[shared..]);
        }
        ensure!(
            inputs.get(1..) == Some(public),
            "the circuit has other public inputs than a verifier"
        );
        // The rows of the inputs come last: input * 0 = 0.
        let first = sizes.constraints - inputs.len();
        let values = basis.values(first, inputs.len());
        sums.a += std::iter::zip(&inputs, values)
            .map(|(x, l)| x * l)
            .sum::<Scalar>();
        Ok(sums)
    }
}

impl Sums {
    fn zero() -> Self {
        let [a, b, c] = [Scalar::ZERO; 3];
        Self { a, b, c }
    }

    fn add(&mut self, other: Self) {
        self.a += other.a;
        self.b += other.b;
        self.c += other.c;
    }
}

/// The sums of a segment's rows, from 0 of the first one what all share among them.
fn segment_sums(
    template: &Template,
    part: &dyn Part,
    segment: usize,
    each: usize,
    basis: &Basis,
) -> Result<(Sums, FilledSegment)> {
    let blocks = segment * each..(segment + 1) * each;
    let Extent {
        aux, constraints, ..
    } = template.block();
    let shared = template.shared();
    let mut own = Rows::new(constraints * each, aux * each);
    let mut head = (segment == 0).then(|| Rows::new(shared.constraints, shared.aux));
    let first = shared.constraints + blocks.start * constraints;
    let columns = template.alone(own.columns(), head.as_mut().map(Rows::columns), blocks)?;
    let filled = template.fill(columns, |pass| part.synthesize(segment, pass))?;
    let mut sums = own.sums(first, basis);
    if let Some(head) = head {
        sums.add(head.sums(0, basis));
    }
    Ok((sums, filled))
}

struct Rows {
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    c: Vec<Scalar>,
    aux: Vec<Scalar>,
}

impl Rows {
    fn new(constraints: usize, aux: usize) -> Self {
        let zeros = |len| vec![Scalar::ZERO; len];
        Self {
            a: zeros(constraints),
            b: zeros(constraints),
            c: zeros(constraints),
            aux: zeros(aux),
        }
    }

    fn columns(&mut self) -> AssignColumns<'_> {
        AssignColumns {
            a: &mut self.a,
            b: &mut self.b,
            c: Some(&mut self.c),
            aux: &mut self.aux,
        }
    }

    /// With the first row at `first` of the circuit.
    fn sums(&self, first: usize, basis: &Basis) -> Sums {
        let mut sums = Sums::zero();
        let product = |column: &[Scalar], values: &[Scalar]| -> Scalar {
            let rows = std::iter::zip(column, values);
            let rows = rows.filter(|(x, _)| **x != Scalar::ZERO);
            rows.map(|(x, value)| value * x).sum()
        };
        for start in (0..self.a.len()).step_by(BATCH) {
            let rows = start..self.a.len().min(start + BATCH);
            let values = basis.values(first + start, rows.len());
            sums.add(Sums {
                a: product(&self.a[rows.clone()], &values),
                b: product(&self.b[rows.clone()], &values),
                c: product(&self.c[rows], &values),
            });
        }
        sums
    }
}

/// The Lagrange polynomials of a domain at tau:
/// `omega^j (tau^n - 1) / (n (tau - omega^j))`.
struct Basis {
    tau: Scalar,
    omega: Scalar,
    factor: Scalar,
}

impl Basis {
    fn new(constraints: usize, tau: Scalar) -> Result<Self> {
        let len = constraints.next_power_of_two() as u64;
        let omega = (len.ilog2()..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square());
        let inverse: Option<Scalar> = Scalar::from(len).invert().into();
        let inverse = inverse.context("a power of two has an inverse")?;
        let factor = (tau.pow_vartime([len]) - Scalar::ONE) * inverse;
        ensure!(factor != Scalar::ZERO, "tau lies in the domain");
        Ok(Self { tau, omega, factor })
    }

    /// Of `len` rows from `first` on.
    fn values(&self, first: usize, len: usize) -> Vec<Scalar> {
        let start = self.omega.pow_vartime([first as u64]);
        let powers = std::iter::successors(Some(start), |power| Some(power * self.omega));
        let powers: Vec<Scalar> = powers.take(len).collect();
        let mut values: Vec<Scalar> = powers.iter().map(|power| self.tau - power).collect();
        let mut scratch = vec![Scalar::ZERO; len];
        BatchInverter::invert_with_external_scratch(&mut values, &mut scratch);
        for (value, power) in std::iter::zip(&mut values, &powers) {
            *value *= self.factor * power;
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_basis_interpolates_wherever_it_begins() {
        let tau = Scalar::from(0x0123_4567_89ab_cdef);
        let basis = Basis::new(13, tau).expect("outside the domain");
        let whole = basis.values(0, 16);
        assert_eq!(whole.iter().sum::<Scalar>(), Scalar::ONE);
        assert_eq!(basis.values(5, 4), whole[5..9]);
        assert!(Basis::new(13, Scalar::ONE).is_err());
    }
}
