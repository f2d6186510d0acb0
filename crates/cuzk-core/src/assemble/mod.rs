//! From a configuration to a running engine.

mod devices;

use std::num::NonZeroUsize;
use std::sync::Arc;

use cuzk_budget::{BoxUse, Budget, ByteCount, LimitError, LimitRule, MemoryFiles, MemoryReading};
use cuzk_gpu::cpu::h::{CSource, Transforms};
use cuzk_gpu::cpu::{CpuBackend, CpuOptions};
use cuzk_gpu::{Backend, BackendError, Dual};
use cuzk_synth::HintStore;

use crate::config::{Config, DevicePolicy, Tuning};
use crate::engine::{Engine, EngineParts};
use crate::error::ProveError;
use crate::placement::ColumnMemory;
use devices::NoDevice;

/// Proofs that may wait in a backend. The scheduler sends as many of one priority as
/// have slots, and as many again of each higher one.
const BACKEND_QUEUE_MAX: usize = 64;

/// An engine that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The memory limit cannot be told.
    #[error("memory.limit: {0}")]
    Limit(#[from] LimitError),
    /// The backend could not be started.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A device is required, and there is none that can be used.
    #[error("device.policy is \"require-gpu\": {0}")]
    Device(String),
    /// Proofs are to be compared, and there is nothing to compare the processor with.
    #[error("tuning.twin compares a device with the processor: {0}")]
    Twin(String),
    /// The limit of the device's memory makes no sense.
    #[error("device.memory: {0}")]
    DeviceLimit(LimitError),
    /// The page-locked share of the budget has no room for the buffers that bring keys
    /// to the device.
    #[error("memory.page_locked leaves no room for the device's key buffers: {0}")]
    KeyBuffers(String),
    /// The page-locked share of the budget has no room for keys.
    #[error("device.host_keys: {0}")]
    HostKeys(String),
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

/// A limit that is more than there is: what is counted up to it may not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExcessiveLimit {
    /// Bytes that may be counted.
    pub limit_bytes: u64,
    /// Bytes of the machine, or of its tightest control group if that has less.
    pub machine_bytes: u64,
}

impl std::fmt::Display for ExcessiveLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [limit, machine] = [self.limit_bytes, self.machine_bytes].map(ByteCount);
        write!(
            f,
            "memory.limit is {limit}, and there are {machine} on this machine"
        )
    }
}

/// Whether a configured limit is more than the machine or a control group has, as far as
/// that is known.
pub fn excessive_limit(config: &Config) -> Option<ExcessiveLimit> {
    let reading = MemoryFiles::of_this_machine().ok()?.reading().ok()?;
    excess(memory_limit(config).ok()?, reading.total_bytes)
}

fn excess(limit_bytes: u64, machine_bytes: u64) -> Option<ExcessiveLimit> {
    (limit_bytes > machine_bytes).then_some(ExcessiveLimit {
        limit_bytes,
        machine_bytes,
    })
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
        rule => Ok(rule.limit_bytes(&whole)?.min(limit_bytes)),
    }
}

/// A rule's bytes of a limit; `None` if it is automatic.
pub(crate) fn share_of(rule: LimitRule, limit_bytes: u64) -> Option<u64> {
    match rule {
        LimitRule::Automatic => None,
        LimitRule::Bytes(bytes) => Some(bytes),
        LimitRule::Percent(percent) => {
            let bytes = u128::from(limit_bytes) * u128::from(percent) / 100;
            Some(u64::try_from(bytes).unwrap_or(u64::MAX))
        }
    }
}

/// The CPU backend with a configuration's switches.
///
/// # Errors
/// If the system refuses a thread.
pub fn cpu_backend(threads: usize, tuning: &Tuning) -> Result<CpuBackend, BackendError> {
    cpu_backend_for(threads, tuning, BACKEND_QUEUE_MAX)
}

fn cpu_backend_for(
    threads: usize,
    tuning: &Tuning,
    queue_len_max: usize,
) -> Result<CpuBackend, BackendError> {
    let (c_source, transforms) = quotient(tuning);
    CpuBackend::new(CpuOptions {
        threads: self::threads(threads),
        queue_len_max,
        c_source,
        transforms,
    })
}

/// As many threads as are asked for, one a core for 0.
pub(crate) fn threads(asked: usize) -> NonZeroUsize {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    NonZeroUsize::new(asked).unwrap_or_else(cores)
}

/// How the quotient polynomial is made.
fn quotient(tuning: &Tuning) -> (CSource, Transforms) {
    if tuning.c_from_ab {
        (CSource::Product, Transforms::Six)
    } else {
        (CSource::Synthesised, Transforms::Seven)
    }
}

/// Backends of one kind and the memory that their columns come from.
type Proving = (Vec<Arc<dyn Backend>>, ColumnMemory);

