//! A buffer in use.

use std::fmt;
use std::sync::Arc;

use cuzk_budget::Consumer;

use crate::block::Block;
use crate::fence::Fence;
use crate::pool::Shared;

/// One buffer of a pool with the reservation that counts it.
///
/// It owns its memory; nothing else frees it, and it is never a `Vec`, which
/// would hand foreign memory to the global allocator. Dropping it hands it back
/// to its pool, or frees it if the pool is gone. Memory new to the pool is zero;
/// a reused buffer holds what its last user left in it.
pub struct PinnedBacking {
    /// Present until the buffer is handed back.
    block: Option<Block>,
    len: usize,
    pool: Arc<Shared>,
}

impl PinnedBacking {
    #[inline]
    pub(crate) fn new(block: Block, len: usize, pool: Arc<Shared>) -> Self {
        debug_assert!(len <= block.capacity());
        Self {
            block: Some(block),
            len,
            pool,
        }
    }

    /// Bytes asked.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no bytes were asked.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory, which is what the budget counts: at least
    /// [`len`](Self::len), more where a larger buffer is reused.
    pub fn capacity(&self) -> usize {
        self.block().capacity()
    }

    /// Whether the memory is page-locked.
    pub fn is_page_locked(&self) -> bool {
        self.block().source().backing().is_page_locked()
    }

    /// The first [`len`](Self::len) bytes, aligned to
    /// [`ALIGNMENT`](crate::ALIGNMENT).
    pub fn as_bytes(&self) -> &[u8] {
        &self.block().bytes()[..self.len]
    }

    /// The first [`len`](Self::len) bytes, to be written.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        let block = self.block.as_mut().expect(HELD);
        &mut block.bytes_mut()[..len]
    }

    /// Hands the buffer back, to be touched by nobody until `fence` has passed.
    ///
    /// This returns at once. A request that can be served no other way waits
    /// for the fence; a pool that is dropped waits for it before it frees.
    pub fn release_after(mut self, fence: impl Fence + 'static) {
        if let Some(block) = self.block.take() {
            self.pool.hand_back_after(block, Box::new(fence));
        }
    }

    /// Books the bytes on `consumer`.
    #[inline]
    pub(crate) fn reassign(&mut self, consumer: Consumer) {
        self.block.as_mut().expect(HELD).reassign(consumer);
    }

    /// The block, which is not handed back then.
    pub(crate) fn into_block(mut self) -> Block {
        self.block.take().expect(HELD)
    }

    fn block(&self) -> &Block {
        self.block.as_ref().expect(HELD)
    }
}

const HELD: &str = "only a hand-back, which consumes the buffer, takes the block out";

impl Drop for PinnedBacking {
    #[inline]
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.hand_back(block);
        }
    }
}

impl fmt::Debug for PinnedBacking {
    /// Never the contents: they may be witness data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBacking")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
