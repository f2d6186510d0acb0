//! Memory that is mapped here and page-locked by the driver.

use std::ffi::c_void;
use std::fmt;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::{CudaContext, sys};

use super::driver::reason;
use super::mapping::Mapping;
use super::times::{BackingTimes, Spans};
use super::{PAGE_BYTES, Trouble, whole_pages};
use crate::backing::Backing;
use crate::error::{BackingError, CudaError};

/// Most bytes of one registration. Drivers from r580 on refuse 512 GiB, some
/// hosts less.
const CHUNK_BYTES_MAX: usize = 64 << 30;

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
}

impl RegisterOptions {
    /// Chunks of 32 GiB, so that a column is one at every size in use.
    pub fn with_threads(threads: NonZero<usize>) -> Self {
        Self {
            chunk_bytes: 32 << 30,
            threads,
        }
    }

    fn check(&self) -> Result<(), CudaError> {
        let is_whole_pages = self.chunk_bytes.is_multiple_of(PAGE_BYTES);
        if self.chunk_bytes == 0 || self.chunk_bytes >= CHUNK_BYTES_MAX || !is_whole_pages {
            return Err(CudaError::ChunkBytes {
                chunk_bytes: self.chunk_bytes,
                bytes_max: CHUNK_BYTES_MAX,
            });
        }
        Ok(())
    }
}

/// Anonymous memory on huge pages where they are offered, touched in parallel,
/// then page-locked for every device.
///
/// What the driver refuses to lock is given back whole, with an error. The
/// driver keeps no error of a refused call, so the next one starts clean. An
/// error of a free is returned by the next allocation.
#[derive(Debug)]
pub struct RegisteredBacking {
    register: Box<dyn Register>,
    options: RegisterOptions,
    spans: Spans,
    trouble: Trouble,
}

impl RegisteredBacking {
    /// In a context, such as [`open`](super::open) gives.
    ///
    /// # Errors
    /// [`CudaError::ChunkBytes`].
    pub fn new(context: Arc<CudaContext>, options: RegisterOptions) -> Result<Self, CudaError> {
        Self::with_register(Box::new(DriverRegister { context }), options)
    }

    pub(super) fn with_register(
        register: Box<dyn Register>,
        options: RegisterOptions,
    ) -> Result<Self, CudaError> {
        options.check()?;
        Ok(Self {
            register,
            options,
            spans: Spans::default(),
            trouble: Trouble::default(),
        })
    }

    /// Time spent so far.
    pub fn times(&self) -> BackingTimes {
        self.spans.totals()
    }

    /// Offsets and bytes of the chunks of `bytes`.
    fn chunks(&self, bytes: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
        let chunk_bytes = self.options.chunk_bytes;
        (0..bytes)
            .step_by(chunk_bytes)
            .map(move |offset| (offset, chunk_bytes.min(bytes - offset)))
    }

    /// Locks every chunk, or none.
    fn register(&self, mapping: &Mapping, bytes: usize) -> Result<(), String> {
        for (index, (offset, chunk_bytes)) in self.chunks(bytes).enumerate() {
            // SAFETY: the chunk lies within the mapping, whose length is
            // `bytes`, and consists of whole pages that are not locked yet.
            let registered = unsafe {
                self.register
                    .register(mapping.start().add(offset), chunk_bytes)
            };
            if let Err(reason) = registered {
                // SAFETY: the chunks before this one were locked just now, and
                // no device knows of them.
                unsafe { self.unregister(mapping.start(), bytes, index) };
                return Err(format!(
                    "chunk {index}, {chunk_bytes} bytes from byte {offset}: {reason}"
                ));
            }
        }
        Ok(())
    }

    /// Unlocks the first `count` chunks.
    ///
    /// # Safety
    /// They are locked, and no device touches them any more.
    unsafe fn unregister(&self, start: NonNull<u8>, bytes: usize, count: usize) {
        for (offset, _) in self.chunks(bytes).take(count) {
            // SAFETY: the caller promises that a chunk begins here and is
            // locked.
            let unregistered = unsafe { self.register.unregister(start.add(offset)) };
            if let Err(reason) = unregistered {
                self.trouble.record(reason);
            }
        }
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

    fn rounded(&self, bytes: usize) -> Option<usize> {
        whole_pages(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError> {
        self.trouble.report(self.name(), bytes)?;
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(self.refuse(bytes, "not a number of whole pages".to_owned()));
        }
        let mapping = self.spans.allocate.time(|| Mapping::new(bytes));
        let mut mapping = mapping.map_err(|error| self.refuse(bytes, error.to_string()))?;
        self.spans
            .touch
            .time(|| mapping.touch(self.options.threads));
        let registered = self.spans.register.time(|| self.register(&mapping, bytes));
        registered.map_err(|reason| self.refuse(bytes, reason))?;
        Ok(mapping.into_start())
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        self.spans.free.time(|| {
            // SAFETY: the caller promises that `allocate` gave this memory,
            // which locked every chunk of it, and that nobody uses it any more.
            unsafe { self.unregister(start, bytes, usize::MAX) };
            // SAFETY: the same promise; `allocate` consumed the mapping.
            drop(unsafe { Mapping::from_start(start, bytes) });
        });
    }
}

/// Locks and unlocks memory; a trait, so that refusals are tested without a
/// device.
pub(super) trait Register: fmt::Debug + Send + Sync {
    /// Locks whole pages.
    ///
    /// # Safety
    /// They are mapped, not locked, and stay mapped until they are unlocked.
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<(), String>;

    /// Unlocks what one call locked.
    ///
    /// # Safety
    /// `start` is where that call's memory starts; no device touches it any
    /// more.
    unsafe fn unregister(&self, start: NonNull<u8>) -> Result<(), String>;
}

/// The driver.
#[derive(Debug)]
pub(super) struct DriverRegister {
    pub(super) context: Arc<CudaContext>,
}

impl Register for DriverRegister {
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<(), String> {
        self.context.bind_to_thread().map_err(reason)?;
        let start = start.as_ptr().cast::<c_void>();
        // SAFETY: the caller promises mapped, unlocked pages; the context is
        // current on this thread.
        let answer =
            unsafe { sys::cuMemHostRegister_v2(start, bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) };
        answer.result().map_err(reason)
    }

    unsafe fn unregister(&self, start: NonNull<u8>) -> Result<(), String> {
        self.context.bind_to_thread().map_err(reason)?;
        // SAFETY: the caller promises that a registration starts here and that
        // no device uses it.
        let answer = unsafe { sys::cuMemHostUnregister(start.as_ptr().cast::<c_void>()) };
        answer.result().map_err(reason)
    }
}
