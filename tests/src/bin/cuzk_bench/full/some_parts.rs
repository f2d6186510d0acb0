//! The first parts of a request, as a job of their own: what fits a short measurement of
//! the real size.

use std::sync::Arc;

use anyhow::{Result, ensure};
use bellperson::groth16::Proof;
use blstrs::{Bls12, Scalar};
use cuzk_core::{CircuitSpec, Part, Verifier, Workload, WorkloadError};
use cuzk_filecoin::FilecoinWorkload;

/// So many parts of a request, under a name of its own.
pub(super) struct SomeParts {
    label: String,
    of: FilecoinWorkload,
    count: usize,
}

impl SomeParts {
    /// The first `count` parts; there must be as many.
    pub(super) fn new(of: FilecoinWorkload, count: usize, label: String) -> Result<Self> {
        let whole = of.part_count();
        ensure!(
            (1..=whole).contains(&count),
            "--parts {count}: the request has 1 to {whole}"
        );
        Ok(Self { label, of, count })
    }

    /// Public inputs of a part as a verifier computes them, without the one.
    pub(super) fn public_inputs(&self, part: usize) -> Result<Vec<Scalar>, WorkloadError> {
        self.of.public_inputs(part)
    }

    /// Whether these are all parts.
    pub(super) fn is_whole(&self) -> bool {
        self.count == self.of.part_count()
    }
}

impl Workload for SomeParts {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        self.of.circuit()
    }

    fn part_count(&self) -> usize {
        self.count
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        self.of.part(index)
    }

    /// Each proof by itself, with the public inputs of its part, unless all are there.
    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        if self.is_whole() {
            return self.of.verify(verifier, proofs);
        }
        for (part, proof) in proofs.iter().enumerate() {
            if !verifier.verify(proof, &self.of.public_inputs(part)?) {
                return Ok(false);
            }
        }
        Ok(proofs.len() == self.count)
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        let mut bytes = Vec::with_capacity(proofs.len() * cuzk_filecoin::PROOF_BYTES);
        for (index, proof) in proofs.iter().enumerate() {
            let written = proof.write(&mut bytes);
            written.map_err(|error| WorkloadError {
                field: format!("proof[{index}]"),
                reason: error.to_string(),
            })?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use cuzk_filecoin::fixture::{self, FixtureOptions};
    use cuzk_filecoin::{ProofKind, Request, SectorSize};

    use super::*;

    #[test]
    fn no_more_parts_than_the_request_has() {
        let workload = || {
            let options = FixtureOptions::default();
            let fixture = fixture::generate(ProofKind::WinningPost, SectorSize::KiB2, 1, &options)
                .expect("a fixture");
            let mut json = Vec::new();
            fixture.write_json(&mut json).expect("JSON");
            let request = Request::from_json(&json).expect("a request");
            request.workload().expect("a workload")
        };
        for count in [0, 2] {
            let refused = SomeParts::new(workload(), count, "x".to_owned()).map(|_| ());
            assert_eq!(
                refused.expect_err("one part").to_string(),
                format!("--parts {count}: the request has 1 to 1")
            );
        }
        let whole = SomeParts::new(workload(), 1, "x".to_owned()).expect("one part");
        assert!(whole.is_whole());
    }
}
