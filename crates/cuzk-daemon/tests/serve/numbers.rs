//! Counters, gauges and times are what happened.

use cuzk_core::CircuitSpec;
use cuzk_core::keygen::sidecar_path;
use cuzk_daemon::wire::await_proof_response::Status;
use cuzk_filecoin::{FilecoinCircuit, ProofKind, SectorSize};

use crate::support::{Server, assert_proof, keys, real, window, within};

/// Lines of a metrics page.
fn has(page: &str, lines: &[&str]) {
    for line in lines {
        assert!(page.lines().any(|have| have == *line), "{line} in\n{page}");
    }
}

/// A directory in which the key of WinningPoSt is really the one of WindowPoSt.
fn keys_mixed_up(directory: &std::path::Path) {
    let circuit = |kind| FilecoinCircuit::new(kind, SectorSize::KiB2);
    let window = keys().join(circuit(ProofKind::WindowPost).params_file());
    for kind in [ProofKind::WindowPost, ProofKind::WinningPost] {
        let path = directory.join(circuit(kind).params_file());
        std::fs::copy(&window, &path).expect("copied");
        std::fs::copy(sidecar_path(&window), sidecar_path(&path)).expect("copied");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_proofs_one_failure_and_one_cancellation_are_counted_so() {
    let mixed = tempfile::tempdir().expect("a temporary directory");
    keys_mixed_up(mixed.path());
    let server = Server::start(|config| {
        config.params_directory = mixed.path().to_owned();
    })
    .await;
    let mut client = server.client().await;
    for seed in 1..=3 {
        assert_proof(&within(client.prove(window(seed))).await.expect("taken"));
    }
    let failed = within(client.prove(real("winning"))).await.expect("taken");
    assert_eq!(failed.status(), Status::Failed);
    assert!(!failed.error_message.is_empty() && failed.proof.is_empty());
    let memory = server.take_memory();
    let job = client.submit(window(4)).await.expect("taken").job_id;
    server.reaches(0, 1).await;
    has(
        &server.page("/metrics"),
        &["cuzk_queue_depth 0", "cuzk_running_jobs 1"],
    );
    client.cancel(&job).await.expect("known");
    let cancelled = within(client.wait(&job, None)).await.expect("known");
    assert_eq!(cancelled.status(), Status::Cancelled);
    drop(memory);

    let page = server.page("/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for text in [page, client.metrics().await.expect("metrics")] {
        has(
            &text,
            &[
                "cuzk_proofs_completed_total 3",
                "cuzk_proofs_failed_total 1",
                "cuzk_proofs_cancelled_total 1",
                "cuzk_queue_depth 0",
                "cuzk_running_jobs 0",
                "cuzk_gpu_workers 0",
                "cuzk_gpu_lost 0",
                "cuzk_pinned_bytes 0",
                "cuzk_pinned_limit_bytes 0",
                "cuzk_pinned_allocations_total 0",
                "cuzk_placement_total{placement=\"heap\"} 3",
                "cuzk_placement_total{placement=\"direct\"} 0",
                "cuzk_placement_refused_total 0",
                "cuzk_proof_duration_seconds_count{proof_kind=\"WINDOW_POST_PARTITION\"} 3",
                "cuzk_proof_duration_seconds_count{proof_kind=\"WINNING_POST\"} 0",
                "cuzk_proof_duration_seconds_bucket{proof_kind=\"WINDOW_POST_PARTITION\",le=\"+Inf\"} 3",
            ],
        );
    }
    assert!(server.page("/").starts_with("HTTP/1.1 404"));

    let status = client.status().await.expect("a status");
    assert_eq!(status.total_proofs_completed, 3);
    assert_eq!(status.total_proofs_failed, 1);
    assert_eq!(status.queues.len(), 4);
    assert!(
        status
            .queues
            .iter()
            .all(|queue| queue.pending + queue.in_progress == 0)
    );
    assert!(status.gpus.is_empty());
    assert_eq!(
        (status.pinned_memory_bytes, status.pinned_memory_limit_bytes),
        (0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_says_where_the_time_went() {
    let server = Server::start(|_| ()).await;
    let mut client = server.client().await;
    let answer = within(client.prove(window(1))).await.expect("taken");
    assert_proof(&answer);
    assert!(
        answer.synthesis_ms > 0 && answer.gpu_compute_ms > 0,
        "{answer:?}"
    );
    let parts =
        answer.queue_wait_ms + answer.srs_load_ms + answer.synthesis_ms + answer.gpu_compute_ms;
    // One part: its stages follow each other; each is rounded.
    assert!(answer.total_ms + 4 >= parts, "{answer:?}");
    assert_eq!(
        (answer.backend.as_str(), answer.tier.as_str()),
        ("cpu", "resident")
    );
    assert_eq!(
        (answer.placement.as_str(), answer.is_pinned),
        ("heap", false)
    );
    assert_eq!(answer.retries, 0);
}
