//! Verify: no proof goes on that the key's own verifying key does not accept.

use cuzk_gpu::{Key, verify as verify_proof};

use super::{Proved, Shared, Verified};

/// Pairing-checks a part's proof. One that is not valid is gone; the explain stage
/// says whose fault that is.
pub(crate) fn verify(shared: &Shared, key: &Key, proved: Proved) -> Option<Verified> {
    let Proved {
        proof,
        inputs,
        made,
    } = proved;
    // The first input is the constant one, which verifiers do not pass.
    if verify_proof(key.prepared_vk(), &proof, &inputs[1..]) {
        return Some(Verified { proof, made });
    }
    shared.metrics.verification_failures.add(1);
    None
}
