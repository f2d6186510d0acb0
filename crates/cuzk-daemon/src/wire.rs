//! The wire contract: messages, client and server of `cuzk.v1.ProvingEngine`, made
//! from the proto file, and the way between messages and requests.

mod convert;
#[cfg(test)]
mod fuzz;

pub(crate) use convert::{message_of, request_of};

/// The descriptors of the contract, as the reflection service hands them out.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// What the generator makes of the proto file.
mod generated {
    // Generated code follows the rules of its generator.
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    include!(concat!(env!("OUT_DIR"), "/cuzk.v1.rs"));
}

pub use generated::*;

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    /// Field numbers of an encoded message, in order.
    fn numbers(message: &impl Message) -> Vec<u64> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..64).step_by(7) {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let encoded = message.encode_to_vec();
        let mut bytes = encoded.as_slice();
        let mut numbers = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = varint(&mut bytes);
            if tag & 7 == 2 {
                bytes = &bytes[value as usize..];
            }
            numbers.push(tag >> 3);
        }
        numbers
    }

    #[test]
    fn numbers_are_those_of_the_contract() {
        let submit = SubmitProofRequest {
            request_id: "a".to_owned(),
            proof_kind: 1,
            sector_size: 1,
            registered_proof: 1,
            priority: 1,
            vanilla_proof: vec![1],
            vanilla_proofs: vec![vec![1]],
            sector_number: 1,
            miner_id: 1,
            randomness: vec![1],
            partition_index: 1,
            comm_r_old: vec![1],
            comm_r_new: vec![1],
            comm_d_new: vec![1],
        };
        let want = [1, 2, 3, 4, 5, 10, 11, 20, 21, 22, 23, 30, 31, 32];
        assert_eq!(numbers(&submit), want);

        let answer = AwaitProofResponse {
            job_id: "a".to_owned(),
            status: 1,
            proof: vec![1],
            error_message: "a".to_owned(),
            queue_wait_ms: 1,
            srs_load_ms: 1,
            synthesis_ms: 1,
            gpu_compute_ms: 1,
            total_ms: 1,
            backend: "a".to_owned(),
            tier: "a".to_owned(),
            placement: "a".to_owned(),
            is_pinned: true,
            retries: 1,
            synthesis: "a".to_owned(),
        };
        let want = [1, 2, 3, 4, 10, 11, 12, 13, 14, 100, 101, 102, 103, 104, 105];
        assert_eq!(numbers(&answer), want);

        let status = GetStatusResponse {
            gpus: vec![GpuStatus {
                ordinal: 1,
                name: "a".to_owned(),
                vram_total_bytes: 1,
                vram_free_bytes: 1,
                current_job_id: "a".to_owned(),
                current_proof_kind: "a".to_owned(),
            }],
            loaded_srs: vec![SrsStatus {
                circuit_id: "a".to_owned(),
                tier: srs_status::Tier::Cold.into(),
                size_bytes: 1,
                ref_count: 1,
            }],
            queues: vec![QueueStatus {
                proof_kind: "a".to_owned(),
                pending: 1,
                in_progress: 1,
            }],
            total_proofs_completed: 1,
            total_proofs_failed: 1,
            uptime_seconds: 1,
            pinned_memory_bytes: 1,
            pinned_memory_limit_bytes: 1,
            device_policy: "a".to_owned(),
            no_device_reason: "a".to_owned(),
            memory_waits: vec!["a".to_owned()],
        };
        assert_eq!(numbers(&status), [1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102]);
        assert_eq!(numbers(&status.gpus[0]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(numbers(&status.loaded_srs[0]), [1, 2, 3, 4]);
        assert_eq!(numbers(&status.queues[0]), [1, 2, 3]);
        assert_eq!(srs_status::Tier::Hot as i32, 0);
        assert_eq!(await_proof_response::Status::Timeout as i32, 4);
        assert_eq!(proving_engine_server::SERVICE_NAME, "cuzk.v1.ProvingEngine");
    }
}
