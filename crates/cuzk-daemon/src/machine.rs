//! What the machine says of itself.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use cuzk_budget::{LimitRule, MemoryFiles};
use cuzk_core::Config;

use crate::exit::{Exit, Failure};

/// Cores that this process may use.
pub(crate) fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Bytes that the configuration lets the engine count.
pub(crate) fn memory_limit(config: &Config) -> Result<u64, Failure> {
    if let LimitRule::Bytes(bytes) = config.memory_limit {
        return Ok(bytes);
    }
    MemoryFiles::of_this_machine()
        .and_then(|files| files.reading())
        .and_then(|reading| config.memory_limit.limit_bytes(&reading))
        .map_err(|error| Failure::new(Exit::Memory, format!("memory.limit: {error}")))
}

/// The most memory this process ever had, in bytes, as the kernel counts it; `None`
/// where it does not say.
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The user's cache directory for this program, if there is a place for one.
pub(crate) fn cache_directory() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("cuzk"))
}
