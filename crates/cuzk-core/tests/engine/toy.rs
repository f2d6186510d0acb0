//! A small circuit as a proof kind of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use bellperson::groth16::Proof;
use blstrs::{Bls12, Scalar};
use cuzk_budget::Budget;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate};
use cuzk_core::{
    CircuitId, CircuitSpec, ColumnMemory, Config, Engine, EngineParts, Part, ProveError, Verifier,
    Workload, WorkloadError,
};
use cuzk_gpu::cpu::h::{CSource, Transforms};
use cuzk_gpu::cpu::{CpuBackend, CpuOptions};
use cuzk_gpu::{Backend, CircuitSizes, Key, KeyChecks, KeyTier, PointCheck, Section};
use cuzk_synth::{HintStore, Pass};

/// x^(2^rounds) = y, y public.
#[derive(Clone, Debug)]
pub(crate) struct Squares {
    pub(crate) rounds: usize,
}

impl CircuitSpec for Squares {
    fn id(&self) -> CircuitId {
        format!("squares-{}", self.rounds).as_str().into()
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        synthesize(self.rounds, 0, None, pass)
    }
}

/// What a part of a job does instead of proving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its square of this round is wrong.
    Unsatisfied(usize),
    /// Its synthesis panics.
    Panic,
    /// It has no value for x.
    Missing,
    /// The verifier is told of another y.
    OtherInput,
    /// It multiplies y once more, so that its circuit is another one of equal size.
    Denser,
    /// The names of its key files panic.
    Names,
}

fn synthesize(
    rounds: usize,
    x: u64,
    fault: Option<Fault>,
    pass: &mut Pass<'_>,
) -> Result<(), SynthesisError> {
    let value = || match fault {
        Some(Fault::Missing) => Err(SynthesisError::AssignmentMissing),
        Some(Fault::Panic) => panic!("a fault of the test"),
        _ => Ok(Scalar::from(x)),
    };
    let mut x = AllocatedNum::alloc(pass.namespace(|| "x"), value)?;
    for round in 0..rounds {
        let mut space = pass.namespace(|| format!("round {round}"));
        x = if fault == Some(Fault::Unsatisfied(round)) {
            let wrong = AllocatedNum::alloc(space.namespace(|| "wrong"), || Ok(Scalar::from(3)))?;
            space.enforce(
                || "square",
                |lc| lc + x.get_variable(),
                |lc| lc + x.get_variable(),
                |lc| lc + wrong.get_variable(),
            );
            wrong
        } else {
            x.square(space.namespace(|| "square"))?
        };
    }
    if fault == Some(Fault::Denser) {
        let y = x.get_variable();
        pass.enforce(|| "y", |lc| lc + y, |lc| lc + Pass::one(), |lc| lc + y);
    }
    x.inputize(pass.namespace(|| "y"))
}

/// The circuit of a job whose key cannot even be looked for.
struct Nameless(Squares);

impl CircuitSpec for Nameless {
    fn id(&self) -> CircuitId {
        self.0.id()
    }

    fn params_file(&self) -> String {
        panic!("a fault of the test")
    }

    fn vk_file(&self) -> String {
        panic!("a fault of the test")
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.0.synthesize_blank(pass)
    }
}

/// A job of several parts, x counting up from `first`.
#[derive(Clone, Debug)]
pub(crate) struct SquaresJob {
    pub(crate) circuit: Squares,
    pub(crate) first: u64,
    pub(crate) parts: usize,
    pub(crate) fault: Option<(usize, Fault)>,
}

impl SquaresJob {
    pub(crate) fn new(rounds: usize, first: u64, parts: usize) -> Self {
        Self {
            circuit: Squares { rounds },
            first,
            parts,
            fault: None,
        }
    }

    fn fault(&self, index: usize) -> Option<Fault> {
        self.fault
            .filter(|(part, _)| *part == index)
            .map(|(_, fault)| fault)
    }

    fn input(&self, index: usize) -> Scalar {
        let mut y = Scalar::from(self.first + index as u64);
        for _ in 0..self.circuit.rounds {
            y = y * y;
        }
        if self.fault(index) == Some(Fault::OtherInput) {
            y + Scalar::from(1)
        } else {
            y
        }
    }
}

struct SquaresPart {
    rounds: usize,
    x: u64,
    fault: Option<Fault>,
}

impl Part for SquaresPart {
    fn synthesize(&self, _: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        synthesize(self.rounds, self.x, self.fault, pass)
    }
}

impl Workload for SquaresJob {
    fn label(&self) -> String {
        format!("squares from {}", self.first)
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        match self.fault {
            Some((_, Fault::Names)) => Arc::new(Nameless(self.circuit.clone())),
            _ => Arc::new(self.circuit.clone()),
        }
    }

