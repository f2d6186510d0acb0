//! A buffer in use.

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use cuzk_budget::Consumer;

use crate::block::Block;
use crate::error::BackingError;
use crate::fence::Fence;
use crate::page_lock::{PageLocker, chunk_ranges};
use crate::pool::Shared;

/// One buffer of a pool with the reservation that counts it.
///
/// It owns its memory; nothing else frees it, and it is never a `Vec`, which
/// would hand foreign memory to the global allocator. Dropping it hands it back
/// to its pool, or frees it if the pool is gone. Memory new to the pool is zero;
/// a reused buffer holds what its last user left in it.
pub struct PinnedBacking {
    /// Present until the buffer is handed back. It knows its pool, so that this is one
    /// pointer: grants are moved several times before they are used.
    block: Option<Block>,
}

impl PinnedBacking {
    #[inline]
    pub(crate) fn new(mut block: Block, len: usize, pool: Arc<Shared>) -> Self {
        block.lend(len, pool);
        Self { block: Some(block) }
    }

    /// Bytes asked.
    pub fn len(&self) -> usize {
        self.block().len()
    }

    /// Whether no bytes were asked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, which is what the budget counts: at least
    /// [`len`](Self::len), more where a larger buffer is reused.
    pub fn capacity(&self) -> usize {
        self.block().capacity()
    }

    /// Whether the memory is page-locked, by its pool or by
    /// [`lock_pages`](Self::lock_pages).
    pub fn is_page_locked(&self) -> bool {
        let block = self.block();
        block.locked().is_some() || block.source().backing().is_page_locked()
    }

    /// Page-locks the memory until the buffer is handed back. Where it is locked
    /// already, or empty, nothing is done.
    ///
    /// Locking takes the time of touching the page tables of every page, each time:
    /// a pool over page-locked memory pays it once. What stays locked of whole pages
    /// is up to a page more than the buffer.
    ///
    /// # Errors
    /// What the lock says; the buffer is as it was then.
    pub fn lock_pages(&mut self, locker: &Arc<PageLocker>) -> Result<(), BackingError> {
        if self.capacity() == 0 || self.is_page_locked() {
            return Ok(());
        }
        self.block.as_mut().expect(HELD).lock(locker)
    }

    /// Undoes [`lock_pages`](Self::lock_pages), for a buffer that no device was told
    /// of.
    pub fn unlock_pages(&mut self) {
        self.block.as_mut().expect(HELD).unlock();
    }

    /// The ranges of [`as_bytes`](Self::as_bytes) that a device may copy, each at
    /// once: one, unless the memory was page-locked in chunks. A copy that crosses
    /// two of them is refused by the driver.
    pub fn copy_ranges(&self) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
        let of_backing = self.block().source().backing().chunk_bytes();
        let chunk_bytes = match self.block().locked() {
            Some(locked) => locked.chunk_bytes(),
            None => of_backing.map_or(usize::MAX, NonZero::get),
        };
        chunk_ranges(self.len(), chunk_bytes)
    }

    /// The first [`len`](Self::len) bytes, aligned to
    /// [`ALIGNMENT`](crate::ALIGNMENT).
    pub fn as_bytes(&self) -> &[u8] {
        &self.block().bytes()[..self.len()]
    }

    /// The first [`len`](Self::len) bytes, to be written.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        let block = self.block.as_mut().expect(HELD);
        &mut block.bytes_mut()[..len]
    }

    /// Hands the buffer back, to be touched by nobody until `fence` has passed.
    ///
    /// This returns at once. A request that can be served no other way waits
    /// for the fence; a pool that is dropped waits for it before it frees. Only a
    /// buffer of [`lock_pages`](Self::lock_pages) waits here, to be unlocked.
    pub fn release_after(mut self, fence: impl Fence + 'static) {
        if self.block().locked().is_some() {
            fence.wait();
            // The drop unlocks it and hands it back.
            return;
        }
        if let Some(mut block) = self.block.take()
            && let Some(pool) = block.end_loan()
        {
            pool.hand_back_after(block, Box::new(fence));
        }
    }

    /// Books the bytes on `consumer`.
    #[inline]
    pub(crate) fn reassign(&mut self, consumer: Consumer) {
        self.block.as_mut().expect(HELD).reassign(consumer);
    }

    /// The block, which is not handed back then.
    pub(crate) fn into_block(mut self) -> Block {
        let mut block = self.block.take().expect(HELD);
        block.end_loan();
        block
    }

    fn block(&self) -> &Block {
        self.block.as_ref().expect(HELD)
    }
}

const HELD: &str = "only a hand-back, which consumes the buffer, takes the block out";

impl Drop for PinnedBacking {
    #[inline]
    fn drop(&mut self) {
        // Unlocks it, before anybody else has the memory.
        if let Some(mut block) = self.block.take()
            && let Some(pool) = block.end_loan()
        {
            pool.hand_back(block);
        }
    }
}

impl fmt::Debug for PinnedBacking {
    /// Never the contents: they may be witness data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBacking")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
