//! bellperson's synthesis, timed where it happens: its prover synthesises the stock
//! circuit into its own assignment, then asks for a key and is given none.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use bellperson::groth16::{ParameterSource, VerifyingKey, create_proof_batch};
use blstrs::{Bls12, G1Affine, G2Affine, Scalar};
use cuzk_filecoin::ProofKind;
use cuzk_tests::oracle;
use cuzk_tests::request::RequestFile;
use filecoin_proofs::PoStType;

/// The first part of a request, synthesised by bellperson: what it took.
pub(crate) fn synthesise(kind: ProofKind, file: &RequestFile) -> Result<Duration> {
    match kind {
        ProofKind::PoRep => timed(oracle::porep(file)?),
        ProofKind::SnapDeals => timed(oracle::snap(file)?),
        ProofKind::WindowPost => timed(oracle::post(file, PoStType::Window)?),
        ProofKind::WinningPost => timed(oracle::post(file, PoStType::Winning)?),
    }
}

fn timed(circuit: impl Circuit<Scalar> + Send) -> Result<Duration> {
    let took = Arc::default();
    let circuit = Timed {
        circuit,
        took: Arc::clone(&took),
    };
    let zero = vec![Scalar::from(0)];
    match create_proof_batch::<Bls12, _, _>(vec![circuit], NoKey, zero.clone(), zero) {
        Err(SynthesisError::MalformedSrs) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => bail!("a proof without a key"),
    }
    let took = took.lock().ok().and_then(|took| *took);
    took.context("bellperson synthesises what it is given")
}

/// A circuit that tells how long its synthesis took.
struct Timed<C> {
    circuit: C,
    took: Arc<Mutex<Option<Duration>>>,
}

impl<C: Circuit<Scalar>> Circuit<Scalar> for Timed<C> {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let from = Instant::now();
        self.circuit.synthesize(cs)?;
        if let Ok(mut took) = self.took.lock() {
            *took = Some(from.elapsed());
        }
        Ok(())
    }
}

/// A key that is not there: the verifying key is asked for right after the synthesis.
struct NoKey;

type G1 = (Arc<Vec<G1Affine>>, usize);
type G2 = (Arc<Vec<G2Affine>>, usize);

const END: SynthesisError = SynthesisError::MalformedSrs;

impl ParameterSource<Bls12> for NoKey {
    type G1Builder = G1;
    type G2Builder = G2;

    fn get_vk(&self, _: usize) -> Result<&VerifyingKey<Bls12>, SynthesisError> {
        Err(END)
    }

    fn get_h(&self, _: usize) -> Result<G1, SynthesisError> {
        Err(END)
    }

    fn get_l(&self, _: usize) -> Result<G1, SynthesisError> {
        Err(END)
    }

    fn get_a(&self, _: usize, _: usize) -> Result<(G1, G1), SynthesisError> {
        Err(END)
    }

    fn get_b_g1(&self, _: usize, _: usize) -> Result<(G1, G1), SynthesisError> {
        Err(END)
    }

    fn get_b_g2(&self, _: usize, _: usize) -> Result<(G2, G2), SynthesisError> {
        Err(END)
    }
}
