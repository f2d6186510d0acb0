//! Proof bytes: equal to bellperson's with the stock circuits, for given blinding
//! scalars.

use std::path::Path;
use std::sync::Arc;

use bellperson::groth16::Parameters;
use blstrs::Bls12;
use cuzk_core::{Blinding, Engine, JobOptions};
use cuzk_filecoin::Request;
use cuzk_tests::oracle;
use cuzk_tests::request::RequestFile;

use crate::support::{config, key_file, real_request};

const BLINDING: Blinding = Blinding::Seeded(11);

/// Our proof of a request with the blinding of these tests.
fn ours(kind: &str, request: &Path) -> Vec<u8> {
    let engine = Engine::from_config(&config(kind)).expect("an engine");
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
        .proof
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
