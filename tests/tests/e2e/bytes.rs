//! Proof bytes: equal to bellperson's with the stock circuits, for given blinding
//! scalars.

use std::path::Path;
use std::sync::Arc;

use bellperson::groth16::Parameters;
use blstrs::Bls12;
use cuzk_core::config::{DevicePolicy, Placement, PlacementRefused};
use cuzk_core::{Blinding, Engine, JobOptions, ProofReply};
use cuzk_filecoin::Request;
use cuzk_tests::oracle;
use cuzk_tests::request::RequestFile;

use crate::support::{config, key_file, real_request};

const BLINDING: Blinding = Blinding::Seeded(11);

/// Our proof of a request with the blinding of these tests, on the processor.
fn ours(kind: &str, request: &Path) -> Vec<u8> {
    let mut config = config(kind);
    config.device_policy = DevicePolicy::Cpu;
    let engine = Engine::from_config(&config).expect("an engine");
    prove(&engine, request).proof
}

fn prove(engine: &Engine, request: &Path) -> ProofReply {
    let request = Request::from_json(&std::fs::read(request).expect("readable")).expect("good");
    let workload = Arc::new(request.workload().expect("good"));
    let options = JobOptions {
        blinding: BLINDING,
        ..JobOptions::default()
    };
    engine
        .submit(workload, options)
        .expect("room")
        .wait()
        .expect("a proof")
}

fn equals_bellperson(kind: &str) {
    let request = real_request(kind);
    let proof = ours(kind, &request);
    let file = std::fs::File::open(key_file(kind)).expect("the key was made");
    let params = Parameters::<Bls12>::read(std::io::BufReader::new(file), false).expect("a key");
    let file = RequestFile::read(&request).expect("a request");
    let stock = oracle::prove(&file, &params, BLINDING.scalars(0)).expect("bellperson proves");
    assert!(proof == stock, "{kind}: the proofs differ");
}

#[test]
fn window_post_bytes_are_bellpersons() {
    equals_bellperson("wpost");
}

#[test]
fn winning_post_bytes_are_bellpersons() {
    equals_bellperson("winning");
}

/// What bellperson made of the real PoRep with the same key and blinding, a minute's
/// work. `cargo run -p cuzk-tests --bin golden` writes the file anew.
#[test]
fn porep_bytes_are_bellpersons() {
    let golden = include_str!("../../golden/porep-2k.txt");
    let proof: String = ours("porep", &real_request("porep"))
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(proof, golden.trim());
}

/// Every kind on a device, with every placement: the bytes of the processor, and the
/// reply says what was used.
#[test]
fn gpu_every_kind_and_placement_gives_the_processors_bytes() {
    for kind in ["wpost", "winning", "snap", "porep"] {
        let request = real_request(kind);
        let expected = ours(kind, &request);
        for (placement, is_pinned) in [
            (Placement::Direct, true),
            (Placement::Register, true),
            (Placement::Staged, false),
            (Placement::Heap, false),
        ] {
            let mut config = config(kind);
            config.device_policy = DevicePolicy::RequireGpu;
            config.tuning.placement = placement;
            config.tuning.placement_refused = PlacementRefused::Fail;
            let engine = match Engine::from_config(&config) {
                Ok(engine) => engine,
                Err(error) => {
                    let required = std::env::var("CUZK_REQUIRE_GPU").is_ok_and(|set| set == "1");
                    assert!(!required, "{error}");
                    println!("skipped: {error}");
                    return;
                }
            };
            for _ in 0..2 {
                let reply = prove(&engine, &request);
                assert!(
                    reply.proof == expected,
                    "{kind} {placement}: the proofs differ"
                );
                assert_eq!(reply.backend, "cuda");
                assert_eq!(reply.placement(), placement.to_string());
                assert_eq!(reply.is_pinned(), is_pinned, "{kind} {placement}");
            }
        }
    }
}
