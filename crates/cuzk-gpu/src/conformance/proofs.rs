//! The right bytes.

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use bellperson::groth16::{Proof, prepare_verifying_key, verify_proof};
use blstrs::{Bls12, Scalar};
use ff::Field;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::exponents::Secret;
use super::{Case, Make, QUEUE_LEN_MAX, bytes, proved};
use crate::cpu::tests::circuit::{Assignment, RandomCircuit};
use crate::cpu::tests::scalar;

/// Circuits of one to so many rows, each beside a power of two.
const ROWS: [usize; 18] = [
    1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129,
];

/// A circuit of so many rows, one of them the constant's.
fn of_rows(rows: usize, has_no_aux: bool) -> RandomCircuit {
    let inputs = if has_no_aux { 0 } else { (rows - 1).min(2) };
    // Where results are inputs, each has a row of its own too.
    let products = match has_no_aux {
        true => (rows - 1) / 2,
        false => rows - 1 - inputs,
    };
    RandomCircuit {
        seed: rows as u64,
        products,
        early_inputs: inputs,
        late_inputs: 0,
        unused: 0,
        is_boolean: false,
        has_no_aux,
        has_inputs_in_b: true,
    }
}

pub(crate) fn every_small_size_gives_bellpersons_bytes(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    for rows in ROWS {
        for has_no_aux in [false, true] {
            let case = Case::meaningless(of_rows(rows, has_no_aux), 1);
            if !has_no_aux {
                assert_eq!(case.shape.sizes.constraints, rows);
            }
            let mut rng = ChaCha8Rng::seed_from_u64(rows as u64);
            let (r, s) = (scalar(&mut rng), scalar(&mut rng));
            let what = format!("{rows} rows, no auxiliary variables: {has_no_aux}");
            case.compare(&*backend, r, s, &what);
        }
    }
}

/// Each variable squared is itself: all zeros, or all ones.
#[derive(Clone, Copy)]
struct Same {
    value: Scalar,
    variables: usize,
}

impl Circuit<Scalar> for Same {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let input = cs.alloc_input(|| "input", || Ok(self.value))?;
        for _ in 0..self.variables {
            let x = cs.alloc(|| "x", || Ok(self.value))?;
            cs.enforce(|| "same", |lc| lc + x, |lc| lc + x, |lc| lc + input);
        }
        Ok(())
    }
}

pub(crate) fn extreme_witnesses_give_bellpersons_bytes(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    for value in [Scalar::ZERO, Scalar::ONE] {
        for variables in [1, 30, 100] {
            let case = Case::meaningless(Same { value, variables }, 2);
            let what = format!("{variables} variables of {value:?}");
            case.compare(&*backend, Scalar::from(5), Scalar::from(7), &what);
        }
    }
}

pub(crate) fn special_blinding_scalars_give_bellpersons_bytes(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let case = Case::meaningless(RandomCircuit::of_products(20, 3), 3);
    let special = [Scalar::ZERO, Scalar::ONE, -Scalar::ONE];
    for r in special {
        for s in special {
            case.compare(&*backend, r, s, &format!("r {r:?}, s {s:?}"));
        }
    }
}

/// Where transforms run in parallel and sums in chunks.
pub(crate) fn a_larger_circuit_gives_bellpersons_bytes(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let case = Case::meaningless(RandomCircuit::of_products(5_000, 11), 12);
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let (r, s) = (Scalar::random(&mut rng), Scalar::random(&mut rng));
    case.compare(&*backend, r, s, "5,000 products");
}

fn secret(seed: u64) -> Secret {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let [alpha, beta, gamma, delta, tau] = [(); 5].map(|()| Scalar::random(&mut rng));
    Secret {
        alpha,
        beta,
        gamma,
        delta,
        tau,
    }
}

/// With a key that means something, its secret known.
pub(super) fn generated(circuit: RandomCircuit, seed: u64) -> (Case<RandomCircuit>, Secret) {
    let secret = secret(seed);
    let case = Case::with_key(circuit, Assignment::of(circuit), secret.key(circuit));
    (case, secret)
}

pub(crate) fn a_known_secret_gives_the_exponents(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    for (products, seed) in [(1, 41), (12, 42), (13, 43), (60, 44), (300, 45)] {
        let (case, secret) = generated(RandomCircuit::of_products(products, seed), seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for (r, s) in [
            (Scalar::ZERO, Scalar::ZERO),
            (Scalar::random(&mut rng), Scalar::random(&mut rng)),
        ] {
            let expected: Proof<Bls12> = secret.proof(&case.assignment, r, s);
            let proof = proved(&*backend, case.request(&*backend, r, s)).proof;
            assert!(bytes(&proof) == bytes(&expected), "{products} products");
        }
    }
}

pub(crate) fn a_proof_verifies_and_only_for_its_inputs(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let (case, _) = generated(RandomCircuit::of_products(20, 21), 22);
    let request = case.request(&*backend, Scalar::from(8), Scalar::from(9));
    let proof = proved(&*backend, request).proof;
    let prepared = prepare_verifying_key(&case.parameters.vk);
    let mut inputs = case.assignment.inputs[1..].to_vec();
    assert_eq!(verify_proof(&prepared, &proof, &inputs).ok(), Some(true));
    inputs[0] += Scalar::ONE;
    assert_eq!(verify_proof(&prepared, &proof, &inputs).ok(), Some(false));
}

/// C by product makes a proof of any witness; it must not verify.
pub(crate) fn an_unsatisfied_witness_gives_no_valid_proof(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let (mut case, _) = generated(RandomCircuit::of_products(20, 31), 32);
    case.assignment.a[3] += Scalar::ONE;
    case.assignment.b[3] += Scalar::ONE;
    let request = case.request(&*backend, Scalar::ONE, Scalar::ONE);
    let proof = proved(&*backend, request).proof;
    let prepared = prepare_verifying_key(&case.parameters.vk);
    let accepted = verify_proof(&prepared, &proof, &case.assignment.inputs[1..]);
    assert_eq!(accepted.ok(), Some(false));
}
