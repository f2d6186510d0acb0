//! Why a proof was not made.

use std::path::PathBuf;
use std::time::Duration;

use cuzk_budget::{BudgetError, PlanError};
use cuzk_gpu::{BackendError, KeyError};
use cuzk_pinned::AcquireError;
use cuzk_synth::{FailedConstraint, SynthError};

use crate::config::Placement;
use crate::{CircuitId, WorkloadError};

/// Why a job gave no proof. Nothing here holds witness data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProveError {
    /// The request itself is wrong.
    #[error(transparent)]
    Request(#[from] WorkloadError),
    /// A job of more parts than are taken.
    #[error("parts: {asked}, at most {limit} are taken")]
    TooManyParts {
        /// Parts of the job.
        asked: usize,
        /// The limit, [`PARTS_MAX`](crate::PARTS_MAX).
        limit: usize,
    },
    /// The witness does not satisfy the circuit.
    #[error("part {part}: the witness does not satisfy the circuit: {failed} does not hold")]
    Unsatisfied {
        /// The part.
        part: usize,
        /// The first constraint that does not hold.
        failed: FailedConstraint,
    },
    /// The circuit refused its witness.
    #[error("part {part}: {source}")]
    Synthesis {
        /// The part.
        part: usize,
        /// What the circuit said.
        source: SynthError,
    },
    /// There is no key for the circuit.
    #[error(
        "no key for {circuit}: {} is missing; fetch the published parameters into that directory, \
         or make a test key with `cuzk params generate`",
        path.display()
    )]
    MissingKey {
        /// The circuit.
        circuit: CircuitId,
        /// Where the key should be.
        path: PathBuf,
    },
    /// The key was generated from a known secret and nobody allowed that.
    #[error("{} is an insecure test key (seed {seed}); allow it with --allow-test-params", path.display())]
    TestKey {
        /// The key.
        path: PathBuf,
        /// The seed that its sidecar tells.
        seed: u64,
    },
    /// The key has a sidecar that cannot be read, so it is not a real one.
    #[error("{}: {reason}", path.display())]
    Sidecar {
        /// The sidecar.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is not enough memory.
    #[error("not enough memory for {what}: {source}")]
    Memory {
        /// What the memory was for.
        what: &'static str,
        /// What was asked and what there is.
        source: BudgetError,
    },
    /// Columns cannot be placed as the configuration asks.
    #[error("tuning.placement = \"{placement}\": no page-locked memory: {reason}")]
    Placement {
        /// The placement asked for.
        placement: Placement,
        /// Why there is no page-locked memory.
        reason: String,
    },
    /// What is to be allocated at the start is more than there may be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What is to be allocated at the start was refused.
    #[error("allocating columns at the start: {0}")]
    Warm(AcquireError),
    /// Page-locked memory for a part was refused, and ordinary memory is not to stand
    /// in for it.
    #[error("part {part}: no page-locked memory for its columns: {source}")]
    PageLocked {
        /// The part.
        part: usize,
        /// What the pool or the driver said.
        source: AcquireError,
    },
    /// Memory was counted but could not be had.
    #[error("part {part}: {source}")]
    Allocation {
        /// The part.
        part: usize,
        /// What the pool said.
        source: AcquireError,
    },
    /// The backend failed.
    #[error("part {part}: {source}")]
    Backend {
        /// The part.
        part: usize,
        /// What the backend said.
        source: BackendError,
    },
    /// The backend has too little memory of its own for any proof of the circuit.
    #[error("the circuit is too large: {source}")]
    TooLarge {
        /// What the backend asks, and what it has.
        source: BackendError,
    },
    /// A backend could not bring a key that was to be preloaded.
    #[error("preloading the key: {source}")]
    Preload {
        /// What the backend said.
        source: BackendError,
    },
    /// No backend takes parts any more.
    #[error("nothing proves any more: {reasons}")]
    OutOfService {
        /// Each backend, with why it is out of service.
        reasons: String,
    },
    /// Two parts of one circuit have different densities.
    #[error("part {part}: its densities are not those of circuit {circuit}")]
    OtherShape {
        /// The part.
        part: usize,
        /// The circuit.
        circuit: CircuitId,
    },
    /// A proof did not verify although its witness satisfies the circuit. A key of
    /// another circuit whose sections are as long looks the same.
    #[error(
        "part {part}: the proof does not verify, and the witness is satisfied: the fault is ours or the machine's, \
         or the key belongs to another circuit of the same size"
    )]
    InvalidProof {
        /// The part.
        part: usize,
    },
    /// The parts verify and the whole does not: key and request do not belong
    /// together.
    #[error(
        "the parts verify one by one, the proof as a whole does not: the public inputs of the request are others"
    )]
    InvalidWhole,
    /// A stage took longer than its limit, and nobody waits for it any more.
    #[error(
        "{}{stage} has taken longer than its limit of {} s and was given up",
        part.map(|part| format!("part {part}: ")).unwrap_or_default(),
        limit.as_secs_f64()
    )]
    Stalled {
        /// The stage.
        stage: &'static str,
        /// The part, unless it is a stage of the job as a whole.
        part: Option<usize>,
        /// The limit.
        limit: Duration,
    },
    /// A stage panicked.
    #[error("{stage} panicked: {message}")]
    Panic {
        /// The stage.
        stage: &'static str,
        /// What it said.
        message: String,
    },
    /// A thread could not be started.
    #[error("the thread for {stage} could not be started")]
    Thread {
        /// The stage.
        stage: &'static str,
    },
    /// The caller cancelled the job.
    #[error("cancelled")]
    Cancelled,
    /// As many jobs wait or run as may.
    #[error("{limit} jobs wait or run, which is the limit")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

/// A failed stage: why, and whether trying again can help.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: ProveError,
    pub(crate) retry: bool,
}

impl Failure {
    /// Trying again would end the same way.
    pub(crate) fn fatal(error: impl Into<ProveError>) -> Self {
        Self {
            error: error.into(),
            retry: false,
        }
    }

    /// The request is not to blame: trying again may help.
    pub(crate) fn ours(error: ProveError) -> Self {
        Self { error, retry: true }
    }
}
