//! What a request asks for, as a digest: two requests with one name are the same
//! job if their contents are.

use cuzk_filecoin::Request;
use sha2::{Digest, Sha256};

/// Digest of everything that decides which proof is made. The name and the priority
/// do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content([u8; 32]);

impl From<[u8; 32]> for Content {
    fn from(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

impl Content {
    /// The content of a request; time goes with its length.
    pub(super) fn of(request: &Request) -> Self {
        let mut hasher = Sha256::new();
        for number in [
            u64::from(request.proof_kind.wire_number().unsigned_abs()),
            request.sector_size,
            request.registered_proof,
            request.sector_number,
            request.miner_id,
            u64::from(request.partition_index),
            request.vanilla_proofs.len() as u64,
        ] {
            hasher.update(number.to_le_bytes());
        }
        // Lengths go before bytes, so that no two lists run into one.
        let fields = [
            &request.vanilla_proof,
            &request.randomness,
            &request.comm_r_old,
            &request.comm_r_new,
            &request.comm_d_new,
        ];
        for bytes in fields.into_iter().chain(&request.vanilla_proofs) {
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        }
        Self(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{SubmitProofRequest, request_of};

    fn content(change: impl FnOnce(&mut SubmitProofRequest)) -> Content {
        let mut message = SubmitProofRequest {
            request_id: "a".to_owned(),
            proof_kind: 3,
            vanilla_proofs: vec![vec![1, 2], vec![3]],
            ..Default::default()
        };
        change(&mut message);
        Content::of(&request_of(message).expect("a kind"))
    }

    #[test]
    fn every_field_but_name_and_priority_counts() {
        let same = content(|_| ());
        assert_eq!(content(|message| message.request_id.clear()), same);
        assert_eq!(content(|message| message.priority = 1), same);
        let changes: [fn(&mut SubmitProofRequest); 13] = [
            |message| message.proof_kind = 4,
            |message| message.sector_size = 1,
            |message| message.registered_proof = 1,
            |message| message.vanilla_proof.push(0),
            |message| message.vanilla_proofs[0][0] = 0,
            |message| message.vanilla_proofs.push(Vec::new()),
            |message| message.sector_number = 1,
            |message| message.miner_id = 1,
            |message| message.randomness.push(0),
            |message| message.partition_index = 1,
            |message| message.comm_r_old.push(0),
            |message| message.comm_r_new.push(0),
            |message| message.comm_d_new.push(0),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert_ne!(content(change), same, "change {index}");
        }
        let joined = content(|message| message.vanilla_proofs = vec![vec![1], vec![2, 3]]);
        assert_ne!(joined, same);
    }
}
