//! Jobs of the circuit of measurements, several of a smaller one on each other, so that a part
//! is synthesised in segments as a Filecoin part is, and a device and not the processor is
//! what limits a job.

use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError};
use bellperson::groth16::Proof;
use blstrs::Bls12;
use cuzk_core::{BlankCircuit, CircuitId, CircuitSpec, Part, Verifier, Workload, WorkloadError};
use cuzk_synth::{Cut, Pass};
use cuzk_tests::mixed::Mixed;

use super::job::bytes_of;

/// Blocks of a circuit that is large enough, and how large.
const LOG_BLOCKS: u32 = 6;
const LOG_SIZE_MIN: u32 = 16;

/// As many rows as one [`Mixed`], less one for each block but the first.
#[derive(Clone, Copy)]
struct Stacked {
    block: Mixed,
    blocks: usize,
}

impl Stacked {
    fn new(whole: Mixed) -> Self {
        let log_blocks = if whole.log_size < LOG_SIZE_MIN {
            0
        } else {
            LOG_BLOCKS
        };
        let block = Mixed {
            log_size: whole.log_size - log_blocks,
            ..whole
        };
        let blocks = 1 << log_blocks;
        Self { block, blocks }
    }

    fn synthesize(
        &self,
        blocks: std::ops::Range<usize>,
        part: usize,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        for block in blocks {
            let mut space = pass.namespace(|| format!("block {block}"));
            let seed = part * self.blocks + block;
            self.block.synthesize_with(&mut space, seed as u64)?;
        }
        Ok(())
    }
}

impl CircuitSpec for Stacked {
    fn id(&self) -> CircuitId {
        let id = format!("{}x{}", self.block.id(), self.blocks);
        CircuitId::from(id.as_str())
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.synthesize(0..self.blocks, 0, pass)
    }

    fn cut(&self) -> Option<Cut> {
        let cut = Cut {
            depth: 0,
            name: "block ",
            apart: None,
        };
        (self.blocks > 1).then_some(cut)
    }

    fn segments(&self) -> usize {
        self.blocks
    }

    fn shortened(&self, blocks: usize) -> Option<BlankCircuit<'_>> {
        Some(Box::new(move |pass| self.synthesize(0..blocks, 0, pass)))
    }
}

/// A job of so many parts, each with bits of its own.
pub(super) struct StackedJob {
    circuit: Stacked,
    parts: usize,
}

struct StackedPart {
    circuit: Stacked,
    index: usize,
}

impl StackedJob {
    pub(super) fn new(whole: Mixed, parts: usize) -> Self {
        let circuit = Stacked::new(whole);
        Self { circuit, parts }
    }
}

impl Part for StackedPart {
    fn segments(&self) -> usize {
        self.circuit.blocks
    }

    fn synthesize(&self, segment: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        let blocks = segment..segment + 1;
        self.circuit.synthesize(blocks, self.index, pass)
    }

    fn synthesize_whole(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        let blocks = 0..self.circuit.blocks;
        self.circuit.synthesize(blocks, self.index, pass)
    }
}

impl Workload for StackedJob {
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
        let circuit = self.circuit;
        Ok(Box::new(StackedPart { circuit, index }))
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        let outputs = vec![self.circuit.block.output(); self.circuit.blocks];
        Ok(proofs.len() == self.parts
            && proofs.iter().all(|proof| verifier.verify(proof, &outputs)))
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        Ok(bytes_of(proofs))
    }
}

#[cfg(test)]
mod tests {
    use cuzk_synth::{Explained, Extend, Sizes, count, explain, survey};

    use super::*;

    const WHOLE: Mixed = Mixed {
        log_size: LOG_SIZE_MIN,
        full_per_mille: 13,
    };

    #[test]
    fn it_fills_the_domain_of_one_and_is_satisfied() {
        for log_size in [LOG_SIZE_MIN - 1, LOG_SIZE_MIN] {
            let job = StackedJob::new(Mixed { log_size, ..WHOLE }, 2);
            for index in 0..2 {
                let part = job.part(index).expect("it has two");
                let explained = explain(|pass| part.synthesize_whole(pass));
                let explained = explained.expect("it has a witness");
                let constraints = (1 << log_size) + 1 - job.circuit.blocks;
                assert_eq!(explained, Explained::Satisfied { constraints });
            }
        }
    }

    #[test]
    fn its_blocks_tell_the_whole() {
        let circuit = Stacked::new(WHOLE);
        let cut = circuit.cut().expect("it is large enough");
        let look = |extend| {
            let blank = |pass: &mut Pass<'_>| circuit.synthesize_blank(pass);
            let surveyed = survey(cut, extend, true, 1 << 30, blank);
            surveyed.expect("a blank circuit").expect("it repeats")
        };
        let whole = look(Extend::Whole);
        let blocks = circuit.blocks;
        assert_eq!(whole.digest(), look(Extend::FirstBlock { blocks }).digest());
        let short = circuit.shortened(3).expect("it is a loop");
        let counted = count(short).expect("a blank circuit");
        let Sizes { constraints, .. } = whole.sizes();
        assert!(counted.sizes.constraints < constraints / 20);
    }
}
