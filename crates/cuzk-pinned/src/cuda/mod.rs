//! Page-locked memory, from which a device copies at full speed.
//!
//! Two backings: [`CudaBacking`] asks the driver for memory,
//! [`RegisteredBacking`] maps memory itself, on huge pages where they are
//! offered and not declined, and has the driver lock it. The driver is loaded at run time: both
//! build and start where there is none, and [`open`] says what is missing.
//!
//! Both lock memory for every device of the process, and neither asks for
//! write-combined memory, which is slow to read back.

mod allocated;
mod driver;
mod registered;
mod times;

pub use allocated::CudaBacking;
pub use driver::{DRIVER_VERSION_MIN, driver_version, open};
pub use registered::{DriverLock, RegisterOptions, RegisteredBacking};
pub use times::BackingTimes;

#[cfg(all(test, not(feature = "loom")))]
mod tests;

use std::num::NonZero;
use std::sync::Arc;

use crate::device::PageLockedMemory;
use crate::error::CudaError;
use crate::mapping::{PAGE_BYTES, Pages, whole_pages};
use crate::numa::NumaNodes;
use crate::page_lock::PageLocker;

/// One mapping a buffer, registered, and a lock for ordinary buffers.
pub(crate) fn page_locked_memory(
    ordinal: usize,
    threads: NonZero<usize>,
    pages: Pages,
    nodes: NumaNodes,
) -> Result<PageLockedMemory, CudaError> {
    let context = open(ordinal)?;
    let mut options = RegisterOptions::with_threads(threads);
    options.pages = pages;
    let chunk_bytes = options.chunk_bytes;
    let locker = PageLocker::new(DriverLock::new(Arc::clone(&context)), chunk_bytes);
    let backing = Arc::new(RegisteredBacking::new(context, options)?.on_nodes(nodes));
    Ok(PageLockedMemory { backing, locker })
}
