//! What is refused, and with which code.

use cuzk_daemon::client::Client;
use cuzk_filecoin::Request;
use tonic::Code;

use crate::support::{Server, assert_proof, real, refusal, window, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_and_is_free_again() {
    let server = Server::start(|config| config.jobs_max = 1).await;
    let mut client = server.client().await;
    for _ in 0..3 {
        let memory = server.take_memory();
        let first = client.submit(window(1)).await.expect("taken");
        let (code, message) = refusal(client.submit(window(2)).await);
        assert_eq!(code, Code::ResourceExhausted);
        assert_eq!(message, "1 jobs wait or run, which is the limit");
        client.cancel(&first.job_id).await.expect("known");
        within(client.wait(&first.job_id, None))
            .await
            .expect("known");
        drop(memory);
    }
    // Whoever hears of an end finds the place free.
    assert_proof(&within(client.prove(window(1))).await.expect("taken"));
    assert_proof(&within(client.prove(window(2))).await.expect("taken"));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_can_never_suffice_is_told_at_once() {
    let server = Server::start(|config| {
        config.memory_limit = cuzk_budget::LimitRule::Bytes(1 << 20);
    })
    .await;
    let (code, message) = refusal(server.client().await.submit(window(1)).await);
    assert_eq!(code, Code::ResourceExhausted);
    assert!(
        message.contains("whose limit is 1.00 MiB (1048576 bytes)"),
        "{message}"
    );
    assert_eq!(server.engine.jobs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_key_is_told_with_its_path() {
    let server = Server::start(|_| ()).await;
    let (code, message) = refusal(server.client().await.submit(real("winning")).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.contains("no key for winning-2k: "), "{message}");
    assert!(message.contains("serve-keys"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn test_keys_are_refused_unless_allowed() {
    let server = Server::start(|config| config.allow_test_params = false).await;
    let (code, message) = refusal(server.client().await.submit(window(1)).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.contains("insecure test key"), "{message}");
}

/// A request whose message has exactly this many bytes.
fn of_bytes(message_bytes: usize) -> Request {
    // Tags and lengths beside the padding: kind 2, size 3, priority 2, the tag and
    // the length of the proof 1 and 3 to 5.
    let mut request = real("winning");
    request.request_id = String::new();
    // The number of WinningPoSt at 2 KiB, and absent on the wire.
    request.registered_proof = 0;
    request.miner_id = 0;
    request.sector_number = 0;
    request.randomness = Vec::new();
    let lengths = |len: usize| (len.ilog2() / 7 + 1) as usize;
    let rest = 2 + 3 + 2 + 1;
    let mut len = message_bytes - rest - lengths(message_bytes);
    len += message_bytes - rest - lengths(len) - len;
    request.vanilla_proofs = vec![vec![7; len]];
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_limit_is_refused_unread() {
    const LIMIT: usize = 1 << 20;
    let server = Server::start(|config| config.serve.message_bytes_max = LIMIT).await;
    for mut client in [server.client().await, server.socket_client().await] {
        let (code, message) = refusal(client.submit(of_bytes(LIMIT)).await);
        assert_eq!(code, Code::InvalidArgument, "{message}");
        let (code, message) = refusal(client.submit(of_bytes(LIMIT + 1)).await);
        assert_eq!(code, Code::OutOfRange, "{message}");
        assert!(message.contains(&(LIMIT + 1).to_string()), "{message}");
        // The connection lives on.
        client.status().await.expect("a status");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_pass_on_both_transports() {
    const LARGE: usize = 200_000_000;
    async fn refused_by_content(mut client: Client) {
        let (code, message) = refusal(within(client.submit(of_bytes(LARGE))).await);
        assert_eq!(code, Code::InvalidArgument, "{message}");
    }
    let server = Server::start(|_| ()).await;
    refused_by_content(server.client().await).await;
    refused_by_content(server.socket_client().await).await;
}
