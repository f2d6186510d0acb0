//! Waiting for a job, and how long.

use std::time::Duration;

use cuzk_daemon::wire::await_proof_response::Status;
use tonic::Code;

use crate::support::{Server, assert_proof, refusal, window, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_and_its_job_goes_on() {
    let server = Server::start(|_| ()).await;
    let mut client = server.client().await;
    let memory = server.take_memory();
    let job = client.submit(window(1)).await.expect("taken").job_id;
    for _ in 0..3 {
        let wait = Some(Duration::from_millis(1));
        let answer = within(client.wait(&job, wait)).await.expect("known");
        assert_eq!(answer.status(), Status::Timeout);
        assert_eq!(answer.job_id, job);
        assert!(answer.proof.is_empty());
    }
    // Waiters with and without a limit, there before the end.
    let mut waiting = Vec::new();
    for wait in [None, Some(Duration::from_secs(3600)), Some(Duration::MAX)] {
        let (mut client, job) = (server.client().await, job.clone());
        waiting.push(tokio::spawn(async move { client.wait(&job, wait).await }));
    }
    drop(memory);
    for waiter in waiting {
        assert_proof(&within(waiter).await.expect("no panic").expect("known"));
    }
    // What has ended needs no time.
    let wait = Some(Duration::from_millis(1));
    assert_proof(&client.wait(&job, wait).await.expect("known"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_jobs_are_not_found() {
    let server = Server::start(|_| ()).await;
    let mut client = server.client().await;
    for id in ["", "wpost-1", "no such job"] {
        let (code, message) = refusal(client.wait(id, None).await);
        assert_eq!(code, Code::NotFound);
        assert!(message.starts_with("job_id: "), "{message}");
        assert_eq!(refusal(client.cancel(id).await).0, Code::NotFound);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_its_client() {
    let server = Server::start(|_| ()).await;
    let memory = server.take_memory();
    let mut client = server.client().await;
    let asking = tokio::spawn(async move { client.prove(window(1)).await });
    server.reaches(0, 1).await;
    asking.abort();
    assert!(asking.await.is_err(), "given up");
    drop(memory);
    let mut client = server.client().await;
    assert_proof(&within(client.prove(window(1))).await.expect("the same job"));
    assert_eq!(server.engine.metrics().jobs_completed.count(), 1);
    assert_eq!(server.engine.metrics().jobs_cancelled.count(), 0);
}
