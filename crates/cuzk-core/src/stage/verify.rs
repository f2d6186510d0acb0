//! Verify: no proof goes on that the key's own verifying key does not accept.

use cuzk_gpu::{Key, verify as verify_proof};
use cuzk_synth::{Explained, explain};

use super::synthesise::synthesise_all;
use super::{Job, Proved, Shared, Verified};
use crate::error::{Failure, ProveError};

/// Pairing-checks a part's proof. If it fails, the witness is checked row by row: an
/// unsatisfied one is the caller's error, anything else is ours and worth another
/// try.
pub(crate) fn verify(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
    proved: Proved,
) -> Result<Verified, Failure> {
    let Proved {
        proof,
        inputs,
        placement,
    } = proved;
    // The first input is the constant one, which verifiers do not pass.
    if verify_proof(key.prepared_vk(), &proof, &inputs[1..]) {
        return Ok(Verified { proof, placement });
    }
    shared.metrics.verification_failures.add(1);
    let circuit = job.workload.part(part).map_err(Failure::fatal)?;
    let explained = job
        .timeline
        .time("explain", Some(part), || {
            explain(|pass| synthesise_all(circuit.as_ref(), pass))
        })
        .map_err(|source| Failure::fatal(ProveError::Synthesis { part, source }))?;
    Err(match explained {
        Explained::Unsatisfied(failed) => Failure::fatal(ProveError::Unsatisfied { part, failed }),
        Explained::Satisfied { .. } => {
            tracing::error!(job = job.label, part, "a proof does not verify");
            Failure::ours(ProveError::InvalidProof { part })
        }
    })
}
