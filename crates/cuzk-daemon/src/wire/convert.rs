//! Between messages and requests. What a message's numbers mean is decided here;
//! what its bytes mean, in the proof kinds.

use cuzk_core::WorkloadError;
use cuzk_filecoin::{Priority, ProofKind, Request};

use super::{Priority as WirePriority, SubmitProofRequest};

/// The longest name of a request, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 256;

/// The request that a message makes.
///
/// # Errors
/// If the kind or the priority is none, or the name is too long.
pub(crate) fn request_of(message: SubmitProofRequest) -> Result<Request, WorkloadError> {
    let fault = |field: &str, reason: String| WorkloadError {
        field: field.to_owned(),
        reason,
    };
    let proof_kind = match (
        message.proof_kind,
        ProofKind::from_wire_number(message.proof_kind),
    ) {
        (_, Some(kind)) => kind,
        (0, None) => return Err(fault("proof_kind", "missing".to_owned())),
        (number, None) => {
            return Err(fault("proof_kind", format!("{number} is none of 1 to 4")));
        }
    };
    let priority = match WirePriority::try_from(message.priority) {
        Ok(WirePriority::Unspecified) => proof_kind.default_priority(),
        Ok(WirePriority::Low) => Priority::Low,
        Ok(WirePriority::Normal) => Priority::Normal,
        Ok(WirePriority::High) => Priority::High,
        Ok(WirePriority::Critical) => Priority::Critical,
        Err(_) => {
            let reason = format!("{} is none of 0 to 4", message.priority);
            return Err(fault("priority", reason));
        }
    };
    let id_bytes = message.request_id.len();
    if id_bytes > REQUEST_ID_BYTES_MAX {
        let reason = format!("{id_bytes} bytes, at most {REQUEST_ID_BYTES_MAX}");
        return Err(fault("request_id", reason));
    }
    Ok(Request {
        request_id: message.request_id,
        proof_kind,
        sector_size: message.sector_size,
        registered_proof: message.registered_proof,
        priority,
        vanilla_proof: message.vanilla_proof,
        vanilla_proofs: message.vanilla_proofs,
        sector_number: message.sector_number,
        miner_id: message.miner_id,
        randomness: message.randomness,
        partition_index: message.partition_index,
        comm_r_old: message.comm_r_old,
        comm_r_new: message.comm_r_new,
        comm_d_new: message.comm_d_new,
    })
}

/// The message that carries a request.
pub(crate) fn message_of(request: Request) -> SubmitProofRequest {
    let priority = match request.priority {
        Priority::Low => WirePriority::Low,
        Priority::Normal => WirePriority::Normal,
        Priority::High => WirePriority::High,
        Priority::Critical => WirePriority::Critical,
    };
    SubmitProofRequest {
        request_id: request.request_id,
        proof_kind: request.proof_kind.wire_number(),
        sector_size: request.sector_size,
        registered_proof: request.registered_proof,
        priority: priority.into(),
        vanilla_proof: request.vanilla_proof,
        vanilla_proofs: request.vanilla_proofs,
        sector_number: request.sector_number,
        miner_id: request.miner_id,
        randomness: request.randomness,
        partition_index: request.partition_index,
        comm_r_old: request.comm_r_old,
        comm_r_new: request.comm_r_new,
        comm_d_new: request.comm_d_new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_mean_nothing_are_named() {
        let message = |proof_kind, priority, id_bytes| SubmitProofRequest {
            request_id: "x".repeat(id_bytes),
            proof_kind,
            priority,
            ..Default::default()
        };
        let field = |message| request_of(message).expect_err("refused").to_string();
        assert_eq!(field(message(0, 0, 0)), "proof_kind: missing");
        assert_eq!(field(message(5, 0, 0)), "proof_kind: 5 is none of 1 to 4");
        assert_eq!(field(message(-1, 0, 0)), "proof_kind: -1 is none of 1 to 4");
        assert_eq!(field(message(1, 5, 0)), "priority: 5 is none of 0 to 4");
        assert_eq!(
            field(message(1, 0, 257)),
            "request_id: 257 bytes, at most 256"
        );
    }

    #[test]
    fn an_unnamed_priority_follows_the_kind() {
        let priority = |proof_kind, priority| {
            let message = SubmitProofRequest {
                proof_kind,
                priority,
                ..Default::default()
            };
            request_of(message)
                .expect("kind and priority are named")
                .priority
        };
        assert_eq!(priority(1, 0), Priority::Normal);
        assert_eq!(priority(2, 0), Priority::Normal);
        assert_eq!(priority(3, 0), Priority::High);
        assert_eq!(priority(4, 0), Priority::Critical);
        assert_eq!(priority(4, 1), Priority::Low);
    }

    #[test]
    fn messages_and_requests_are_the_same_both_ways() {
        let message = SubmitProofRequest {
            request_id: "porep-1000-7".to_owned(),
            proof_kind: 2,
            sector_size: 3,
            registered_proof: 4,
            priority: 4,
            vanilla_proof: vec![6],
            vanilla_proofs: vec![vec![7], vec![]],
            sector_number: 8,
            miner_id: 9,
            randomness: vec![10],
            partition_index: 11,
            comm_r_old: vec![12],
            comm_r_new: vec![13],
            comm_d_new: vec![14],
        };
        let request = request_of(message.clone()).expect("kind and priority are named");
        assert_eq!(message_of(request), message);
    }
}
