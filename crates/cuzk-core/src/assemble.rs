//! From a configuration to a running engine.

use std::num::NonZeroUsize;
use std::sync::Arc;

use cuzk_budget::{BoxUse, Budget, LimitError, LimitRule, MemoryFiles, MemoryReading};
use cuzk_gpu::BackendError;
use cuzk_gpu::cpu::h::{CSource, Transforms};
use cuzk_gpu::cpu::{CpuBackend, CpuOptions};
use cuzk_synth::HintStore;

use crate::config::{Config, Tuning};
use crate::engine::{Engine, EngineParts};
use crate::error::ProveError;
use crate::placement::ColumnMemory;

/// Proofs that may wait in the CPU backend: the scheduler sends one at a time.
const BACKEND_QUEUE_MAX: usize = 4;

/// An engine that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The memory limit cannot be told.
    #[error("memory.limit: {0}")]
    Limit(#[from] LimitError),
    /// The backend could not be started.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The engine's own thread could not be started.
    #[error(transparent)]
    Engine(#[from] ProveError),
}

/// Bytes that a configuration lets the engine count.
///
/// # Errors
/// If the machine does not say what it has, or there is nothing left of it.
pub fn memory_limit(config: &Config) -> Result<u64, LimitError> {
    match config.memory_limit {
        LimitRule::Bytes(bytes) => Ok(bytes),
        rule => rule.limit_bytes(&MemoryFiles::of_this_machine()?.reading()?),
    }
}

/// Bytes of `limit_bytes` that a configuration lets the engine page-lock.
///
/// # Errors
/// If the configured share is more than the whole.
pub fn page_locked_limit(config: &Config, limit_bytes: u64) -> Result<u64, LimitError> {
    let whole = MemoryReading {
        total_bytes: limit_bytes,
        available_bytes: limit_bytes,
    };
    match config.page_locked_limit {
        LimitRule::Automatic => Ok(cuzk_budget::page_locked_limit(BoxUse::Shared, limit_bytes)),
        rule => rule.limit_bytes(&whole),
    }
}

/// The CPU backend with a configuration's switches.
///
/// # Errors
/// If the system refuses a thread.
pub fn cpu_backend(threads: usize, tuning: &Tuning) -> Result<CpuBackend, BackendError> {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let (c_source, transforms) = if tuning.c_from_ab {
        (CSource::Product, Transforms::Six)
    } else {
        (CSource::Synthesised, Transforms::Seven)
    };
    CpuBackend::new(CpuOptions {
        threads: NonZeroUsize::new(threads).unwrap_or_else(cores),
        queue_len_max: BACKEND_QUEUE_MAX,
        c_source,
        transforms,
    })
}

impl Engine {
    /// Starts the engine that a configuration describes, on the CPU.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn from_config(config: &Config) -> Result<Self, StartError> {
        let budget = Budget::new(memory_limit(config)?);
        let backend = Arc::new(cpu_backend(config.threads, &config.tuning)?);
        let memory =
            ColumnMemory::heap(budget).without_page_locked("proofs are made on the processor");
        let hints = hints(config);
        Ok(Engine::start(
            config,
            EngineParts {
                backend,
                memory,
                hints,
            },
        )?)
    }
}

/// The hints of earlier runs. They save memory traffic and nothing depends on them,
/// so a file that cannot be read is told and left alone.
fn hints(config: &Config) -> HintStore {
    let Some(path) = &config.hints_file else {
        return HintStore::in_memory();
    };
    HintStore::open(path).unwrap_or_else(|error| {
        tracing::warn!(%error, "running without capacity hints");
        HintStore::in_memory()
    })
}
