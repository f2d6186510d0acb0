//! Requests that are wrong in every field, from clients that do not know the contract.

use cuzk_filecoin::Request;
use tonic::Code;

use crate::support::{Server, assert_proof, real, refusal, window, within};

/// Names that a refusal may begin with.
const FIELDS: [&str; 14] = [
    "request_id",
    "proof_kind",
    "sector_size",
    "registered_proof",
    "priority",
    "vanilla_proof",
    "vanilla_proofs",
    "sector_number",
    "miner_id",
    "randomness",
    "partition_index",
    "comm_r_old",
    "comm_r_new",
    "comm_d_new",
];

/// A field of bytes of a request.
type BytesOf = fn(&mut Request) -> Vec<&mut Vec<u8>>;

const BYTES: [BytesOf; 6] = [
    |request| vec![&mut request.vanilla_proof],
    |request| request.vanilla_proofs.iter_mut().collect(),
    |request| vec![&mut request.randomness],
    |request| vec![&mut request.comm_r_old],
    |request| vec![&mut request.comm_r_new],
    |request| vec![&mut request.comm_d_new],
];

/// What is done to every field of bytes that a kind uses.
const HARM: [fn(&mut Vec<u8>); 9] = [
    Vec::clear,
    |bytes| bytes.push(0),
    |bytes| bytes.truncate(bytes.len() / 2),
    |bytes| bytes.truncate(bytes.len().saturating_sub(1)),
    |bytes| bytes.resize(1 << 20, 0),
    |bytes| bytes.fill(0xff),
    |bytes| *bytes = noise(bytes.len(), 1),
    |bytes| *bytes = noise(64, 2),
    |bytes| {
        // A length that no memory holds, where bincode expects one.
        let len = bytes.len().min(8);
        bytes[..len].fill(0xff);
    },
];

/// What is done to the numbers and the list.
const OTHER_HARM: [fn(&mut Request); 14] = [
    |request| request.sector_size = 0,
    |request| request.sector_size = 1,
    |request| request.sector_size = u64::MAX,
    |request| request.sector_size = 32 << 30,
    |request| request.registered_proof = 99,
    |request| request.registered_proof = u64::MAX,
    |request| request.registered_proof += 1,
    |request| request.vanilla_proofs.clear(),
    |request| request.vanilla_proofs.push(Vec::new()),
    |request| request.vanilla_proofs = vec![Vec::new(); 5000],
    |request| request.request_id = "x".repeat(257),
    |request| request.partition_index = u32::MAX,
    |request| request.miner_id ^= 1,
    |request| request.sector_number ^= 1,
];

/// Bytes that mean nothing, the same every time.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(step).take(len).collect()
}

/// Every harm to every field, and flipped bits all over the proofs.
fn harmed(request: &Request) -> Vec<Request> {
    let mut all = Vec::new();
    for bytes in BYTES {
        for harm in HARM {
            let mut changed = request.clone();
            bytes(&mut changed).into_iter().for_each(harm);
            all.push(changed);
        }
    }
    for harm in OTHER_HARM {
        let mut changed = request.clone();
        harm(&mut changed);
        all.push(changed);
    }
    for flip in 0..40_usize {
        for bytes in &BYTES[..2] {
            let mut changed = request.clone();
            for field in bytes(&mut changed)
                .into_iter()
                .filter(|bytes| !bytes.is_empty())
            {
                let at = flip * 0x1f35 % field.len();
                field[at] ^= 1 << (flip % 8);
            }
            all.push(changed);
        }
    }
    all.retain(|changed| changed != request);
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_are_refused_with_the_field() {
    let server = Server::start(|_| ()).await;
    let mut client = server.client().await;
    let memory = server.take_memory();
    let (mut refused, mut taken, mut no_key) = (0, 0, 0);
    for request in [window(1), real("winning"), real("porep"), real("snap")] {
        for changed in harmed(&request) {
            // What a kind does not use may be anything: then it is a good request.
            let answer = client.submit(changed).await;
            if let Ok(job) = &answer {
                taken += 1;
                client.cancel(&job.job_id).await.expect("known");
                within(client.wait(&job.job_id, None)).await.expect("known");
                continue;
            }
            let (code, message) = refusal(answer);
            if code == Code::FailedPrecondition {
                // Only WindowPoSt has a key here; what can be told without is told first.
                assert!(message.starts_with("no key for "), "{message}");
                no_key += 1;
                continue;
            }
            assert_eq!(code, Code::InvalidArgument, "{message}");
            let field = message.split(['[', ':', '.']).next().unwrap_or_default();
            assert!(FIELDS.contains(&field), "{message}");
            refused += 1;
        }
    }
    println!("{refused} refused, {taken} taken, {no_key} without a key");
    // Flipped bits in what has no key are told as a missing key, before the proofs are
    // hashed; everything else is refused by its field.
    assert!(
        refused >= 200 && taken < 20,
        "{refused} refused, {taken} taken"
    );
    drop(memory);
    assert_proof(&within(client.prove(window(1))).await.expect("taken"));
    assert_eq!(server.engine.jobs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_fields_and_with_unknown_numbers_are_refused() {
    use cuzk_daemon::wire::proving_engine_client::ProvingEngineClient;
    use cuzk_daemon::wire::{ProveRequest, SubmitProofRequest};

    let server = Server::start(|_| ()).await;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address));
    let channel = endpoint
        .expect("an address")
        .connect()
        .await
        .expect("it listens");
    let mut client = ProvingEngineClient::new(channel);
    let empty = client
        .prove(ProveRequest::default())
        .await
        .expect_err("refused");
    assert_eq!(
        (empty.code(), empty.message()),
        (Code::InvalidArgument, "submit: missing")
    );
    for (proof_kind, priority, want) in [
        (0, 0, "proof_kind: missing"),
        (9, 0, "proof_kind: 9 is none of 1 to 4"),
        (i32::MIN, 0, "proof_kind: -2147483648 is none of 1 to 4"),
        (3, -1, "priority: -1 is none of 0 to 4"),
        (3, 7, "priority: 7 is none of 0 to 4"),
    ] {
        let message = SubmitProofRequest {
            proof_kind,
            priority,
            ..Default::default()
        };
        let refused = client.submit_proof(message).await.expect_err("refused");
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::InvalidArgument, want)
        );
    }
}
