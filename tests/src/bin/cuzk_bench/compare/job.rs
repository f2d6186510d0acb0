//! Jobs of any number of parts.

use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bellperson::groth16::Proof;
use blstrs::{Bls12, Scalar};
use cuzk_core::{CircuitSpec, Part, Verifier, Workload, WorkloadError};
use cuzk_filecoin::fixture::{self, FixtureOptions};
use cuzk_filecoin::{FilecoinCircuit, FilecoinWorkload, Request};
use cuzk_tests::mixed::Mixed;
use ff::PrimeField as _;

use super::stacked::StackedJob;

/// The seed of synthetic requests.
const REQUEST_SEED: u64 = 1;

/// Sizes of the circuit of measurements: with less there is no variable, and there is no
/// larger domain.
const LOG_SIZES: RangeInclusive<u32> = 2..=Scalar::S;

/// A job of so many parts of the circuit of this name.
pub(super) fn of(circuit: &str, parts: usize) -> Result<Arc<dyn Workload>> {
    ensure!(parts > 0, "--parts: a job has at least one");
    if let Some(circuit) = mixed(circuit)? {
        return Ok(Arc::new(StackedJob::new(circuit, parts)));
    }
    let circuit: FilecoinCircuit = circuit.parse()?;
    let options = FixtureOptions::default();
    let fixture = fixture::generate(circuit.kind, circuit.sector_size, REQUEST_SEED, &options)?;
    let mut json = Vec::new();
    fixture.write_json(&mut json)?;
    let of = Request::from_json(&json)?.workload()?;
    Ok(Arc::new(Again { of, parts }))
}

/// The circuit of measurements that a name says, if it is one's.
pub(super) fn mixed(name: &str) -> Result<Option<Mixed>> {
    let Some(numbers) = name.strip_prefix("mixed-") else {
        return Ok(None);
    };
    let wrong = || format!("{name}: want mixed-LOG_SIZE-PER_MILLE");
    let (log_size, full) = numbers.split_once('-').with_context(wrong)?;
    let log_size = log_size.parse().with_context(wrong)?;
    let full_per_mille = full.parse().with_context(wrong)?;
    ensure!(
        LOG_SIZES.contains(&log_size),
        "{name}: LOG_SIZE is {log_size}, must be {} to {}",
        LOG_SIZES.start(),
        LOG_SIZES.end()
    );
    ensure!(
        full_per_mille <= 1000,
        "{name}: PER_MILLE is {full_per_mille}, must be at most 1000"
    );
    let variables = (1_u64 << log_size) - 3;
    // What is public is the last of them. A block of a stacked circuit has one where the
    // whole has: it has a thousand variables, or is the whole.
    ensure!(
        variables * u64::from(full_per_mille) >= 1000,
        "{name}: PER_MILLE is {full_per_mille}, of {variables} variables that is none"
    );
    Ok(Some(Mixed {
        log_size,
        full_per_mille,
    }))
}

/// A request's parts, again from the first one where it has no more: as a device has them
/// from many requests.
struct Again {
    of: FilecoinWorkload,
    parts: usize,
}

impl Workload for Again {
    fn label(&self) -> String {
        self.of.label()
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        self.of.circuit()
    }

    fn part_count(&self) -> usize {
        self.parts
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        self.of.part(index % self.of.part_count())
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        for (part, proof) in proofs.iter().enumerate() {
            let inputs = self.of.public_inputs(part % self.of.part_count())?;
            if !verifier.verify(proof, &inputs) {
                return Ok(false);
            }
        }
        Ok(proofs.len() == self.parts)
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        Ok(bytes_of(proofs))
    }
}

pub(super) fn bytes_of(proofs: &[Proof<Bls12>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for proof in proofs {
        proof.write(&mut bytes).expect("a vector takes all bytes");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_circuit_of_measurements_has_limits() {
        for name in [
            "mixed-2-1000",
            "mixed-7-8",
            "mixed-15-1",
            "mixed-16-1",
            "mixed-32-13",
        ] {
            let circuit = mixed(name).expect("within them").expect("its name");
            assert_eq!(circuit.id().as_str(), name);
        }
        let size = "must be 2 to 32";
        let share = "must be at most 1000";
        let none = "that is none";
        let form = "want mixed-LOG_SIZE-PER_MILLE";
        for (name, want) in [
            ("mixed-0-13", size),
            ("mixed-1-1000", size),
            ("mixed-33-13", size),
            ("mixed-4294967295-13", size),
            ("mixed-4294967296-13", form),
            ("mixed-8-1001", share),
            ("mixed-2-999", none),
            ("mixed-3-13", none),
            ("mixed-16-0", none),
            ("mixed--1-13", form),
            ("mixed-13", form),
            ("mixed-8-13x1", form),
        ] {
            let error = mixed(name).expect_err(want).to_string();
            assert!(error.starts_with(name) && error.ends_with(want), "{error}");
        }
        assert!(mixed("wpost-2k").expect("another's").is_none());
    }

    #[test]
    fn a_request_has_as_many_parts_as_are_asked_for() {
        let error = of("wpost-2k", 0).map(|job| job.part_count());
        let error = error.expect_err("no part").to_string();
        assert_eq!(error, "--parts: a job has at least one");
        let job = of("wpost-2k", 3).expect("a circuit");
        assert_eq!(job.part_count(), 3);
        for part in 0..3 {
            job.part(part).expect("again the first one");
        }
    }
}
