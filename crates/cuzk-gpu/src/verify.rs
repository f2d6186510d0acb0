//! The pairing check of proofs.
//!
//! The check is bellperson's. What it prepares of a verifying key is, for each public
//! input, a table of multiples that its sum of the inputs is then looked up in. Keys with
//! many inputs are checked without tables: their sum is blst's, and what is left is the
//! check of a key that has no inputs. Neither sum is the one that this crate proves with,
//! so that a fault of that is not a fault of the check too.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use bellperson::groth16::{
    PreparedVerifyingKey, Proof, VerifyingKey, prepare_verifying_key, verify_proof,
    verify_proofs_batch,
};
use blstrs::{Bls12, G1Affine, G1Projective, Scalar};
use ff::Field;
use group::Curve;
use rand_core::RngCore;

/// Most public inputs of a key for which tables are made. A table is 255 points, 24 KiB,
/// that no budget counts and that the first proof waits for: 25 MB for so many inputs, and
/// 632 MB for the 25,839 of a WindowPoSt of 32 GiB.
const TABLE_INPUTS_MAX: usize = 1024;

/// A verifying key, ready to check proofs.
///
/// With up to 1,024 public inputs it holds about 24 KiB for each of them. With more it
/// holds the key alone, 96 bytes an input; a check takes about 300 bytes an input while it
/// runs, and processor time of all cores, on threads that blst keeps.
pub struct Verifier {
    /// Commitments to the public inputs, that of the leading one included.
    commitments: usize,
    form: Form,
}

/// What is checked with.
enum Form {
    Tables(Box<PreparedVerifyingKey<Bls12>>),
    Sum(Arc<VerifyingKey<Bls12>>),
}

impl Verifier {
    /// Prepares a key. Where tables are made this takes time of all threads of the current
    /// rayon pool.
    pub fn new(vk: impl Into<Arc<VerifyingKey<Bls12>>>) -> Self {
        let vk = vk.into();
        let commitments = vk.ic.len();
        let form = if commitments <= TABLE_INPUTS_MAX + 1 {
            Form::Tables(Box::new(prepare_verifying_key(&vk)))
        } else {
            Form::Sum(vk)
        };
        Self { commitments, form }
    }

    /// Number of public inputs, without the leading one.
    pub fn input_count(&self) -> usize {
        self.commitments.saturating_sub(1)
    }

    /// Whether `proof` is valid for the public inputs, which come without the leading
    /// one. Inputs of another number than the key's are not what was proved, so they
    /// are `false` too.
    pub fn verify(&self, proof: &Proof<Bls12>, inputs: &[Scalar]) -> bool {
        if inputs.len() + 1 != self.commitments {
            return false;
        }
        let checked = match &self.form {
            Form::Tables(key) => verify_proof(key, proof, inputs),
            Form::Sum(vk) => {
                let bound = prepare_verifying_key(&bind(vk, inputs));
                verify_proof(&bound, proof, &[])
            }
        };
        // Its only error is a wrong number of inputs.
        checked.unwrap_or(false)
    }

    /// Whether each proof is valid for the inputs at its place. Without any proof, with
    /// inputs for more or fewer, or with a wrong number of them this is `false`.
    ///
    /// Where the key has tables, all proofs are checked as one combination with weights
    /// from `rng`, which is much cheaper than one by one. A combination that holds although
    /// a proof does not has a chance below 2^-100, if nobody can foresee the weights.
    pub fn verify_batch(
        &self,
        rng: &mut impl RngCore,
        proofs: &[Proof<Bls12>],
        inputs: &[Vec<Scalar>],
    ) -> bool {
        let fits = |inputs: &Vec<Scalar>| inputs.len() + 1 == self.commitments;
        if proofs.is_empty() || proofs.len() != inputs.len() || !inputs.iter().all(fits) {
            return false;
        }
        match &self.form {
            Form::Tables(key) => {
                let proofs: Vec<_> = proofs.iter().collect();
                verify_proofs_batch(key, rng, &proofs, inputs).unwrap_or(false)
            }
            Form::Sum(_) => {
                let mut pairs = proofs.iter().zip(inputs);
                pairs.all(|(proof, inputs)| self.verify(proof, inputs))
            }
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("input_count", &self.input_count())
            .field("has_tables", &matches!(self.form, Form::Tables(_)))
            .finish_non_exhaustive()
    }
}

/// The key without public inputs that accepts what `vk` accepts for these: its one
/// commitment is the sum that they give.
fn bind(vk: &VerifyingKey<Bls12>, inputs: &[Scalar]) -> VerifyingKey<Bls12> {
    VerifyingKey {
        alpha_g1: vk.alpha_g1,
        beta_g1: vk.beta_g1,
        beta_g2: vk.beta_g2,
        gamma_g2: vk.gamma_g2,
        delta_g1: vk.delta_g1,
        delta_g2: vk.delta_g2,
        ic: vec![input_sum(&vk.ic, inputs)],
    }
}

/// The first commitment and the others times the inputs; there is one more of them.
fn input_sum(commitments: &[G1Affine], inputs: &[Scalar]) -> G1Affine {
    let points: Vec<_> = commitments.iter().map(G1Projective::from).collect();
    let mut scalars = Vec::with_capacity(points.len());
    scalars.push(Scalar::ONE);
    scalars.extend_from_slice(inputs);
    // On blst's own threads, one a core. It takes any points and scalars, also the point at
    // infinity and zero, but not an empty list, which this is not.
    G1Projective::multi_exp(&points, &scalars).to_affine()
}