/// The backends that a configuration asks for: devices, or the processor.
fn proving(config: &Config, budget: &Budget) -> Result<Proving, StartError> {
    let on_cpu = |reason: &str| -> Result<Proving, StartError> {
        let backend = cpu_backend(config.threads, &config.tuning)?;
        let huge = config.tuning.huge_pages;
        let memory = ColumnMemory::on_pages(budget.clone(), huge, threads(config.threads));
        let memory = memory.without_page_locked(reason);
        Ok((vec![Arc::new(backend)], memory))
    };
    let twin = config.tuning.twin;
    match config.device_policy {
        DevicePolicy::Cpu if twin => Err(StartError::Twin("device.policy is \"cpu\"".to_owned())),
        DevicePolicy::Cpu => on_cpu("proofs are made on the processor"),
        policy => match devices::open(config, budget) {
            Ok((devices, memory)) if twin => Ok((twins(config, devices)?, memory)),
            Ok(proving) => Ok(proving),
            Err(NoDevice::Wrong(error)) => Err(error),
            // The processor alone would look like a comparison without a fault.
            Err(NoDevice::Absent(reason)) if twin => Err(StartError::Twin(reason)),
            Err(NoDevice::Absent(reason)) if policy == DevicePolicy::RequireGpu => {
                Err(StartError::Device(reason))
            }
            Err(NoDevice::Absent(reason)) => {
                if cfg!(feature = "cuda") {
                    tracing::warn!(reason, "no device: proofs are made on the processor");
                } else {
                    tracing::info!(reason, "proofs are made on the processor");
                }
                on_cpu(&reason)
            }
        },
    }
}

/// Each device with the processor beside it.
fn twins(
    config: &Config,
    devices: Vec<Arc<dyn Backend>>,
) -> Result<Vec<Arc<dyn Backend>>, StartError> {
    tracing::warn!("tuning.twin: every proof is made on a device and on the processor");
    let queue_len_max = BACKEND_QUEUE_MAX * devices.len();
    let processor = Arc::new(cpu_backend_for(
        config.threads,
        &config.tuning,
        queue_len_max,
    )?);
    let twin = |device| -> Result<Arc<dyn Backend>, StartError> {
        let processor = Arc::clone(&processor);
        Ok(Arc::new(Dual::start(device, processor, queue_len_max)?))
    };
    devices.into_iter().map(twin).collect()
}

impl Engine {
    /// Starts the engine that a configuration describes. Warns of a limit that is more than
    /// the machine has.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn from_config(config: &Config) -> Result<Self, StartError> {
        let budget = Budget::new(memory_limit(config)?);
        if let Some(excess) = excessive_limit(config) {
            tracing::warn!(
                "{excess}: the kernel may end this process before anything waits for memory"
            );
        }
        let (backends, memory) = proving(config, &budget)?;
        let hints = hints(config);
        Ok(Engine::start(
            config,
            EngineParts {
                backends,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Why an engine with these settings does not start.
    fn refused(policy: DevicePolicy) -> String {
        let mut config = Config::new("keys".into());
        config.memory_limit = LimitRule::Bytes(1 << 30);
        config.device_policy = policy;
        config.tuning.twin = true;
        let started = Engine::from_config(&config).map(|_| ());
        started.expect_err("nothing to compare with").to_string()
    }

    #[test]
    fn twins_want_a_device_to_compare_with() {
        let cpu = refused(DevicePolicy::Cpu);
        assert_eq!(
            cpu,
            "tuning.twin compares a device with the processor: device.policy is \"cpu\""
        );
        // Where there is a device, `prefer-gpu` takes it.
        if cfg!(not(feature = "cuda")) {
            let absent = refused(DevicePolicy::PreferGpu);
            let want = "tuning.twin compares a device with the processor: this program was built \
                        without CUDA (`cargo xtask cuda build";
            assert!(absent.starts_with(want), "{absent}");
        }
    }

    #[test]
    fn hints_of_a_later_program_are_left_alone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("hints.json");
        let text = "{\"version\":2,\"shapes\":[],\"more\":true}";
        std::fs::write(&path, text).expect("writable");
        let mut config = Config::new("keys".into());
        config.hints_file = Some(path.clone());
        let mut hints = hints(&config);
        assert_eq!(hints, HintStore::in_memory());
        let uncut = cuzk_synth::CutHint::Uncut("it does not".to_owned());
        assert!(hints.keep_cut("squares", Some(uncut)));
        hints.save().expect("nothing to write");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), text);
    }

    #[test]
    fn hints_that_have_no_end_are_not_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo is there").success());
        let long = directory.path().join("long");
        let file = std::fs::File::create(&long).expect("writable");
        file.set_len(1 << 40).expect("sparse");
        for (path, want) in [
            (pipe, "not a regular file"),
            ("/dev/zero".into(), "not a regular file"),
            (long, "at most 67108864 bytes are read"),
        ] {
            let error = HintStore::open(&path).expect_err("no hints").to_string();
            assert!(error.ends_with(want), "{error}");
            let mut config = Config::new("keys".into());
            config.hints_file = Some(path);
            assert_eq!(hints(&config), HintStore::in_memory());
        }
    }

    #[test]
    fn a_limit_is_excessive_from_the_first_byte_that_is_not_there() {
        assert_eq!(excess(1000, 1000), None);
        let told = excess(1001, 1000).expect("a byte too much").to_string();
        assert_eq!(
            told,
            "memory.limit is 1001 bytes, and there are 1000 bytes on this machine"
        );
    }

    #[test]
    fn the_page_locked_share_is_a_share_of_the_limit() {
        let limit = |rule| {
            let mut config = Config::new("keys".into());
            config.page_locked_limit = rule;
            page_locked_limit(&config, 1000)
        };
        assert_eq!(limit(LimitRule::Automatic), Ok(500));
        assert_eq!(limit(LimitRule::Percent(95)), Ok(950));
        assert_eq!(limit(LimitRule::Percent(0)), Ok(0));
        assert_eq!(limit(LimitRule::Bytes(300)), Ok(300));
        assert_eq!(limit(LimitRule::Bytes(3000)), Ok(1000));
        assert!(limit(LimitRule::Percent(101)).is_err());
    }
}
