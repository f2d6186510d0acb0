//! A pool of large buffers, page-locked where the backing is, that counts every
//! byte once.
//!
//! [`PinnedPool`] hands out [`PinnedBacking`]s: owned buffers that carry their
//! own [reservation](cuzk_budget::Reservation) for life, in use or idle. One
//! [`AcquireRequest`] asks for buffers and further counted bytes together: idle
//! buffers that fit come first, with the bytes they carry; only the remainder is
//! reserved; all is granted or nothing. Idle buffers are freed, largest first,
//! when a request of the budget needs their bytes, but never those that this
//! request could use itself.
//!
//! What it does not do: it does not fall back to other memory, and it hands out
//! no `Vec`, which would give foreign memory to the global allocator. It knows
//! no device: a [`Fence`] says when a device has read a buffer. Page-locked
//! memory comes from the backings of the module `cuda`, behind the feature of
//! that name.
//!
//! Ordinary buffers reach a device at full speed through a [`StagingRing`], or when
//! they are page-locked for the time of a use
//! ([`lock_pages`](PinnedBacking::lock_pages)), which costs more than it saves.
//!
//! Invariants:
//! - at rest the ledger holds exactly the allocated bytes and the reservations
//!   handed out beside them; while memory is allocated or freed it holds no less;
//! - a request that fits when each byte is counted once is not refused, unless
//!   others wait ahead of it;
//! - nothing touches a buffer's memory before its fence has passed.
//!
//! ```
//! use cuzk_budget::{Budget, Consumer, Priority, Wait};
//! use cuzk_pinned::{AcquireRequest, PinnedPool};
//!
//! let budget = Budget::new(1 << 20);
//! let pool = PinnedPool::heap(budget.clone());
//! let request = AcquireRequest {
//!     buffers: &[4096, 4096, 8192],
//!     bytes: 1000,
//!     consumer: Consumer("columns"),
//!     wait: Wait::with_priority(Priority::NORMAL),
//! };
//! let mut part = pool.acquire(&request)?;
//! part.buffers[0].as_bytes_mut().fill(7);
//! assert_eq!(budget.usage().used_bytes, 2 * 4096 + 8192 + 1000);
//!
//! drop(part);
//! assert_eq!(pool.stats().idle_bytes, 2 * 4096 + 8192);
//! pool.acquire(&request)?;
//! assert_eq!(pool.stats().reuses, 3);
//! # Ok::<(), cuzk_pinned::AcquireError>(())
//! ```

mod backing;
mod block;
mod buffer;
mod buffers;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod error;
mod fence;
mod idle;
mod mapping;
mod numa;
mod page_lock;
mod pool;
mod request;
mod selection;
mod staging;
mod stats;
mod sync;
mod trim;

pub use backing::{ALIGNMENT, Backing, FaultyBacking, HeapBacking, PretendBacking};
pub use buffer::PinnedBacking;
pub use buffers::{Buffers, IntoIter};
pub use device::{PageLockedMemory, page_locked_memory};
#[cfg(feature = "cuda")]
pub use error::CudaError;
pub use error::{AcquireError, BackingError};
pub use fence::Fence;
pub use mapping::{MappedBacking, Pages};
pub use numa::NumaNodes;
pub use page_lock::{LOCK_BYTES_MAX, PageLock, PageLocker, PretendLock};
pub use pool::{PinnedPool, PoolOptions};
pub use request::{AcquireRequest, Acquired};
pub use staging::{StagingOptions, StagingRing};
pub use stats::PoolStats;
pub use trim::trim_allocator;

#[cfg(all(test, feature = "loom"))]
mod models;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
