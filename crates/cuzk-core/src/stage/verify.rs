//! Verify: no proof goes on that the key's own verifying key does not accept.

use cuzk_gpu::{Key, verify as verify_proof};

use super::{Proved, Shared, Verified};

/// What a check ended with.
pub(crate) enum Verdict {
    /// The proof is valid.
    Valid(Verified),
    /// It is not, and is gone; the explain stage says whose fault that is.
    Invalid,
}

/// Pairing-checks a part's proof.
pub(crate) fn verify(shared: &Shared, key: &Key, proved: Proved) -> Verdict {
    let Proved {
        proof,
        inputs,
        made,
    } = proved;
    // The first input is the constant one, which verifiers do not pass.
    if verify_proof(key.prepared_vk(), &proof, &inputs[1..]) {
        return Verdict::Valid(Verified { proof, made });
    }
    shared.metrics.verification_failures.add(1);
    Verdict::Invalid
}
