//! Ready, draining, gone.

use std::time::Duration;

use cuzk_core::config::Preload;
use cuzk_daemon::serve::Ended;
use cuzk_daemon::wire::await_proof_response::Status;
use cuzk_daemon::wire::srs_status::Tier;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{Server, assert_proof, refusal, window, within};

pub(crate) async fn channel(server: &Server) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address));
    endpoint
        .expect("an address")
        .connect()
        .await
        .expect("it listens")
}

/// Waits until the server says this of itself and of its service.
pub(crate) async fn becomes(health: &mut HealthClient<Channel>, status: ServingStatus) {
    for service in ["", "cuzk.v1.ProvingEngine"] {
        within(async {
            loop {
                let service = service.to_owned();
                let answer = health.check(HealthCheckRequest { service }).await;
                if answer.expect("known").into_inner().status == status as i32 {
                    return;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

async fn ready(server: &Server) {
    let mut health = HealthClient::new(channel(server).await);
    becomes(&mut health, ServingStatus::Serving).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_ready_when_its_keys_are_loaded() {
    let server = Server::start(|config| config.serve.preload = Preload::Present).await;
    let mut health = HealthClient::new(channel(&server).await);
    becomes(&mut health, ServingStatus::Serving).await;
    let status = server.client().await.status().await.expect("a status");
    assert_eq!(status.loaded_srs.len(), 1);
    assert_eq!(status.loaded_srs[0].tier(), Tier::Hot);
    let unknown = HealthCheckRequest {
        service: "other".to_owned(),
    };
    let answer = health.check(unknown).await.expect_err("unknown");
    assert_eq!(answer.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_finishes_what_it_has() {
    let server = Server::start(|_| ()).await;
    let mut health = HealthClient::new(channel(&server).await);
    becomes(&mut health, ServingStatus::Serving).await;
    let memory = server.take_memory();
    let mut client = server.client().await;
    let asking = tokio::spawn(async move { client.prove(window(1)).await });
    server.reaches(0, 1).await;

    server.shutdown.drain();
    becomes(&mut health, ServingStatus::NotServing).await;
    let mut client = server.client().await;
    let (code, _) = refusal(client.submit(window(2)).await);
    assert_eq!(code, Code::Unavailable);
    // The same job is no new one.
    client.submit(window(1)).await.expect("the same job");
    assert!(!server.ended.is_finished());
    drop(memory);
    assert_proof(&within(asking).await.expect("no panic").expect("answered"));
    drop((client, health));
    let ended = within(server.ended).await.expect("no panic");
    assert_eq!(ended.expect("no fault"), Ended::Drained);
    assert!(!server.socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_has_an_end() {
    let server = Server::start(|config| config.serve.drain_max = Duration::ZERO).await;
    let memory = server.take_memory();
    let mut client = server.client().await;
    let asking = tokio::spawn(async move { client.prove(window(1)).await });
    server.reaches(0, 1).await;
    server.shutdown.drain();
    // Who waits is told.
    let answer = within(asking).await.expect("no panic").expect("answered");
    assert_eq!(answer.status(), Status::Cancelled);
    let ended = within(server.ended).await.expect("no panic");
    assert_eq!(ended.expect("no fault"), Ended::Cut { jobs: 1 });
    drop(memory);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_word_ends_it_now() {
    let server = Server::start(|_| ()).await;
    let memory = server.take_memory();
    let mut client = server.client().await;
    client.submit(window(1)).await.expect("taken");
    server.reaches(0, 1).await;
    server.shutdown.drain();
    server.shutdown.stop();
    let ended = within(server.ended).await.expect("no panic");
    assert_eq!(ended.expect("no fault"), Ended::Cut { jobs: 1 });
    drop(memory);
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_tells_the_services_and_the_contract() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let server = Server::start(|_| ()).await;
    let mut client = ServerReflectionClient::new(channel(&server).await);
    let mut ask = async |message_request| {
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(message_request),
        };
        let answers = client
            .server_reflection_info(tokio_stream::once(request))
            .await;
        let answer = answers.expect("answered").into_inner().message().await;
        let answer = answer.expect("no fault").expect("one answer");
        answer.message_response.expect("an answer")
    };
    let listed = ask(MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(listed) = listed else {
        panic!("{listed:?}");
    };
    let names: Vec<_> = listed
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    for name in ["cuzk.v1.ProvingEngine", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|have| have == name), "{names:?}");
    }
    let symbol = "cuzk.v1.SubmitProofRequest".to_owned();
    let file = ask(MessageRequest::FileContainingSymbol(symbol)).await;
    assert!(
        matches!(file, MessageResponse::FileDescriptorResponse(_)),
        "{file:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_are_allocated_before_the_server_is_ready() {
    // A circuit without a key is told, and the server serves what it can.
    let server = Server::start(|config| config.serve.warm = vec!["porep-2k".to_owned()]).await;
    ready(&server).await;
    assert_eq!(server.engine.memory().heap_pool().stats().allocations, 0);

    let server = Server::start(|config| config.serve.warm = vec!["wpost-2k".to_owned()]).await;
    ready(&server).await;
    let warmed = server.engine.memory().heap_pool().stats();
    assert!(warmed.allocations > 0 && warmed.idle_bytes > 0);
    let mut client = server.client().await;
    assert_proof(&within(client.prove(window(1))).await.expect("taken"));
    let after = server.engine.memory().heap_pool().stats();
    assert_eq!(after.allocations, warmed.allocations, "none for a proof");
    assert!(after.reuses > 0);

    let server = Server::start(|config| config.serve.warm = vec!["wpost-3k".to_owned()]).await;
    let ended = within(server.ended).await.expect("no panic");
    let error = ended.expect_err("no such circuit").to_string();
    assert!(
        error.starts_with("serve.warm: ") && error.contains("wpost-3k"),
        "{error}"
    );
}
