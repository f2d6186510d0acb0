//! Memory that is mapped here and page-locked by the driver.

use std::ffi::c_void;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::{CudaContext, sys};

use super::driver::reason;
use super::times::{BackingTimes, Spans};
use super::{PAGE_BYTES, whole_pages};
use crate::backing::Backing;
use crate::error::{BackingError, CudaError};
use crate::mapping::{Mapping, Pages};
use crate::numa::NumaNodes;
use crate::page_lock::{LOCK_BYTES_MAX, PageLock, Trouble, is_chunk, lock_chunks, unlock_chunks};

/// How memory is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterOptions {
    /// Bytes of one registration: whole pages, less than 64 GiB. A larger
    /// buffer is registered in chunks of so many bytes. One copy must stay within a
    /// chunk: the driver refuses a copy that crosses two registrations as an invalid
    /// argument (seen on an H200 with driver 580).
    pub chunk_bytes: usize,
    /// Threads that touch the memory first.
    pub threads: NonZero<usize>,
    /// The pages that it is asked on.
    pub pages: Pages,
}

impl RegisterOptions {
    /// Huge pages, and chunks of 32 GiB, so that a column is one at every size in use.
    pub fn with_threads(threads: NonZero<usize>) -> Self {
        Self {
            chunk_bytes: 32 << 30,
            threads,
            pages: Pages::Huge,
        }
    }

    fn check(&self) -> Result<(), CudaError> {
        if !is_chunk(self.chunk_bytes) {
            return Err(CudaError::ChunkBytes {
                chunk_bytes: self.chunk_bytes,
                bytes_max: LOCK_BYTES_MAX,
            });
        }
        Ok(())
    }
}

/// Anonymous memory, on huge pages where they are offered and wanted, touched in parallel,
/// then page-locked for every device.
///
/// What the driver refuses to lock is given back whole, with an error. The
/// driver keeps no error of a refused call, so the next one starts clean. An
/// error of a free is returned by the next allocation.
#[derive(Debug)]
pub struct RegisteredBacking {
    lock: Box<dyn PageLock>,
    options: RegisterOptions,
    nodes: NumaNodes,
    /// Whether it was told that the kernel refuses the nodes.
    is_refusal_told: AtomicBool,
    spans: Spans,
    trouble: Trouble,
}

impl RegisteredBacking {
    /// In a context, such as [`open`](super::open) gives.
    ///
    /// # Errors
    /// [`CudaError::ChunkBytes`].
    pub fn new(context: Arc<CudaContext>, options: RegisterOptions) -> Result<Self, CudaError> {
        Self::with_lock(Box::new(DriverLock::new(context)), options)
    }

    pub(super) fn with_lock(
        lock: Box<dyn PageLock>,
        options: RegisterOptions,
    ) -> Result<Self, CudaError> {
        options.check()?;
        Ok(Self {
            lock,
            options,
            nodes: NumaNodes::none(),
            is_refusal_told: AtomicBool::new(false),
            spans: Spans::default(),
            trouble: Trouble::default(),
        })
    }

    /// Asks the kernel to put new memory on these nodes. Where it refuses that, which is
    /// told once in the log, memory lies where the kernel puts it.
    pub fn on_nodes(self, nodes: NumaNodes) -> Self {
        Self { nodes, ..self }
    }

    /// Before the memory is touched: pages that are there already stay where they are.
    fn place(&self, mapping: &mut Mapping) {
        let Err(error) = mapping.place(&self.nodes) else {
            return;
        };
        if !self.is_refusal_told.swap(true, Ordering::Relaxed) {
            let nodes = &self.nodes;
            tracing::warn!(%nodes, %error, "the kernel refuses page-locked memory on these NUMA nodes: it lies anywhere");
        }
    }

    /// Time spent so far.
    pub fn times(&self) -> BackingTimes {
        self.spans.totals()
    }

    fn refuse(&self, bytes: usize, reason: String) -> BackingError {
        BackingError {
            backing: self.name(),
            bytes,
            reason,
        }
    }
}

// SAFETY: an anonymous mapping has the size asked, page alignment and zeros, is
// used by nobody else and may be used from any thread.
unsafe impl Backing for RegisteredBacking {
    fn name(&self) -> &'static str {
        "registered"
    }

    fn is_page_locked(&self) -> bool {
        true
    }

    fn chunk_bytes(&self) -> Option<NonZero<usize>> {
        NonZero::new(self.options.chunk_bytes)
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        whole_pages(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError> {
        self.trouble.report(self.name(), bytes)?;
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(self.refuse(bytes, "not a number of whole pages".to_owned()));
        }
        let mapping = self
            .spans
            .allocate
            .time(|| Mapping::new(bytes, self.options.pages));
        let mut mapping = mapping.map_err(|error| self.refuse(bytes, error.to_string()))?;
        self.place(&mut mapping);
        self.spans
            .touch
            .time(|| mapping.touch(self.options.threads));
        let (lock, chunk_bytes) = (&*self.lock, self.options.chunk_bytes);
        let registered = self.spans.register.time(|| {
            // SAFETY: the mapping has so many bytes, whole pages that are not locked
            // yet; `free`, which unmaps them, unlocks them first.
            unsafe { lock_chunks(lock, mapping.start(), bytes, chunk_bytes, &self.trouble) }
        });
        registered.map_err(|reason| self.refuse(bytes, reason))?;
        Ok(mapping.into_start())
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        self.spans.free.time(|| {
            let (lock, chunk_bytes) = (&*self.lock, self.options.chunk_bytes);
            // SAFETY: the caller promises that `allocate` gave this memory,
            // which locked every chunk of it, and that nobody uses it any more.
            unsafe { unlock_chunks(lock, start, bytes, chunk_bytes, &self.trouble) };
            // SAFETY: the same promise; `allocate` consumed the mapping.
            drop(unsafe { Mapping::from_start(start, bytes) });
        });
    }
}

/// The driver's own locking, for every device.
#[derive(Debug)]
pub struct DriverLock {
    context: Arc<CudaContext>,
}

impl DriverLock {
    /// In a context, such as [`open`](super::open) gives.
    pub fn new(context: Arc<CudaContext>) -> Self {
        Self { context }
    }
}

impl PageLock for DriverLock {
    unsafe fn lock(&self, start: NonNull<u8>, bytes: usize) -> Result<(), String> {
        self.context.bind_to_thread().map_err(reason)?;
        let start = start.as_ptr().cast::<c_void>();
        // SAFETY: the caller promises mapped, unlocked pages; the context is
        // current on this thread.
        let answer =
            unsafe { sys::cuMemHostRegister_v2(start, bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) };
        answer.result().map_err(reason)
    }

    unsafe fn unlock(&self, start: NonNull<u8>) -> Result<(), String> {
        self.context.bind_to_thread().map_err(reason)?;
        // SAFETY: the caller promises that a registration starts here and that
        // no device uses it.
        let answer = unsafe { sys::cuMemHostUnregister(start.as_ptr().cast::<c_void>()) };
        answer.result().map_err(reason)
    }
}
