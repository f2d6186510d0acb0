//! Whole proofs: the same bytes as bellperson's, and accepted by its verifier.

use std::sync::Arc;

use bellperson::groth16::{
    Parameters, Proof, create_proof, generate_random_parameters, prepare_verifying_key,
    verify_proof,
};
use blstrs::{Bls12, Scalar};
use ff::Field;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::column::CColumn;
use crate::cpu::CpuBackend;
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::circuit::{Assignment, RandomCircuit};
use crate::cpu::tests::{job, meaningless_key, options, scalar};

/// What the options ask of the third column.
fn third_column(c_source: CSource) -> CColumn {
    match c_source {
        CSource::Product => CColumn::Scratch,
        CSource::Synthesised => CColumn::Synthesised,
    }
}

fn bytes(proof: &Proof<Bls12>) -> Vec<u8> {
    let mut bytes = Vec::new();
    proof.write(&mut bytes).expect("a vector takes all bytes");
    bytes
}

/// Proves with each combination of options and compares with bellperson.
fn compare(circuit: RandomCircuit, key: &Arc<Parameters<Bls12>>, r: Scalar, s: Scalar) {
    let assignment = Assignment::of(circuit);
    let theirs = create_proof::<Bls12, _, _>(circuit, &**key, r, s).expect("a satisfied circuit");
    for (c_source, transforms) in [
        (CSource::Product, Transforms::Six),
        (CSource::Product, Transforms::Seven),
        (CSource::Synthesised, Transforms::Six),
        (CSource::Synthesised, Transforms::Seven),
    ] {
        let backend = CpuBackend::new(options(c_source, transforms)).expect("threads");
        let job = job(&assignment, third_column(c_source), Arc::clone(key), r, s);
        let layout = backend.column_layout(&job.shape.sizes);
        assert_eq!(layout.c, third_column(c_source));
        assert_eq!(layout.rows, job.columns.a.len());
        let mut pending = backend.submit_job(job);
        assert!(pending.columns_read().is_some(), "the columns come back");
        let proved = pending.done().expect("a request that fits");
        assert_eq!(
            bytes(&proved.proof),
            bytes(&theirs),
            "{c_source:?} {transforms:?}"
        );
    }
}

proptest! {
    // Each case is five proofs of up to 128 constraints.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_circuits_give_bellpersons_bytes(
        circuit in RandomCircuit::strategy(),
        seed in any::<u64>(),
    ) {
        let shape = Assignment::of(circuit).shape();
        let key = Arc::new(meaningless_key(&shape, seed));
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (r, s) = (scalar(&mut rng), scalar(&mut rng));
        compare(circuit, &key, r, s);
    }
}

/// The largest size here, where transforms run in parallel.
#[test]
fn a_larger_circuit_gives_bellpersons_bytes() {
    let circuit = RandomCircuit::of_products(40_000, 11);
    let key = Arc::new(meaningless_key(&Assignment::of(circuit).shape(), 12));
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let (r, s) = (Scalar::random(&mut rng), Scalar::random(&mut rng));
    compare(circuit, &key, r, s);
}

/// With C from synthesis too, a proof of any witness is made; it must not verify.
#[test]
fn an_unsatisfied_witness_gives_no_valid_proof() {
    let circuit = RandomCircuit::of_products(20, 31);
    let mut rng = ChaCha8Rng::seed_from_u64(32);
    let key = generate_random_parameters::<Bls12, _, _>(circuit, &mut rng)
        .expect("a circuit without unused variables");
    let key = Arc::new(key);
    let prepared = prepare_verifying_key(&key.vk);
    for (c_source, transforms) in [
        (CSource::Synthesised, Transforms::Six),
        (CSource::Synthesised, Transforms::Seven),
    ] {
        let mut assignment = Assignment::of(circuit);
        assignment.a[3] += Scalar::ONE;
        assignment.b[3] += Scalar::ONE;
        let backend = CpuBackend::new(options(c_source, transforms)).expect("threads");
        let job = job(
            &assignment,
            third_column(c_source),
            Arc::clone(&key),
            Scalar::ONE,
            Scalar::ONE,
        );
        let proof = backend.submit_job(job).done().expect("a request that fits");
        let accepted = verify_proof(&prepared, &proof.proof, &assignment.inputs[1..]);
        assert_eq!(accepted.ok(), Some(false));
    }
}
