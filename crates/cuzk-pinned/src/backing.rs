//! Where the memory of a pool comes from.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::BackingError;

/// Alignment of every buffer, in bytes: a page, so that it can be page-locked.
pub const ALIGNMENT: usize = 4096;

/// A source of large pieces of memory.
///
/// A backing over page-locked memory returns true from
/// [`is_page_locked`](Self::is_page_locked), rounds sizes to whole pages in
/// [`rounded`](Self::rounded), and may keep what it needs for freeing in a
/// table of its own by start address.
///
/// # Safety
/// [`allocate`](Self::allocate) returns memory of `bytes` bytes, aligned to
/// [`ALIGNMENT`], all zero, readable and writable from any thread, and used by
/// nobody else until it is passed to [`free`](Self::free).
pub unsafe trait Backing: fmt::Debug + Send + Sync {
    /// Name for errors and tables.
    fn name(&self) -> &'static str;

    /// Whether its memory is page-locked, so that a device copies it at full
    /// speed and without the driver's bounce buffer.
    fn is_page_locked(&self) -> bool;

    /// Bytes that were page-locked at once, counted from the start of an allocation,
    /// where a larger one is locked in chunks of so many: no copy to a device may
    /// cross from one chunk to the next. `None` if there is no such limit.
    fn chunk_bytes(&self) -> Option<NonZero<usize>> {
        None
    }

    /// Bytes that an allocation of `bytes` really takes; at least `bytes`.
    /// `None` if no allocation can be so large.
    fn rounded(&self, bytes: usize) -> Option<usize>;

    /// Allocates `bytes`, which is more than zero and a result of
    /// [`rounded`](Self::rounded).
    ///
    /// # Errors
    /// If there is no such memory.
    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError>;

    /// Frees memory.
    ///
    /// # Safety
    /// `start` came from [`allocate`](Self::allocate) of this backing with the
    /// same `bytes`, was not freed since, and nobody uses it any more.
    unsafe fn free(&self, start: NonNull<u8>, bytes: usize);
}

// SAFETY: every call goes to the backing inside, which makes the promise.
unsafe impl<B: Backing + ?Sized> Backing for Arc<B> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn is_page_locked(&self) -> bool {
        (**self).is_page_locked()
    }

    fn chunk_bytes(&self) -> Option<NonZero<usize>> {
        (**self).chunk_bytes()
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        (**self).rounded(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError> {
        (**self).allocate(bytes)
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise is passed on as it is.
        unsafe { (**self).free(start, bytes) }
    }
}

/// Ordinary memory of the global allocator, page-aligned and zeroed. Takes
/// exactly the bytes asked.
#[derive(Clone, Copy, Debug)]
pub struct HeapBacking;

// SAFETY: the global allocator's zeroed memory has the size and alignment of
// the layout, belongs to no one else, and may be used from any thread.
unsafe impl Backing for HeapBacking {
    fn name(&self) -> &'static str {
        "heap"
    }

    fn is_page_locked(&self) -> bool {
        false
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        Layout::from_size_align(bytes, ALIGNMENT)
            .is_ok()
            .then_some(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError> {
        let refuse = |reason: &str| BackingError {
            backing: self.name(),
            bytes,
            reason: reason.to_owned(),
        };
        if bytes == 0 {
            return Err(refuse("nothing to allocate"));
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT)
            .map_err(|_| refuse("larger than the address space"))?;
        // SAFETY: the layout's size is not zero, checked above.
        let start = unsafe { alloc_zeroed(layout) };
        NonNull::new(start).ok_or_else(|| refuse("out of memory"))
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        let layout = Layout::from_size_align(bytes, ALIGNMENT)
            .expect("`allocate` accepted the same size and alignment");
        // SAFETY: the caller promises that `start` came from `allocate` with the
        // same bytes, which used the same layout, and that it is free to go.
        unsafe { dealloc(start.as_ptr(), layout) }
    }
}

/// A backing for tests: another one, one of whose allocations fails.
#[derive(Debug)]
pub struct FaultyBacking<B> {
    inner: B,
    fails_at: u64,
    allocations: AtomicU64,
}

impl<B: Backing> FaultyBacking<B> {
    /// Passes everything to `inner`, but the `fails_at`-th allocation, counted
    /// from one, is refused.
    pub fn new(inner: B, fails_at: u64) -> Self {
        Self {
            inner,
            fails_at,
            allocations: AtomicU64::new(0),
        }
    }

    /// Allocations asked so far.
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }
}

// SAFETY: memory comes from `inner`, which makes the promise.
unsafe impl<B: Backing> Backing for FaultyBacking<B> {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn is_page_locked(&self) -> bool {
        self.inner.is_page_locked()
    }

    fn chunk_bytes(&self) -> Option<NonZero<usize>> {
        self.inner.chunk_bytes()
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        self.inner.rounded(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError> {
        let number = self.allocations.fetch_add(1, Ordering::Relaxed) + 1;
        if number == self.fails_at {
            return Err(BackingError {
                backing: self.name(),
                bytes,
                reason: format!("allocation {number} was to fail"),
            });
        }
        self.inner.allocate(bytes)
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise is passed on as it is, and every piece
        // handed out came from `inner`.
        unsafe { self.inner.free(start, bytes) }
    }
}

/// A backing for tests: heap memory that says it is page-locked, in whole pages.
#[derive(Clone, Copy, Debug)]
pub struct PretendBacking {
    /// As [`Backing::chunk_bytes`] has it.
    pub chunk_bytes: Option<NonZero<usize>>,
}

// SAFETY: memory comes from `HeapBacking`, which makes the promise.
unsafe impl Backing for PretendBacking {
    fn name(&self) -> &'static str {
        "pretend"
    }

    fn is_page_locked(&self) -> bool {
        true
    }

    fn chunk_bytes(&self) -> Option<NonZero<usize>> {
        self.chunk_bytes
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        HeapBacking.rounded(bytes.checked_next_multiple_of(ALIGNMENT)?)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError> {
        HeapBacking.allocate(bytes)
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise, passed on.
        unsafe { HeapBacking.free(start, bytes) }
    }
}
