//! What the engine proves: a job as its parts, and how its proofs become bytes.
//! Proof kinds live in other crates; the engine knows only these traits.

use std::fmt;
use std::sync::Arc;

use bellpepper_core::SynthesisError;
use bellperson::groth16::Proof;
use blstrs::Bls12;
use cuzk_gpu::Verifier;
use cuzk_synth::{Cut, Pass};

/// Names a circuit, everything about it that does not depend on a witness, and so
/// its key: `porep-2k`, `wpost-32g`. Parts with one id have one shape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitId(pub Arc<str>);

impl CircuitId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for CircuitId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for CircuitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A circuit without a witness and the names of its key files: what key generation
/// and key lookup need.
pub trait CircuitSpec: Send + Sync {
    /// The circuit's id.
    fn id(&self) -> CircuitId;

    /// File name of the proving key (`v28-….params` in the standard layout): the id's, unless
    /// said otherwise.
    fn params_file(&self) -> String {
        format!("{}.params", self.id())
    }

    /// File name of the verifying key (`v28-….vk` in the standard layout): the id's, unless
    /// said otherwise.
    fn vk_file(&self) -> String {
        format!("{}.vk", self.id())
    }

    /// Digest that the published list has for the proving key, if it lists it.
    fn params_digest(&self) -> Option<String> {
        None
    }

    /// Digest that the published list has for the verifying key, if it lists it.
    fn vk_digest(&self) -> Option<String> {
        None
    }

    /// Synthesises the circuit without a witness, for count and QAP passes.
    ///
    /// # Errors
    /// What the circuit says.
    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError>;

    /// Whether its jobs usually have the highest priority: memory for one of its parts can
    /// be kept then.
    fn is_urgent(&self) -> bool {
        false
    }

    /// Where the circuit is said to repeat. It is checked before it is used, so that a
    /// circuit which does not is only slower; of one that is said to be a loop
    /// ([`shortened`](Self::shortened)) by a few blocks.
    fn cut(&self) -> Option<Cut> {
        None
    }

    /// Whether all blocks of the [`cut`](Self::cut) use the same variables of what they share,
    /// as far as the circuit tells. A survey before the first job reads the first block then
    /// and has the others compared with it by several threads, or those of a
    /// [shortened](Self::shortened) circuit, and a test key is made from it; where this is not
    /// true, both are done twice.
    fn is_uniform(&self) -> bool {
        true
    }

    /// Segments of its parts, as far as the circuit tells: threads that a synthesis of one
    /// can use. Without a word of it, as many as there are where it is cut.
    fn segments(&self) -> usize {
        self.cut().map_or(1, |_| usize::MAX)
    }

    /// The blank circuit with `blocks` of the blocks of its [`cut`](Self::cut), at least one and
    /// fewer than it has, where the circuit is a loop over blocks that all have the same values
    /// when it is blank: as for a proof of fewer. A survey compares three blocks then in place
    /// of all, since every one more would be the same code with the same values. Nobody asks
    /// where [`segments`](Self::segments) says no more than three or [`is_uniform`](Self::is_uniform)
    /// says no.
    ///
    /// Of the whole circuit no more is checked then than that its variables, and its rows up to
    /// a power of two, are as many as the key has. If this is said of a circuit that is no loop,
    /// a first proof does not verify and is made again; the whole circuit is surveyed after it,
    /// and what that finds stays. Where a test key is made,
    /// nothing checks it, nor that [`segments`](Self::segments) is the number of blocks: it would
    /// be another circuit's.
    fn shortened(&self, blocks: usize) -> Option<BlankCircuit<'_>> {
        let _ = blocks;
        None
    }
}

/// Blocks of a [shortened](CircuitSpec::shortened) circuit that are compared: the first, one
/// between others, and the last.
pub(crate) const COMPARED_BLOCKS: usize = 3;

/// The circuit that is compared in place of one of so many blocks, if it is a loop.
pub(crate) fn shortened(circuit: &dyn CircuitSpec, blocks: usize) -> Option<BlankCircuit<'_>> {
    if blocks <= COMPARED_BLOCKS {
        return None;
    }
    circuit.shortened(COMPARED_BLOCKS)
}

/// Synthesises a circuit without a witness, as
/// [`synthesize_blank`](CircuitSpec::synthesize_blank) does, with the same errors.
pub type BlankCircuit<'a> =
    Box<dyn Fn(&mut Pass<'_>) -> Result<(), SynthesisError> + Send + Sync + 'a>;

/// Blocks of a circuit of which the first one tells the others, as far as it says: at least
/// two, and not more than anybody knows of.
pub(crate) fn uniform_blocks(circuit: &dyn CircuitSpec) -> Option<usize> {
    let blocks = circuit.segments();
    let is_known = (2..usize::MAX).contains(&blocks);
    (is_known && circuit.is_uniform()).then_some(blocks)
}

/// One circuit instance of a job.
pub trait Part: Send + Sync {
    /// Number of segments, which can be synthesised apart: at least one. Where there are
    /// more, they divide the blocks of the circuit's [`cut`](CircuitSpec::cut) evenly, in
    /// their order.
    fn segments(&self) -> usize {
        1
    }

    /// Synthesises one segment with its witness: what all blocks share, then the blocks
    /// of the segment. A single segment is the whole circuit.
    ///
    /// # Errors
    /// What the circuit says of its witness.
    fn synthesize(&self, segment: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError>;

    /// Synthesises the whole circuit. A part of several segments must say how.
    ///
    /// # Errors
    /// What the circuit says of its witness.
    fn synthesize_whole(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        assert_eq!(self.segments(), 1, "segments are not the whole circuit");
        self.synthesize(0, pass)
    }
}

/// A job: parts of one circuit, and the proof they make together.
pub trait Workload: Send + Sync {
    /// For log lines: which proof this is (`porep-2k sector 11 of miner 1000`).
    fn label(&self) -> String;

    /// The circuit that all parts share.
    fn circuit(&self) -> Arc<dyn CircuitSpec>;

    /// Number of parts. A job without any is refused.
    fn part_count(&self) -> usize;

    /// Part `index`, below [`part_count`](Self::part_count). May be called again,
    /// when a part is retried.
    ///
    /// # Errors
    /// If the request does not make a circuit.
    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError>;

    /// Checks the proofs of all parts against the public inputs that a verifier
    /// would compute. `verifier` is of the key that they were made with.
    ///
    /// # Errors
    /// If the check could not be made; a proof that fails it is `Ok(false)`.
    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError>;

    /// The bytes that go to the caller.
    ///
    /// # Errors
    /// If the proofs cannot be encoded.
    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError>;
}

/// Why a request cannot be proved or checked, in the words of its proof kind.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct WorkloadError {
    /// The field of the request that is at fault (`vanilla_proofs[3]`).
    pub field: String,
    /// What is wrong with it. Never witness data.
    pub reason: String,
}
