//! Keys: loaded, used, dropped.

use cuzk_core::CircuitSpec;
use cuzk_core::config::KeyTier;
use cuzk_daemon::client::Client;
use cuzk_daemon::wire::SrsStatus;
use cuzk_daemon::wire::srs_status::Tier;
use cuzk_filecoin::{FilecoinCircuit, ProofKind, SectorSize};
use tonic::Code;

use crate::support::{Server, assert_proof, keys, refusal, window, within};

const ID: &str = "wpost-2k";

fn file_bytes() -> u64 {
    let circuit = FilecoinCircuit::new(ProofKind::WindowPost, SectorSize::KiB2);
    let path = keys().join(circuit.params_file());
    std::fs::metadata(path).expect("the key was made").len()
}

/// The one key there is.
async fn key(client: &mut Client) -> SrsStatus {
    let mut list = client.status().await.expect("a status").loaded_srs;
    assert_eq!(list.len(), 1, "{list:?}");
    list.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_loaded_and_dropped() {
    let server = Server::start(|config| config.tuning.key_tier = KeyTier::File).await;
    let mut client = server.client().await;
    let cold = key(&mut client).await;
    assert_eq!((cold.circuit_id.as_str(), cold.tier()), (ID, Tier::Cold));
    assert_eq!(cold.size_bytes, file_bytes());
    assert!(!client.evict(ID).await.expect("known").was_loaded);

    assert!(!client.preload(ID).await.expect("there").already_loaded);
    assert!(client.preload(ID).await.expect("there").already_loaded);
    let warm = key(&mut client).await;
    assert_eq!((warm.tier(), warm.size_bytes), (Tier::Warm, file_bytes()));
    assert_eq!(warm.ref_count, 0);

    let memory = server.take_memory();
    let job = client.submit(window(1)).await.expect("taken").job_id;
    server.reaches(0, 1).await;
    assert!(key(&mut client).await.ref_count >= 1);
    let (code, message) = refusal(client.evict(ID).await);
    assert_eq!(code, Code::FailedPrecondition, "{message}");
    drop(memory);
    assert_proof(&within(client.wait(&job, None)).await.expect("known"));

    assert_eq!(key(&mut client).await.ref_count, 0);
    let evicted = client.evict(ID).await.expect("known");
    assert!(evicted.was_loaded);
    assert_eq!(evicted.freed_bytes, file_bytes());
    assert_eq!(key(&mut client).await.tier(), Tier::Cold);
    // A proof loads it again.
    assert_proof(&within(client.prove(window(2))).await.expect("taken"));
    assert_eq!(key(&mut client).await.tier(), Tier::Warm);
}

#[tokio::test(flavor = "multi_thread")]
async fn resident_keys_are_hot_and_their_bytes_come_back() {
    let server = Server::start(|config| config.tuning.key_tier = KeyTier::Resident).await;
    let mut client = server.client().await;
    let before = server.engine.budget().usage().used_bytes;
    client.preload(ID).await.expect("there");
    let hot = key(&mut client).await;
    assert_eq!(hot.tier(), Tier::Hot);
    let used = server.engine.budget().usage().used_bytes;
    assert_eq!(used - before, hot.size_bytes);
    let answer = within(client.prove(window(1))).await.expect("taken");
    assert_proof(&answer);
    assert_eq!(answer.tier, "resident");
    let evicted = client.evict(ID).await.expect("known");
    assert_eq!(evicted.freed_bytes, hot.size_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn circuits_without_a_key_or_a_name_are_told() {
    let server = Server::start(|_| ()).await;
    let mut client = server.client().await;
    for id in ["", "wpost", "wpost-3k", &"x".repeat(1000)] {
        for answer in [
            refusal(client.preload(id).await),
            refusal(client.evict(id).await),
        ] {
            assert_eq!(answer.0, Code::InvalidArgument);
            assert!(answer.1.starts_with("circuit_id: "), "{answer:?}");
        }
    }
    let (code, message) = refusal(client.preload("porep-32g").await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.contains("no key for porep-32g"), "{message}");
    assert!(
        !client
            .evict("porep-32g")
            .await
            .expect("a circuit")
            .was_loaded
    );
}
