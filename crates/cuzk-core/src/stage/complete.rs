//! Complete: the parts' proofs are checked as one, against the public inputs that a
//! verifier computes, and encoded.

use bellperson::groth16::Proof;
use blstrs::Bls12;
use cuzk_gpu::Key;

use super::Job;
use crate::error::{Failure, ProveError};

/// The bytes of a job's proof.
pub(crate) fn complete(job: &Job, key: &Key, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, Failure> {
    let accepted = job
        .timeline
        .time("verify_all", None, || {
            job.workload.verify(key.verifier(), proofs)
        })
        .map_err(Failure::fatal)?;
    if !accepted {
        return Err(Failure::fatal(ProveError::InvalidWhole));
    }
    job.workload.encode(proofs).map_err(Failure::fatal)
}
