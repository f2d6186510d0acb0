//! The backend behind the engine's seam, with a key from a file.

use std::fs::File;
use std::sync::Arc;

use bellperson::groth16::create_proof;
use blstrs::{Bls12, Scalar};

use crate::backend::{Backend, ProveRequest};
use crate::cpu::CpuBackend;
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::circuit::{Assignment, RandomCircuit};
use crate::cpu::tests::{job, meaningless_key, options};
use crate::key::{Key, KeyChecks, KeyTier, PointCheck};

#[test]
fn a_key_file_gives_bellpersons_bytes_decoded_or_resident() {
    let circuit = RandomCircuit::of_products(100, 51);
    let assignment = Assignment::of(circuit);
    let parameters = Arc::new(meaningless_key(&assignment.shape(), 52));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("key.params");
    parameters
        .write(File::create(&path).expect("a new file"))
        .expect("a file takes all bytes");
    let checks = KeyChecks {
        points: PointCheck::OnCurve,
        digest: None,
    };
    let key = Arc::new(Key::open(&path, &checks).expect("a whole key"));
    let backend: Box<dyn Backend> =
        Box::new(CpuBackend::new(options(CSource::Product, Transforms::Six)).expect("threads"));
    let (r, s) = (Scalar::from(3), Scalar::from(5));
    let theirs = create_proof::<Bls12, _, _>(circuit, &*parameters, r, s).expect("satisfied");

    let sizes = assignment.shape().sizes;
    let decoded_bytes = backend.work_bytes(&sizes, &key, KeyTier::File);
    for is_resident in [false, true] {
        if is_resident {
            key.load_resident().expect("a whole key");
        }
        let job = job(
            &assignment,
            backend.layout(&sizes).c,
            Arc::clone(&parameters),
            r,
            s,
        );
        let mut pending = backend.submit(ProveRequest {
            columns: job.columns,
            inputs: job.inputs,
            shape: job.shape,
            key: Arc::clone(&key),
            r,
            s,
            watch: None,
        });
        assert!(pending.columns_read().is_some(), "the columns come back");
        assert_eq!(pending.done().expect("a request that fits").proof, theirs);
    }
    let resident_bytes = backend.work_bytes(&sizes, &key, KeyTier::Resident);
    assert!(
        resident_bytes < decoded_bytes,
        "points in memory are not counted again"
    );
}
