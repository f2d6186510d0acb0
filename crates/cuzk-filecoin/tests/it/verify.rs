//! Verification against keys whose trapdoor is known, so that proofs can be made
//! for any public inputs without a proving key.

use bellperson::groth16::{Proof, VerifyingKey};
use blstrs::{Bls12, G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use cuzk_core::{Verifier, Workload};
use cuzk_filecoin::fixture::{FixtureOptions, generate};
use cuzk_filecoin::{FilecoinWorkload, PROOF_BYTES, ProofKind, SectorSize};
use ff::Field;
use group::Group;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::support::{POREP, SNAP, WINDOW, WINNING, workload};

struct Trapdoor {
    alpha: Scalar,
    beta: Scalar,
    gamma: Scalar,
    delta: Scalar,
    inputs: Vec<Scalar>,
}

fn g1(exponent: Scalar) -> G1Affine {
    (G1Projective::generator() * exponent).into()
}

fn g2(exponent: Scalar) -> G2Affine {
    (G2Projective::generator() * exponent).into()
}

impl Trapdoor {
    fn new(input_count: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut draw = || Scalar::random(&mut rng);
        Self {
            alpha: draw(),
            beta: draw(),
            gamma: draw(),
            delta: draw(),
            inputs: (0..=input_count).map(|_| draw()).collect(),
        }
    }

    fn verifier(&self) -> Verifier {
        Verifier::new(VerifyingKey {
            alpha_g1: g1(self.alpha),
            beta_g1: g1(self.beta),
            beta_g2: g2(self.beta),
            gamma_g2: g2(self.gamma),
            delta_g1: g1(self.delta),
            delta_g2: g2(self.delta),
            ic: self.inputs.iter().map(|&input| g1(input)).collect(),
        })
    }

    /// A proof that holds for these inputs: with a and b chosen, the verifier's
    /// equation `a b = alpha beta + gamma inputs + delta c` gives c.
    fn proof(&self, inputs: &[Scalar]) -> Proof<Bls12> {
        let (a, b) = (Scalar::from(3), Scalar::from(5));
        let weighted: Scalar = inputs
            .iter()
            .zip(&self.inputs[1..])
            .map(|(input, weight)| input * weight)
            .sum();
        let rest = a * b - self.alpha * self.beta - self.gamma * (self.inputs[0] + weighted);
        let c = rest * self.delta.invert().expect("delta is not zero");
        Proof {
            a: g1(a),
            b: g2(b),
            c: g1(c),
        }
    }
}

fn with_proof(file: &[u8]) -> (FilecoinWorkload, Verifier, Proof<Bls12>) {
    let workload = workload(file);
    let inputs = workload.public_inputs(0).unwrap();
    let trapdoor = Trapdoor::new(inputs.len());
    let proof = trapdoor.proof(&inputs);
    (workload, trapdoor.verifier(), proof)
}

#[test]
fn proofs_hold_for_their_own_request_only() {
    for file in [POREP, SNAP, WINDOW, WINNING] {
        let (workload, verifier, proof) = with_proof(file);
        assert!(
            workload
                .verify(&verifier, std::slice::from_ref(&proof))
                .unwrap()
        );
        let bytes = workload.encode(std::slice::from_ref(&proof)).unwrap();
        assert_eq!(bytes.len(), PROOF_BYTES);
        assert!(workload.verify_bytes(&verifier, &bytes).unwrap());

        // Any other c is a well-formed proof of something else.
        let mut other = proof;
        other.c = g1(Scalar::from(7));
        assert!(!workload.verify(&verifier, &[other]).unwrap());
    }
    // The same circuit, other inputs.
    let (_, verifier, proof) = with_proof(WINDOW);
    let mut request = crate::support::request(WINDOW);
    request.vanilla_proofs.pop();
    let shorter = request.workload().unwrap();
    assert!(!shorter.verify(&verifier, &[proof]).unwrap());
}

#[test]
fn of_many_parts_the_one_that_does_not_hold_is_named() {
    let options = FixtureOptions::default();
    let mut file = Vec::new();
    generate(ProofKind::PoRep, SectorSize::GiB32, 1, &options)
        .unwrap()
        .write_json(&mut file)
        .unwrap();
    let workload = workload(&file);
    let inputs = |part| workload.public_inputs(part).unwrap();
    let trapdoor = Trapdoor::new(inputs(0).len());
    let verifier = trapdoor.verifier();
    let proofs: Vec<_> = (0..workload.part_count())
        .map(|part| trapdoor.proof(&inputs(part)))
        .collect();
    assert_eq!(proofs.len(), 10);
    assert_eq!(workload.invalid_part(&verifier, &proofs).unwrap(), None);
    assert!(workload.verify(&verifier, &proofs).unwrap());

    let refused_for = |proofs: &[Proof<Bls12>], part| {
        assert_eq!(
            workload.invalid_part(&verifier, proofs).unwrap(),
            Some(part)
        );
        assert!(!workload.verify(&verifier, proofs).unwrap());
    };
    for part in [0, 4, 9] {
        let mut one = proofs.clone();
        one[part].c = g1(Scalar::from(7));
        refused_for(&one, part);
    }
    // Good proofs of each other's inputs.
    let mut swapped = proofs.clone();
    swapped.swap(3, 8);
    refused_for(&swapped, 3);
    // Two faults that a sum without random factors would not see.
    let mut opposite = proofs.clone();
    let off = G1Projective::generator();
    opposite[5].c = (off + opposite[5].c).into();
    opposite[6].c = (-off + opposite[6].c).into();
    refused_for(&opposite, 5);
}

#[test]
fn what_cannot_be_checked_is_named() {
    let (workload, verifier, proof) = with_proof(WINDOW);
    let bytes = workload.encode(std::slice::from_ref(&proof)).unwrap();
    let mut no_point = bytes.clone();
    no_point[0] ^= 0x80;
    let (_, other_verifier, _) = with_proof(WINNING);
    let reasons = [
        workload.verify_bytes(&verifier, &[]).unwrap_err(),
        workload.verify_bytes(&verifier, &bytes[1..]).unwrap_err(),
        workload.verify_bytes(&verifier, &no_point).unwrap_err(),
        workload.verify(&verifier, &[]).unwrap_err(),
        workload.encode(&[proof.clone(), proof]).unwrap_err(),
        workload.verify_bytes(&other_verifier, &bytes).unwrap_err(),
        workload.part(1).err().unwrap(),
        workload.public_inputs(1).unwrap_err(),
    ]
    .map(|error| error.to_string());
    insta::assert_snapshot!(reasons.join("\n"));
}
