//! Jobs that stop at a gate until a test opens it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use bellpepper_core::SynthesisError;
use bellperson::groth16::Proof;
use blstrs::Bls12;
use cuzk_core::{CircuitId, CircuitSpec, Part, Verifier, Workload, WorkloadError};
use cuzk_synth::Pass;

use crate::toy::SquaresJob;

/// Holds whoever comes until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    came: AtomicUsize,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.is_open.lock().expect("no panic under the lock") = true;
        self.opened.notify_all();
    }

    /// How many came so far.
    pub(crate) fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }

    pub(crate) fn pass(&self) {
        self.came.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.lock().expect("no panic under the lock");
        let is_shut = |is_open: &mut bool| !*is_open;
        drop(self.opened.wait_while(is_open, is_shut));
    }
}

/// Where a job stops.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// While its key is loaded.
    Key,
    /// In the synthesis of its parts.
    Synthesis,
    /// Nowhere: it is told as urgent.
    Nowhere,
}

pub(crate) struct Gated {
    pub(crate) job: SquaresJob,
    pub(crate) gate: Arc<Gate>,
    pub(crate) at: At,
}

struct GatedCircuit {
    circuit: Arc<dyn CircuitSpec>,
    gate: Option<Arc<Gate>>,
}

impl CircuitSpec for GatedCircuit {
    fn id(&self) -> CircuitId {
        self.circuit.id()
    }

    fn params_file(&self) -> String {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        self.circuit.params_file()
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.circuit.synthesize_blank(pass)
    }

    fn is_urgent(&self) -> bool {
        self.gate.is_none()
    }
}

struct GatedPart {
    part: Box<dyn Part>,
    gate: Option<Arc<Gate>>,
}

impl Part for GatedPart {
    fn synthesize(&self, segment: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        self.part.synthesize(segment, pass)
    }
}

impl Gated {
    pub(crate) fn new(job: SquaresJob, at: At) -> (Arc<Self>, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        let gated = Self {
            job,
            gate: Arc::clone(&gate),
            at,
        };
        (Arc::new(gated), gate)
    }

    fn gate_at(&self, at: At) -> Option<Arc<Gate>> {
        (self.at == at).then(|| Arc::clone(&self.gate))
    }
}

impl Workload for Gated {
    fn label(&self) -> String {
        self.job.label()
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        let circuit = self.job.circuit();
        match self.at {
            At::Synthesis => circuit,
            At::Key | At::Nowhere => Arc::new(GatedCircuit {
                circuit,
                gate: self.gate_at(At::Key),
            }),
        }
    }

    fn part_count(&self) -> usize {
        self.job.part_count()
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        let part = self.job.part(index)?;
        let gate = self.gate_at(At::Synthesis);
        Ok(Box::new(GatedPart { part, gate }))
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        self.job.verify(verifier, proofs)
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        self.job.encode(proofs)
    }
}
