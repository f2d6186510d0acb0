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
