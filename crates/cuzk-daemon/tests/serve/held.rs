//! What requests hold in memory while they are read, wait and run.

use std::convert::Infallible;

use cuzk_budget::LimitRule;
use cuzk_daemon::wire::SubmitProofRequest;
use prost::Message;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service, http};
use tonic::transport::{Channel, Endpoint};

use crate::support::{Server, assert_proof, refusal, window, within};

const MIB: usize = 1 << 20;

/// The value of a line of the metrics page.
fn gauge(server: &Server, name: &str) -> u64 {
    let page = server.page("/metrics");
    let value = page.lines().find_map(|line| line.strip_prefix(name));
    value.expect("a gauge").trim().parse().expect("a number")
}

/// Waits until requests hold this much.
async fn holds(server: &Server, bytes: u64) {
    within(async {
        while gauge(server, "cuzk_requests_bytes ") != bytes {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Bytes of a request's message.
fn message_bytes(seed: u64) -> u64 {
    let request = window(seed);
    let message = SubmitProofRequest {
        request_id: request.request_id,
        proof_kind: 3,
        sector_size: request.sector_size,
        registered_proof: request.registered_proof,
        priority: 3,
        vanilla_proofs: request.vanilla_proofs,
        miner_id: request.miner_id,
        randomness: request.randomness,
        ..Default::default()
    };
    message.encoded_len() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_requests_have_a_limit_in_bytes() {
    let each = message_bytes(1);
    assert_eq!(each, message_bytes(2));
    let limit = 3 * each - 1;
    let server = Server::start(|config| config.serve.requests_bytes_max = limit).await;
    let mut client = server.client().await;
    let memory = server.take_memory();
    let first = client.submit(window(1)).await.expect("taken").job_id;
    let second = client.submit(window(2)).await.expect("taken").job_id;
    holds(&server, 2 * each).await;
    let (code, message) = refusal(client.submit(window(3)).await);
    assert_eq!(code, Code::ResourceExhausted);
    assert_eq!(
        message,
        format!(
            "a request of {each} bytes: others hold {} bytes of the {limit} bytes that requests \
             may hold (serve.requests_bytes_max)",
            2 * each
        )
    );
    // What carries no proofs is answered all the same.
    client.status().await.expect("a status");
    client.cancel(&first).await.expect("known");
    within(client.wait(&first, None)).await.expect("known");
    holds(&server, each).await;
    // The same request again is the same job and holds nothing of its own.
    let again = client.submit(window(2)).await.expect("known");
    assert_eq!(again.job_id, second);
    holds(&server, each).await;
    drop(memory);
    assert_proof(&within(client.wait(&second, None)).await.expect("known"));
    assert_proof(&within(client.prove(window(3))).await.expect("taken"));
    assert_eq!(gauge(&server, "cuzk_requests_bytes "), 0);
    assert_eq!(gauge(&server, "cuzk_requests_limit_bytes "), limit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_holds_nothing() {
    let server = Server::start(|config| config.memory_limit = LimitRule::Bytes(1 << 20)).await;
    let mut client = server.client().await;
    let mut wrong = window(1);
    wrong.randomness.clear();
    for request in [window(1), wrong] {
        refusal(client.submit(request).await);
        holds(&server, 0).await;
    }
}

/// Begins a call that announces a message and sends none of it until dropped.
fn announce(channel: &Channel, bytes: usize) -> JoinHandle<Option<(Code, String)>> {
    let length = u32::try_from(bytes).expect("small").to_be_bytes();
    let head = Bytes::from([&[0][..], &length].concat());
    let head = tokio_stream::once(Ok::<_, Infallible>(head));
    let body = axum::body::Body::from_stream(head.chain(tokio_stream::pending()));
    let request = http::Request::post("http://localhost/cuzk.v1.ProvingEngine/Prove")
        .header("content-type", "application/grpc")
        .body(Body::new(body))
        .expect("a request");
    let mut channel = channel.clone();
    tokio::spawn(async move {
        std::future::poll_fn(|context| channel.poll_ready(context))
            .await
            .expect("it listens");
        let response = channel.call(request).await.expect("an answer");
        let status = tonic::Status::from_header_map(response.headers())?;
        Some((status.code(), status.message().to_owned()))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_messages_count_before_they_are_sent() {
    let server = Server::start(|config| {
        config.serve.message_bytes_max = MIB;
        config.serve.requests_bytes_max = 4 * MIB as u64;
    })
    .await;
    let connect = async |uri: String| {
        let endpoint = Endpoint::from_shared(uri).expect("an address");
        endpoint.connect().await.expect("it listens")
    };
    let tcp = connect(format!("http://{}", server.address)).await;
    let unix = connect(format!("unix://{}", server.socket.display())).await;

    // Two over each transport, none of which has sent a byte of its message.
    let begun: Vec<_> = [&tcp, &unix, &tcp, &unix]
        .map(|channel| announce(channel, MIB))
        .into();
    holds(&server, 4 * MIB as u64).await;
    for channel in [&tcp, &unix] {
        let (code, message) = within(announce(channel, 1))
            .await
            .expect("no panic")
            .expect("a refusal");
        assert_eq!(code, Code::ResourceExhausted);
        assert!(
            message.contains("others hold 4.00 MiB (4194304 bytes) of the 4.00 MiB"),
            "{message}"
        );
        // Several at once that are longer than any may be: refused at their heads.
        let longer = [1, 2, 200].map(|more| announce(channel, MIB + more));
        for longer in longer {
            let (code, message) = within(longer).await.expect("no panic").expect("a refusal");
            assert_eq!(code, Code::OutOfRange, "{message}");
        }
    }
    for call in begun {
        assert!(!call.is_finished());
        call.abort();
    }
    holds(&server, 0).await;
    assert_proof(
        &within(server.client().await.prove(window(1)))
            .await
            .expect("taken"),
    );
}
