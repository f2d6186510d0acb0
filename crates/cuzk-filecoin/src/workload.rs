//! The engine's view of a request, and verification.

use std::fmt;
use std::sync::Arc;

use bellpepper_core::SynthesisError;
use bellperson::groth16::Proof;
use blstrs::{Bls12, Scalar};
use cuzk_core::{CircuitSpec, Part, Verifier, Workload, WorkloadError};
use cuzk_synth::Pass;
use rand_core::OsRng;
use rayon::prelude::*;

use crate::circuits::FilecoinCircuit;
use crate::error::{fault, item};

/// Bytes of one encoded proof: two compressed G1 points and one G2 point.
pub const PROOF_BYTES: usize = 192;

/// What a proof kind makes of a request. Every `part` is below the workload's count.
pub(crate) trait Job: Send + Sync {
    /// Segments of a part.
    fn segments(&self) -> usize;
    /// Synthesises one segment of a part with its witness.
    fn synthesize_segment(
        &self,
        part: usize,
        segment: usize,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError>;
    /// Synthesises a part with its witness.
    fn synthesize(&self, part: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError>;
    /// Public inputs of a part as a verifier computes them, without the one.
    fn public_inputs(&self, part: usize) -> Result<Vec<Scalar>, WorkloadError>;
    /// Checks the vanilla proofs of a part.
    fn check_part(&self, part: usize) -> Result<(), WorkloadError>;
}

/// A part of any kind.
struct JobPart {
    job: Arc<dyn Job>,
    index: usize,
}

impl Part for JobPart {
    fn segments(&self) -> usize {
        self.job.segments()
    }

    fn synthesize(&self, segment: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.job.synthesize_segment(self.index, segment, pass)
    }

    fn synthesize_whole(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.job.synthesize(self.index, pass)
    }
}

/// A request, parsed: its parts for the engine, and the check of its proofs.
///
/// Memory: the vanilla proofs are held as parsed, about as large as their bincode
/// (a 32 GiB PoRep 17 MB, a full WindowPoSt partition 65 MB).
pub struct FilecoinWorkload {
    circuit: FilecoinCircuit,
    label: String,
    part_count: usize,
    job: Arc<dyn Job>,
}

impl fmt::Debug for FilecoinWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilecoinWorkload")
            .field(&self.label)
            .finish()
    }
}

impl FilecoinWorkload {
    /// A workload of `part_count` parts; `subject` says what is proven about whom.
    pub(crate) fn new(
        circuit: FilecoinCircuit,
        subject: impl fmt::Display,
        part_count: usize,
        job: impl Job + 'static,
    ) -> Self {
        Self {
            circuit,
            label: format!("{} {subject}", circuit.id()),
            part_count,
            job: Arc::new(job),
        }
    }

    /// Which circuit the parts share, with its kind and sector size.
    pub fn filecoin_circuit(&self) -> FilecoinCircuit {
        self.circuit
    }

    /// Checks the vanilla proofs natively: paths, labels, challenges. Cheap beside
    /// a proof (milliseconds a sector, seconds for a 32 GiB PoRep), and a vanilla
    /// proof that does not hold is the caller's error.
    ///
    /// # Errors
    /// With the field and place of one that does not hold.
    pub fn check_vanilla(&self) -> Result<(), WorkloadError> {
        (0..self.part_count)
            .into_par_iter()
            .try_for_each(|part| self.job.check_part(part))
    }

    /// Public inputs of a part as a verifier computes them, without the constant
    /// one.
    ///
    /// # Errors
    /// If `part` is out of range.
    pub fn public_inputs(&self, part: usize) -> Result<Vec<Scalar>, WorkloadError> {
        self.in_range(part)?;
        self.job.public_inputs(part)
    }

    /// Checks encoded proofs.
    ///
    /// # Errors
    /// If the bytes are not the proofs of all parts; proofs that fail the check
    /// are `Ok(false)`.
    pub fn verify_bytes(&self, verifier: &Verifier, bytes: &[u8]) -> Result<bool, WorkloadError> {
        self.verify(verifier, &self.decode(bytes)?)
    }

    /// The first part whose proof does not hold, if one does not.
    ///
    /// All proofs are checked together first, which may be much cheaper and fails, but for
    /// a chance below 2^-100, if any of them does ([`Verifier::verify_batch`]). Only then
    /// the one is looked for.
    ///
    /// # Errors
    /// If there is not one proof a part, or the key is of another circuit.
    pub fn invalid_part(
        &self,
        verifier: &Verifier,
        proofs: &[Proof<Bls12>],
    ) -> Result<Option<usize>, WorkloadError> {
        self.counted(proofs)?;
        let inputs = (0..proofs.len())
            .map(|part| self.job.public_inputs(part))
            .collect::<Result<Vec<_>, _>>()?;
        let is_other = |inputs: &&Vec<Scalar>| inputs.len() != verifier.input_count();
        if let Some(inputs) = inputs.iter().find(is_other) {
            let circuit = self.circuit;
            let (kind, size, count) = (circuit.kind, circuit.sector_size, inputs.len());
            let reason = format!("not of {kind} {size}, which has {count} public inputs");
            return Err(fault("verifying key", reason));
        }
        if verifier.verify_batch(&mut OsRng, proofs, &inputs) {
            return Ok(None);
        }
        let mut parts = proofs.iter().zip(&inputs);
        Ok(parts.position(|(proof, inputs)| !verifier.verify(proof, inputs)))
    }

    /// Reads encoded proofs, one a part.
    ///
    /// # Errors
    /// If the length is wrong or a point is not on its curve or in its group.
    pub fn decode(&self, bytes: &[u8]) -> Result<Vec<Proof<Bls12>>, WorkloadError> {
        let want = self.part_count * PROOF_BYTES;
        if bytes.len() != want {
            let have = bytes.len();
            return Err(fault("proof", format!("{have} bytes, must be {want}")));
        }
        bytes
            .chunks(PROOF_BYTES)
            .enumerate()
            .map(|(index, chunk)| {
                Proof::read(chunk).map_err(|error| fault(item("proof", index), error))
            })
            .collect()
    }

    fn in_range(&self, part: usize) -> Result<(), WorkloadError> {
        let count = self.part_count;
        if part < count {
            return Ok(());
        }
        Err(fault("part", format!("{part} of a proof with {count}")))
    }

    fn counted(&self, proofs: &[Proof<Bls12>]) -> Result<(), WorkloadError> {
        let (have, want) = (proofs.len(), self.part_count);
        if have == want {
            return Ok(());
        }
        Err(fault("proof", format!("{have} proofs, must be {want}")))
    }
}

impl Workload for FilecoinWorkload {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        Arc::new(self.circuit)
    }

    fn part_count(&self) -> usize {
        self.part_count
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        self.in_range(index)?;
        Ok(Box::new(JobPart {
            job: Arc::clone(&self.job),
            index,
        }))
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        Ok(self.invalid_part(verifier, proofs)?.is_none())
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        self.counted(proofs)?;
        let mut bytes = Vec::with_capacity(proofs.len() * PROOF_BYTES);
        for (index, proof) in proofs.iter().enumerate() {
            proof
                .write(&mut bytes)
                .map_err(|error| fault(item("proof", index), error))?;
        }
        Ok(bytes)
    }
}
