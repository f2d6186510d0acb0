//! Request ids: what is the same job and what is not.

use cuzk_core::Workload;
use cuzk_daemon::wire::await_proof_response::Status;
use cuzk_filecoin::Priority;
use cuzk_filecoin::fixture::FixtureOptions;
use tonic::Code;

use crate::support::{Server, assert_proof, refusal, window, window_of, within};

#[tokio::test(flavor = "multi_thread")]
async fn eight_clients_with_one_request_are_one_job() {
    let server = Server::start(|_| ()).await;
    let memory = server.take_memory();
    let mut waiting = Vec::new();
    for index in 0..8 {
        let mut client = match index % 2 {
            0 => server.client().await,
            _ => server.socket_client().await,
        };
        waiting.push(tokio::spawn(async move {
            let job = client.submit(window(1)).await.expect("taken");
            (client, job.job_id)
        }));
    }
    let mut clients = Vec::new();
    for submitted in waiting {
        clients.push(within(submitted).await.expect("no panic"));
    }
    let id = clients[0].1.clone();
    assert!(clients.iter().all(|(_, job)| *job == id), "one job");
    drop(memory);

    let mut proofs = Vec::new();
    for (client, id) in &mut clients {
        let answer = within(client.wait(id, None)).await.expect("known");
        assert_proof(&answer);
        proofs.push(answer.proof);
    }
    // Blinding is fresh for every proof, so equal bytes are one computation.
    proofs.dedup();
    assert_eq!(proofs.len(), 1);
    // Later ones get it too, by id and by content.
    let mut late = server.client().await;
    let again = within(late.prove(window(1))).await.expect("stored");
    assert_eq!((again.job_id, again.proof), (id, proofs.remove(0)));
    assert_eq!(server.engine.metrics().jobs_completed.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_conflict_while_the_job_lives_and_are_a_new_job_afterwards() {
    let server = Server::start(|_| ()).await;
    let mut client = server.client().await;
    let memory = server.take_memory();
    let mut other = window(2);
    other.request_id = window(1).request_id;
    let first = client.submit(window(1)).await.expect("taken");

    let (code, message) = refusal(client.submit(other.clone()).await);
    assert_eq!(code, Code::AlreadyExists);
    assert!(message.starts_with("request_id: \"wpost-1\""), "{message}");
    let (code, _) = refusal(client.prove(other.clone()).await);
    assert_eq!(code, Code::AlreadyExists);

    drop(memory);
    assert_proof(
        &within(client.wait(&first.job_id, None))
            .await
            .expect("known"),
    );
    let second = client.submit(other).await.expect("taken");
    assert_ne!(first.job_id, second.job_id);
    assert_proof(
        &within(client.wait(&second.job_id, None))
            .await
            .expect("known"),
    );
    // The first job's result stays with its own id.
    let kept = client.wait(&first.job_id, None).await.expect("kept");
    assert_eq!(kept.job_id, first.job_id);
    assert_proof(&kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cancelled_is_proved_when_it_comes_again() {
    let server = Server::start(|_| ()).await;
    let mut client = server.client().await;
    let memory = server.take_memory();
    let used = server.engine.budget().usage().used_bytes;
    let first = client.submit(window(1)).await.expect("taken");
    server.reaches(0, 1).await;
    assert!(client.cancel(&first.job_id).await.expect("known"));
    let answer = within(client.wait(&first.job_id, None))
        .await
        .expect("known");
    assert_eq!(answer.status(), Status::Cancelled);
    assert!(answer.proof.is_empty());
    assert_eq!(server.engine.budget().usage().used_bytes, used);
    // It runs no more.
    assert!(!client.cancel(&first.job_id).await.expect("known"));

    drop(memory);
    let answer = within(client.prove(window(1))).await.expect("taken");
    assert_ne!(answer.job_id, first.job_id);
    assert_proof(&answer);
    assert!(!client.cancel(&answer.job_id).await.expect("known"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_is_cancelled_and_was_not_running() {
    let server = Server::start(|config| config.parts_in_flight_max = Some(1)).await;
    let mut client = server.client().await;
    let memory = server.take_memory();
    let first = client.submit(window(1)).await.expect("taken");
    server.reaches(0, 1).await;
    let second = client.submit(window(2)).await.expect("taken");
    server.reaches(1, 1).await;
    assert!(!client.cancel(&second.job_id).await.expect("known"));
    let answer = within(client.wait(&second.job_id, None))
        .await
        .expect("known");
    assert_eq!(answer.status(), Status::Cancelled);
    drop(memory);
    assert_proof(
        &within(client.wait(&first.job_id, None))
            .await
            .expect("known"),
    );
}

/// The engine is given the priority of whoever asks last, if it is the highest so far.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_asked_for_again_as_an_urgent_one_goes_first() {
    let server = Server::start(|config| config.parts_in_flight_max = Some(1)).await;
    let mut client = server.client().await;
    let memory = server.take_memory();
    // Labels name the miner.
    let with = |seed, priority| {
        let options = FixtureOptions {
            miner_id: 1000 + seed,
            ..FixtureOptions::default()
        };
        let mut request = window_of(seed, &options);
        request.priority = priority;
        request
    };
    let label = |seed| {
        let workload = with(seed, Priority::Normal).workload();
        workload.expect("a request").label()
    };
    let first = client.submit(with(1, Priority::High)).await.expect("taken");
    server.reaches(0, 1).await;
    let mut jobs = vec![first];
    for (seed, priority) in [(2, Priority::Normal), (3, Priority::Low)] {
        jobs.push(client.submit(with(seed, priority)).await.expect("taken"));
    }
    server.reaches(2, 1).await;
    let again = client.submit(with(3, Priority::High)).await.expect("taken");
    assert_eq!(again.job_id, jobs[2].job_id);
    // As low as the first time: whoever asked for more still waits.
    let again = client.submit(with(3, Priority::Low)).await.expect("taken");
    assert_eq!(again.job_id, jobs[2].job_id);
    drop(memory);
    for job in &jobs {
        assert_proof(&within(client.wait(&job.job_id, None)).await.expect("known"));
    }
    let begun: Vec<String> = server
        .engine
        .recorded()
        .spans
        .iter()
        .filter(|span| span.name == "queue")
        .filter_map(|span| Some(span.job.as_ref()?.to_string()))
        .collect();
    assert_ne!(label(2), label(3));
    assert_eq!(begun, [label(1), label(3), label(2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_kept_up_to_the_configured_number() {
    let server = Server::start(|config| config.serve.results_kept_max = 1).await;
    let mut client = server.client().await;
    let first = within(client.prove(window(1))).await.expect("proved");
    let second = within(client.prove(window(2))).await.expect("proved");
    let (code, message) = refusal(client.wait(&first.job_id, None).await);
    assert_eq!(code, Code::NotFound);
    assert!(message.contains(&first.job_id), "{message}");
    assert_proof(&client.wait(&second.job_id, None).await.expect("kept"));
    // Nothing is kept of the first, so its name is free and its content is new.
    let again = within(client.prove(window(1))).await.expect("proved");
    assert_ne!(again.job_id, first.job_id);
}
