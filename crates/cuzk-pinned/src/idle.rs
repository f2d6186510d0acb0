//! Blocks that nobody uses, and which of them fit a request.

use std::collections::VecDeque;

use crate::block::Block;
use crate::fence::Fence;
use crate::request::Order;
use crate::selection::Selection;

/// Idle blocks of a pool.
#[derive(Default)]
pub(crate) struct Idle {
    /// By capacity; within one capacity the oldest first. A pool has tens of
    /// large blocks, so a sorted array beats a tree and allocates nothing.
    blocks: Vec<Block>,
    bytes: u64,
    /// Blocks that become idle when their fence has passed, oldest first.
    fenced: VecDeque<Fenced>,
    fenced_bytes: u64,
    /// What the one request that reclaims has set aside.
    pub(crate) claim: Option<Selection>,
    /// Buffers handed out that were idle before.
    pub(crate) reuses: u64,
    /// Set when the pool is dropped: what comes back then is freed.
    is_closed: bool,
}

/// A block whose memory something may still read. It is freed only after its
/// fence has passed, whatever becomes of it.
pub(crate) struct Fenced {
    block: Option<Block>,
    capacity: usize,
    fence: Box<dyn Fence>,
}

impl Fenced {
    pub(crate) fn new(block: Block, fence: Box<dyn Fence>) -> Self {
        Self {
            capacity: block.capacity(),
            block: Some(block),
            fence,
        }
    }

    /// Waits for the fence and gives the block.
    pub(crate) fn wait(mut self) -> Block {
        self.fence.wait();
        self.block.take().expect("present until it is given away")
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        if self.block.is_some() {
            self.fence.wait();
        }
    }
}

impl Idle {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn count(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn fenced_bytes(&self) -> u64 {
        self.fenced_bytes
    }

    /// Ends the pool, and gives up what is idle or will be. A claim is none, as
    /// the request that has it has the pool too.
    pub(crate) fn close(&mut self) -> (Vec<Block>, VecDeque<Fenced>) {
        debug_assert!(self.claim.is_none());
        self.is_closed = true;
        (self.bytes, self.fenced_bytes) = (0, 0);
        (
            std::mem::take(&mut self.blocks),
            std::mem::take(&mut self.fenced),
        )
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Adds a block that nothing touches any more. The claim gets it if it can
    /// use it.
    #[inline]
    pub(crate) fn put(&mut self, block: Block) {
        if let Some(block) = self.offer(block) {
            self.put_unclaimed(block);
        }
    }

    /// Gives a block to the claim, or back if the claim cannot use it.
    #[inline]
    pub(crate) fn offer(&mut self, block: Block) -> Option<Block> {
        if let Some(claim) = &mut self.claim
            && let Some(index) = claim.place_for(block.capacity())
        {
            claim.set(index, block);
            return None;
        }
        Some(block)
    }

    /// Adds a block that the claim is not to have.
    #[inline]
    pub(crate) fn put_unclaimed(&mut self, block: Block) {
        self.bytes += block.capacity() as u64;
        let after = self.first_above(block.capacity());
        if after == self.blocks.len() {
            self.blocks.push(block);
        } else {
            self.blocks.insert(after, block);
        }
    }

    /// Adds a block that becomes idle later.
    pub(crate) fn put_fenced(&mut self, fenced: Fenced) {
        self.fenced_bytes += fenced.capacity as u64;
        self.fenced.push_back(fenced);
    }

    /// Makes those blocks idle whose fence has passed.
    #[inline]
    pub(crate) fn sweep(&mut self) {
        if !self.fenced.is_empty() {
            self.sweep_fenced();
        }
    }

    fn sweep_fenced(&mut self) {
        for fenced in std::mem::take(&mut self.fenced) {
            if fenced.fence.has_passed() {
                self.fenced_bytes -= fenced.capacity as u64;
                // Returns at once, since the fence has passed.
                self.put(fenced.wait());
            } else {
                self.fenced.push_back(fenced);
            }
        }
    }

    /// Takes out the block whose fence was set first.
    pub(crate) fn take_fenced(&mut self) -> Option<Fenced> {
        let fenced = self.fenced.pop_front()?;
        self.fenced_bytes -= fenced.capacity as u64;
        Some(fenced)
    }

    /// Takes out the block whose fence was set first of those that the claim
    /// can use.
    pub(crate) fn take_fenced_for_claim(&mut self) -> Option<Fenced> {
        let claim = self.claim.as_ref()?;
        let position = self
            .fenced
            .iter()
            .position(|fenced| claim.place_for(fenced.capacity).is_some())?;
        let fenced = self.fenced.remove(position)?;
        self.fenced_bytes -= fenced.capacity as u64;
        Some(fenced)
    }

    /// Takes out the largest block, of several the oldest.
    pub(crate) fn take_largest(&mut self) -> Option<Block> {
        let largest_bytes = self.blocks.last()?.capacity();
        let oldest = self
            .blocks
            .partition_point(|b| b.capacity() < largest_bytes);
        Some(self.take(oldest))
    }

    /// Takes out the smallest block of `capacity_min` to `capacity_max` bytes,
    /// of several the one used last, whose memory is the most likely cached.
    fn take_fitting(&mut self, capacity_min: usize, capacity_max: usize) -> Option<Block> {
        let smallest = self.blocks.partition_point(|b| b.capacity() < capacity_min);
        let capacity = self.blocks.get(smallest)?.capacity();
        (capacity <= capacity_max).then(|| self.take(self.first_above(capacity) - 1))
    }

    /// Takes out the block of just these bytes that was used last.
    #[inline]
    pub(crate) fn take_exact(&mut self, capacity: usize) -> Option<Block> {
        let last = self.first_above(capacity).checked_sub(1)?;
        (self.blocks[last].capacity() == capacity).then(|| self.take(last))
    }

    #[inline]
    fn take(&mut self, position: usize) -> Block {
        let block = self.blocks.remove(position);
        self.bytes -= block.capacity() as u64;
        block
    }

    /// Position of the first block larger than `capacity`.
    #[inline]
    fn first_above(&self, capacity: usize) -> usize {
        // Most pools hold one size, and most requests ask for it.
        match self.blocks.last() {
            Some(largest) if largest.capacity() > capacity => {
                self.blocks.partition_point(|b| b.capacity() <= capacity)
            }
            _ => self.blocks.len(),
        }
    }

    /// Takes out the blocks that a request can use: for each buffer at most
    /// one.
    ///
    /// Blocks of the very size come first. The rest is served from the smallest
    /// request up, each by the smallest block that fits and wastes no more than
    /// `waste_percent`: with both bounds growing with the size, that order
    /// serves the most.
    pub(crate) fn select(&mut self, order: &Order, waste_percent: u8) -> Selection {
        let mut selection = Selection::of_none(order, waste_percent);
        if self.blocks.is_empty() {
            return selection;
        }
        selection.fill(|capacity| self.take_exact(capacity));
        let mut rest: Vec<(usize, usize)> = selection.unserved().collect();
        rest.sort_by_key(|&(_, capacity)| capacity);
        for (index, capacity) in rest {
            let most = selection.most(capacity);
            if let Some(block) = self.take_fitting(capacity, most) {
                selection.set(index, block);
            }
        }
        selection
    }
}
