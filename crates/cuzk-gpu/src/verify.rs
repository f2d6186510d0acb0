//! The pairing check of one proof.

use bellperson::groth16::{PreparedVerifyingKey, Proof, verify_proof};
use blstrs::{Bls12, Scalar};

/// Whether `proof` is valid for the public inputs, which come without the leading
/// one. Inputs of another number than the key's are not what was proved, so they
/// are `false` too.
pub fn verify(key: &PreparedVerifyingKey<Bls12>, proof: &Proof<Bls12>, inputs: &[Scalar]) -> bool {
    verify_proof(key, proof, inputs).unwrap_or(false)
}
