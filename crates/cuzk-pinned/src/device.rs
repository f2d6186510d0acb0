//! Page-locked memory for a device, in programs built with and without CUDA.

use std::num::NonZero;
use std::sync::Arc;

use crate::backing::Backing;
use crate::mapping::Pages;
use crate::numa::NumaNodes;
use crate::page_lock::PageLocker;

/// What page-locked memory is made with on a machine that has a device.
#[derive(Debug)]
pub struct PageLockedMemory {
    /// Allocates page-locked buffers.
    pub backing: Arc<dyn Backing>,
    /// Locks ordinary ones.
    pub locker: PageLocker,
}

/// Page-locked memory for the device of this number, and for all others of the
/// process. `threads` touch new memory, which is asked on `pages` and is to lie on `nodes`.
/// What the kernel refuses of them is told once in the log and changes nothing else.
///
/// # Errors
/// Why there is none, in words: no driver, no such device, a program without CUDA.
pub fn page_locked_memory(
    ordinal: usize,
    threads: NonZero<usize>,
    pages: Pages,
    nodes: NumaNodes,
) -> Result<PageLockedMemory, String> {
    #[cfg(feature = "cuda")]
    return crate::cuda::page_locked_memory(ordinal, threads, pages, nodes)
        .map_err(|error| error.to_string());
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (ordinal, threads, pages, nodes);
        Err("this program was built without CUDA".to_owned())
    }
}
