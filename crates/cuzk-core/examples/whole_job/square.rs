//! A proof kind: somebody knows the square root x of a public y.

use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use bellperson::groth16::Proof;
use blstrs::{Bls12, Scalar};
use cuzk_core::{CircuitId, CircuitSpec, Part, Verifier, Workload, WorkloadError};
use cuzk_synth::Pass;

/// The circuit, its witness, and a job of one part.
#[derive(Clone)]
pub(crate) struct Square {
    pub(crate) x: u64,
}

#[rustfmt::skip]
impl CircuitSpec for Square {
    fn id(&self) -> CircuitId { "square".into() }
    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.synthesize(0, pass)
    }
}

impl Part for Square {
    fn synthesize(&self, _: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        let x = AllocatedNum::alloc(pass.namespace(|| "x"), || Ok(Scalar::from(self.x)))?;
        let y = x.square(pass.namespace(|| "square"))?;
        y.inputize(pass.namespace(|| "y"))
    }
}

type Checked = Result<bool, WorkloadError>;

#[rustfmt::skip]
impl Workload for Square {
    fn label(&self) -> String { "a square".to_owned() }
    fn circuit(&self) -> Arc<dyn CircuitSpec> { Arc::new(self.clone()) }
    fn part_count(&self) -> usize { 1 }
    fn part(&self, _: usize) -> Result<Box<dyn Part>, WorkloadError> { Ok(Box::new(self.clone())) }
    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Checked {
        Ok(verifier.verify(&proofs[0], &[Scalar::from(self.x * self.x)]))
    }
    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        let mut bytes = Vec::new();
        proofs[0].write(&mut bytes).expect("a vector takes all bytes");
        Ok(bytes)
    }
}
