//! Verify: no proof goes on that the key's own verifying key does not accept.

use cuzk_gpu::Key;

use super::{Proved, Shared, Verified};
use crate::Filling;

/// Pairing-checks a part's proof. One that is not valid is gone; the explain stage
/// says whose fault that is, and wants to know how its columns were filled.
pub(crate) fn verify(shared: &Shared, key: &Key, proved: Proved) -> Result<Verified, Filling> {
    let Proved {
        proof,
        inputs,
        made,
    } = proved;
    // The first input is the constant one, which verifiers do not pass.
    if key.verifier().verify(&proof, &inputs[1..]) {
        return Ok(Verified { proof, made });
    }
    shared.metrics.verification_failures.add(1);
    Err(made.synthesis)
}