    fn part_count(&self) -> usize {
        self.parts
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        let (rounds, x) = (self.circuit.rounds, self.first + index as u64);
        Ok(Box::new(SquaresPart {
            rounds,
            x,
            fault: self.fault(index),
        }))
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        Ok(proofs
            .iter()
            .enumerate()
            .all(|(index, proof)| verifier.verify(proof, &[self.input(index)])))
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        let mut bytes = Vec::new();
        for proof in proofs {
            proof.write(&mut bytes).expect("a vector takes all");
        }
        Ok(bytes)
    }
}

/// A directory with the test keys of some circuits, and an engine's configuration.
pub(crate) struct House {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) config: Config,
}

impl House {
    pub(crate) fn new(rounds: &[usize]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for &rounds in rounds {
            make_key(directory.path(), rounds);
        }
        let mut config = Config::new(directory.path().to_owned());
        config.allow_test_params = true;
        Self { directory, config }
    }

    pub(crate) fn params(&self, rounds: usize) -> PathBuf {
        self.directory.path().join(Squares { rounds }.params_file())
    }

    pub(crate) fn engine(&self, limit_bytes: u64) -> Engine {
        self.engine_on(limit_bytes, Arc::new(cpu(true)))
    }

    pub(crate) fn key(&self, rounds: usize) -> Key {
        let checks = KeyChecks {
            points: PointCheck::None,
            digest: None,
        };
        Key::open(&self.params(rounds), &checks).expect("a good key")
    }

    /// What a part takes: its columns and its work, with the key in a tier.
    pub(crate) fn part_bytes(&self, rounds: usize, tier: KeyTier) -> u64 {
        let columns: usize = self.column_lens(rounds).into_iter().sum();
        columns as u64 + cpu(true).work_bytes(&self.sizes(rounds), &self.key(rounds), tier)
    }

    pub(crate) fn engine_on(&self, limit_bytes: u64, backend: Arc<dyn Backend>) -> Engine {
        self.engine_with(limit_bytes, backend, HintStore::in_memory())
    }

    pub(crate) fn engine_with(
        &self,
        limit_bytes: u64,
        backend: Arc<dyn Backend>,
        hints: HintStore,
    ) -> Engine {
        let budget = Budget::new(limit_bytes);
        let memory = ColumnMemory::heap(budget);
        self.start(memory, backend, hints)
            .expect("a thread can be started")
    }
}

impl House {
    /// An engine whose columns come from `memory`, if it can be started.
    pub(crate) fn start(
        &self,
        memory: ColumnMemory,
        backend: Arc<dyn Backend>,
        hints: HintStore,
    ) -> Result<Engine, ProveError> {
        self.start_with(memory, vec![backend], hints)
    }

    fn start_with(
        &self,
        memory: ColumnMemory,
        backends: Vec<Arc<dyn Backend>>,
        hints: HintStore,
    ) -> Result<Engine, ProveError> {
        let parts = EngineParts {
            backends,
            memory,
            hints,
        };
        Engine::start(&self.config, parts)
    }

    /// An engine with several backends.
    pub(crate) fn engine_on_all(
        &self,
        limit_bytes: u64,
        backends: Vec<Arc<dyn Backend>>,
    ) -> Engine {
        let memory = ColumnMemory::heap(Budget::new(limit_bytes));
        self.start_with(memory, backends, HintStore::in_memory())
            .expect("a thread can be started")
    }

    /// The lengths of a part's columns, in bytes.
    pub(crate) fn column_lens(&self, rounds: usize) -> Vec<usize> {
        let lens = cpu(true).layout(&self.sizes(rounds)).lens();
        lens.into_iter().map(|len| 32 * len).collect()
    }

    fn sizes(&self, rounds: usize) -> CircuitSizes {
        let key = self.key(rounds);
        CircuitSizes {
            inputs: key.count(Section::Ic),
            aux: key.count(Section::L),
            constraints: key.count(Section::H) + 1,
        }
    }
}

pub(crate) fn make_key(directory: &Path, rounds: usize) {
    let output = KeyOutput {
        directory,
        refused: &[],
        seed: 7,
    };
    generate(
        &Squares { rounds },
        &ToxicWaste::from_seed(7),
        &output,
        &|_, _, _| {},
    )
    .expect("a key for a small circuit");
}

pub(crate) fn cpu(c_from_ab: bool) -> CpuBackend {
    let (c_source, transforms) = if c_from_ab {
        (CSource::Product, Transforms::Six)
    } else {
        (CSource::Synthesised, Transforms::Seven)
    };
    let threads = std::num::NonZeroUsize::new(2).expect("not zero");
    CpuBackend::new(CpuOptions {
        threads,
        queue_len_max: 4,
        c_source,
        transforms,
    })
    .expect("threads can be started")
}
