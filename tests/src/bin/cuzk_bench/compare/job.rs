//! A job of any size: parts of the circuit of measurements.

use std::sync::Arc;

use anyhow::{Context, Result};
use bellpepper_core::SynthesisError;
use bellperson::groth16::{PreparedVerifyingKey, Proof};
use blstrs::{Bls12, Scalar};
use cuzk_core::{CircuitSpec, Part, Workload, WorkloadError};
use cuzk_filecoin::fixture::{self, FixtureOptions};
use cuzk_filecoin::{FilecoinCircuit, Request};
use cuzk_synth::Pass;
use cuzk_tests::mixed::Mixed;

/// The seed of synthetic requests.
const REQUEST_SEED: u64 = 1;

/// The first full-size value of [`Mixed`], of which the next ones are squares.
const FIRST: u64 = 0x0123_4567_89ab_cdef;

/// The workload of a circuit's name, with so many parts where the name does not say.
pub(super) fn of(circuit: &str, parts: usize) -> Result<Arc<dyn Workload>> {
    if let Some(circuit) = mixed(circuit)? {
        return Ok(Arc::new(MixedJob { circuit, parts }));
    }
    let circuit: FilecoinCircuit = circuit.parse()?;
    let options = FixtureOptions::default();
    let fixture = fixture::generate(circuit.kind, circuit.sector_size, REQUEST_SEED, &options)?;
    let mut json = Vec::new();
    fixture.write_json(&mut json)?;
    Ok(Arc::new(Request::from_json(&json)?.workload()?))
}

/// The circuit of measurements that a name says, if it is one's.
pub(super) fn mixed(name: &str) -> Result<Option<Mixed>> {
    let Some(numbers) = name.strip_prefix("mixed-") else {
        return Ok(None);
    };
    let wrong = || format!("{name}: want mixed-LOG_SIZE-PER_MILLE");
    let (log_size, full) = numbers.split_once('-').with_context(wrong)?;
    Ok(Some(Mixed {
        log_size: log_size.parse().with_context(wrong)?,
        full_per_mille: full.parse().with_context(wrong)?,
    }))
}

struct MixedJob {
    circuit: Mixed,
    parts: usize,
}

struct MixedPart {
    circuit: Mixed,
    seed: u64,
}

impl MixedJob {
    /// What the circuit makes public.
    fn output(&self) -> Scalar {
        let variables = (1_u64 << self.circuit.log_size) - 3;
        let full = variables * u64::from(self.circuit.full_per_mille) / 1000;
        (0..full).fold(Scalar::from(FIRST), |value, _| value * value)
    }
}

impl Part for MixedPart {
    fn synthesize(&self, _: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.circuit.synthesize_with(pass, self.seed)
    }
}

impl Workload for MixedJob {
    fn label(&self) -> String {
        self.circuit.id().to_string()
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        Arc::new(self.circuit)
    }

    fn part_count(&self) -> usize {
        self.parts
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        Ok(Box::new(MixedPart {
            circuit: self.circuit,
            seed: index as u64,
        }))
    }

    fn verify(
        &self,
        vk: &PreparedVerifyingKey<Bls12>,
        proofs: &[Proof<Bls12>],
    ) -> Result<bool, WorkloadError> {
        let output = [self.output()];
        Ok(proofs.len() == self.parts
            && proofs
                .iter()
                .all(|proof| cuzk_gpu::verify(vk, proof, &output)))
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        let mut bytes = Vec::new();
        for proof in proofs {
            proof.write(&mut bytes).expect("a vector takes all bytes");
        }
        Ok(bytes)
    }
}
