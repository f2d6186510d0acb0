//! Why buffers were not handed out.

use cuzk_budget::BudgetError;

/// A request for buffers that was not granted. Nothing of it is held then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The budget refused, or the wait ended.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// Memory was counted and could not be had.
    #[error("buffer {index} of the request: {source}")]
    Backing {
        /// Which of the asked buffers.
        index: usize,
        /// What the backing says.
        source: BackingError,
    },
    /// The bytes of the request do not fit in the address space or in 64 bits.
    #[error("a request of {buffer_count} buffers and {bytes} bytes overflows at buffer {index}")]
    Overflow {
        /// Number of buffers asked.
        buffer_count: usize,
        /// Counted bytes asked beside them.
        bytes: u64,
        /// The buffer at which the sum overflows.
        index: usize,
    },
}

/// Memory that a backing could not give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{backing} could not allocate {bytes} bytes: {reason}")]
pub struct BackingError {
    /// Name of the backing.
    pub backing: &'static str,
    /// Bytes asked.
    pub bytes: usize,
    /// What went wrong, in words.
    pub reason: String,
}

/// Why page-locked memory is not to be had on this machine.
#[cfg(feature = "cuda")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no driver.
    #[error(
        "no CUDA driver: the library libcuda.so.1 was not found; the NVIDIA driver installs it"
    )]
    NoDriver,
    /// The driver is too old.
    #[error(
        "the CUDA driver supports CUDA {}.{}, {}.{} or newer is needed (driver r580 for 13.0)",
        version / 1000, version % 1000 / 10, version_min / 1000, version_min % 1000 / 10
    )]
    OldDriver {
        /// What it supports: 1000 x major + 10 x minor.
        version: u32,
        /// What is needed.
        version_min: u32,
    },
    /// There is no device of this number.
    #[error("no CUDA device {ordinal}: the driver shows {count}")]
    NoDevice {
        /// Number asked.
        ordinal: usize,
        /// Devices that the driver shows.
        count: usize,
    },
    /// The driver refused a call.
    #[error("{call}: {reason}")]
    Call {
        /// Name of the driver's function.
        call: &'static str,
        /// The driver's name and description of the error.
        reason: String,
    },
    /// Bytes of one registration that are none, too many or no whole pages.
    #[error(
        "chunks of {chunk_bytes} bytes: whole pages of 4096 bytes, less than {bytes_max}, are registered at once"
    )]
    ChunkBytes {
        /// Bytes asked.
        chunk_bytes: usize,
        /// Bytes that are too many.
        bytes_max: usize,
    },
}
