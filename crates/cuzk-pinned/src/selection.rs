//! Idle blocks set aside for a request, and what it still needs beside them.

use std::sync::Arc;

use cuzk_budget::Reservation;

use crate::block::Block;
use crate::pool::Shared;
use crate::request::Order;
use crate::sync::lock;

/// Blocks set aside for a request. Those that are not taken out go back to the
/// idle ones.
pub(crate) struct Selection {
    pool: Arc<Shared>,
    blocks: Vec<Option<Block>>,
}

/// A request that the budget has granted: blocks set aside, and the bytes for
/// all the rest.
pub(crate) struct Grant {
    pub(crate) selection: Selection,
    pub(crate) reservation: Reservation,
}

impl Selection {
    pub(crate) fn new(pool: &Arc<Shared>, blocks: Vec<Option<Block>>) -> Self {
        Self {
            pool: Arc::clone(pool),
            blocks,
        }
    }

    /// Bytes that `order` must reserve beside these blocks.
    pub(crate) fn remainder_bytes(&self, order: &Order) -> u64 {
        remainder_bytes(order, &self.blocks)
    }

    /// Whether buffer `index` has a block.
    pub(crate) fn serves(&self, index: usize) -> bool {
        self.blocks[index].is_some()
    }

    pub(crate) fn block_mut(&mut self, index: usize) -> Option<&mut Block> {
        self.blocks[index].as_mut()
    }

    pub(crate) fn take(&mut self, index: usize) -> Option<Block> {
        self.blocks[index].take()
    }

    /// Puts back blocks that are larger than asked, the most wasteful first,
    /// if buffers of the exact size in their place save `missing_bytes`.
    /// Returns whether it did.
    pub(crate) fn give_up_waste(&mut self, order: &Order, missing_bytes: u64) -> bool {
        let mut wasteful: Vec<(usize, u64)> = self
            .blocks
            .iter()
            .enumerate()
            .filter_map(|(index, block)| {
                let waste = block.as_ref()?.capacity() - order.capacities[index];
                (waste > 0).then_some((index, waste as u64))
            })
            .collect();
        let waste_bytes: u64 = wasteful.iter().map(|(_, waste)| waste).sum();
        if missing_bytes == 0 || waste_bytes < missing_bytes {
            return false;
        }
        wasteful.sort_by_key(|(_, waste)| std::cmp::Reverse(*waste));
        let mut saved_bytes = 0;
        for (index, waste) in wasteful {
            if saved_bytes >= missing_bytes {
                break;
            }
            saved_bytes += waste;
            if let Some(block) = self.take(index) {
                lock(&self.pool.idle).put(block);
            }
        }
        true
    }
}

/// Bytes that `order` must reserve beside `blocks`.
pub(crate) fn remainder_bytes(order: &Order, blocks: &[Option<Block>]) -> u64 {
    // Part of the order's total, which does not overflow.
    order.bytes
        + order
            .capacities
            .iter()
            .zip(blocks)
            .filter(|(_, block)| block.is_none())
            .map(|(&capacity, _)| capacity as u64)
            .sum::<u64>()
}

impl Drop for Selection {
    /// Wakes nobody: whoever looked at the idle blocks meanwhile did so in its
    /// turn, after this, or is woken by the one who fails to use them.
    fn drop(&mut self) {
        if self.blocks.iter().any(Option::is_some) {
            let mut idle = lock(&self.pool.idle);
            for block in self.blocks.drain(..).flatten() {
                idle.put(block);
            }
        }
    }
}
