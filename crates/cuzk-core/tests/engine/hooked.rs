//! A job of chains with something before its syntheses, and a circuit that says what it is
//! told to.

use std::sync::Arc;

use bellpepper_core::SynthesisError;
use bellperson::groth16::Proof;
use blstrs::Bls12;
use cuzk_core::{BlankCircuit, CircuitId, CircuitSpec, Part, Verifier, Workload, WorkloadError};
use cuzk_synth::{Cut, Pass};

use crate::segments::{BLOCKS, Chains, ChainsJob, chains};

/// What happens before a synthesis.
pub(crate) type Hook = Arc<dyn Fn(&mut Pass<'_>) -> Result<(), SynthesisError> + Send + Sync>;

pub(crate) fn nothing() -> Hook {
    Arc::new(|_| Ok(()))
}

/// A blank circuit of so many blocks.
pub(crate) type Short =
    Arc<dyn Fn(usize, &mut Pass<'_>) -> Result<(), SynthesisError> + Send + Sync>;

/// A job of chains with something before its syntheses.
#[derive(Clone)]
pub(crate) struct Hooked {
    pub(crate) job: ChainsJob,
    pub(crate) short: Option<Short>,
    /// So many blocks a circuit with a short form says that it has.
    pub(crate) blocks: usize,
    pub(crate) blank: Hook,
    pub(crate) segment: Hook,
    pub(crate) whole: Hook,
}

impl Hooked {
    pub(crate) fn new() -> Self {
        Self {
            job: chains(None, 1),
            short: None,
            blocks: BLOCKS,
            blank: nothing(),
            segment: nothing(),
            whole: nothing(),
        }
    }
}

pub(crate) struct HookedSpec {
    circuit: Chains,
    blank: Hook,
    short: Option<Short>,
    blocks: usize,
}

impl HookedSpec {
    pub(crate) fn new(blank: Hook) -> Self {
        Self {
            circuit: Chains::new(None),
            blank,
            short: None,
            blocks: BLOCKS,
        }
    }
}

impl CircuitSpec for HookedSpec {
    fn id(&self) -> CircuitId {
        self.circuit.id()
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        (self.blank)(pass)?;
        self.circuit.synthesize_blank(pass)
    }

    fn cut(&self) -> Option<Cut> {
        self.circuit.cut()
    }

    fn segments(&self) -> usize {
        self.short.as_ref().map_or(usize::MAX, |_| self.blocks)
    }

    fn shortened(&self, blocks: usize) -> Option<BlankCircuit<'_>> {
        let short = self.short.as_ref()?;
        Some(Box::new(move |pass| short(blocks, pass)))
    }
}

struct HookedPart {
    part: Box<dyn Part>,
    segment: Hook,
    whole: Hook,
}

impl Part for HookedPart {
    fn segments(&self) -> usize {
        self.part.segments()
    }

    fn synthesize(&self, segment: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        (self.segment)(pass)?;
        self.part.synthesize(segment, pass)
    }

    fn synthesize_whole(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        (self.whole)(pass)?;
        self.part.synthesize_whole(pass)
    }
}

impl Workload for Hooked {
    fn label(&self) -> String {
        self.job.label()
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        Arc::new(HookedSpec {
            circuit: self.job.circuit.clone(),
            blocks: self.blocks,
            blank: Arc::clone(&self.blank),
            short: self.short.clone(),
        })
    }

    fn part_count(&self) -> usize {
        self.job.part_count()
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        Ok(Box::new(HookedPart {
            part: self.job.part(index)?,
            segment: Arc::clone(&self.segment),
            whole: Arc::clone(&self.whole),
        }))
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        self.job.verify(verifier, proofs)
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        self.job.encode(proofs)
    }
}
