//! One piece of memory with the reservation that counts it.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuzk_budget::{Consumer, Reservation};

use crate::backing::Backing;
use crate::error::BackingError;
use crate::page_lock::{LockedPages, PageLocker};
use crate::pool::Shared;

/// A backing and what was taken from it. It outlives the pool for as long as a
/// buffer does.
#[derive(Debug)]
pub(crate) struct Source {
    backing: Box<dyn Backing>,
    allocations: AtomicU64,
    frees: AtomicU64,
    held_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl Source {
    pub(crate) fn new(backing: impl Backing + 'static) -> Self {
        Self {
            backing: Box::new(backing),
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn backing(&self) -> &dyn Backing {
        &*self.backing
    }

    pub(crate) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    pub(crate) fn frees(&self) -> u64 {
        self.frees.load(Ordering::Relaxed)
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }
}

/// Memory of one buffer. Dropping it frees the memory first and gives the
/// reservation back after, so the ledger is never below what is allocated.
///
/// Its fields are in one place for life, so that handing it out and back moves
/// a pointer.
pub(crate) struct Block(Box<Fields>);

struct Fields {
    source: Arc<Source>,
    start: NonNull<u8>,
    capacity: usize,
    /// Bytes that the last user asked.
    len: usize,
    /// The pool that it goes back to, while it is in use.
    pool: Option<Arc<Shared>>,
    /// The pages, while the block is locked by itself.
    locked: Option<LockedPages>,
    /// Absent where there are no bytes to count.
    reservation: Option<Reservation>,
}

// SAFETY: a block is the only owner of its memory, which `Backing` promises to
// be usable from any thread.
unsafe impl Send for Fields {}
// SAFETY: through a shared block the memory can only be read.
unsafe impl Sync for Fields {}

impl Block {
    /// Allocates as many bytes as `reservation` counts, which is not zero.
    pub(crate) fn allocate(
        source: &Arc<Source>,
        capacity: usize,
        reservation: Reservation,
    ) -> Result<Self, BackingError> {
        debug_assert_eq!(capacity as u64, reservation.bytes());
        let start = source.backing.allocate(capacity)?;
        let added = capacity as u64;
        source.allocations.fetch_add(1, Ordering::Relaxed);
        let held_bytes = source.held_bytes.fetch_add(added, Ordering::Relaxed) + added;
        source.peak_bytes.fetch_max(held_bytes, Ordering::Relaxed);
        Ok(Self(Box::new(Fields {
            source: Arc::clone(source),
            start,
            capacity,
            len: 0,
            pool: None,
            locked: None,
            reservation: Some(reservation),
        })))
    }

    /// A block of no bytes: an aligned address and nothing else.
    pub(crate) fn of_nothing(source: &Arc<Source>) -> Self {
        Self(Box::new(Fields {
            source: Arc::clone(source),
            start: NonNull::<Page>::dangling().cast(),
            capacity: 0,
            len: 0,
            pool: None,
            locked: None,
            reservation: None,
        }))
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// Puts it in the hands of a user of `len` bytes.
    #[inline]
    pub(crate) fn lend(&mut self, len: usize, pool: Arc<Shared>) {
        debug_assert!(len <= self.0.capacity);
        self.0.len = len;
        self.0.pool = Some(pool);
    }

    /// Takes it out of its user's hands.
    #[inline]
    pub(crate) fn end_loan(&mut self) -> Option<Arc<Shared>> {
        if self.0.locked.is_some() {
            self.0.locked = None;
        }
        self.0.pool.take()
    }

    pub(crate) fn locked(&self) -> Option<&LockedPages> {
        self.0.locked.as_ref()
    }

    /// Locks all of it, which is not empty, and is not locked in any other way.
    pub(crate) fn lock(&mut self, locker: &Arc<PageLocker>) -> Result<(), BackingError> {
        let Fields {
            start, capacity, ..
        } = *self.0;
        // SAFETY: the block owns these bytes from a page's start, so no other block
        // has a page of them; they are not locked, as the caller saw, and are freed
        // only after this lock has ended, with the fields below.
        let locked = unsafe { LockedPages::new(locker, start, capacity) }?;
        self.0.locked = Some(locked);
        Ok(())
    }

    pub(crate) fn unlock(&mut self) {
        self.0.locked = None;
    }

    pub(crate) fn source(&self) -> &Source {
        &self.0.source
    }

    /// Books the bytes on `consumer`.
    #[inline]
    pub(crate) fn reassign(&mut self, consumer: Consumer) {
        if let Some(reservation) = &mut self.0.reservation {
            reservation.reassign(consumer);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the block owns `capacity` bytes from `start` (none, at an
        // aligned address, in an empty one), which the backing zeroed and which
        // are thus initialised; the borrow keeps the block alive and unwritten.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.capacity) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the borrow the only one.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.capacity) }
    }
}

/// Gives the dangling address of an empty block the alignment of all others.
#[repr(align(4096))]
struct Page;

impl Drop for Fields {
    fn drop(&mut self) {
        self.locked = None;
        if self.capacity > 0 {
            // SAFETY: `start` came from this backing with `capacity` bytes, the
            // block is its only owner, and a drop happens once.
            unsafe { self.source.backing.free(self.start, self.capacity) };
            self.source.frees.fetch_add(1, Ordering::Relaxed);
            let bytes = self.capacity as u64;
            self.source.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Block {
    /// Never the contents: they may be witness data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
