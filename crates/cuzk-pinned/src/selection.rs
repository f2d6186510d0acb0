//! Idle blocks set aside for a request, and what it still needs beside them.

use std::sync::Arc;

use cuzk_budget::Reservation;

use crate::block::Block;
use crate::pool::Shared;
use crate::request::Order;
use crate::sync::lock;

/// Blocks for the buffers of a request, one each or none.
pub(crate) struct Selection {
    waste_percent: u8,
    places: Vec<Place>,
}

/// What one buffer takes, and the block that is to serve it.
struct Place {
    capacity: usize,
    block: Option<Block>,
}

impl Selection {
    /// For the buffers of `order`, none of which has a block.
    pub(crate) fn of_none(order: &Order, waste_percent: u8) -> Self {
        let buffers = order.buffers.iter();
        Self {
            waste_percent,
            places: buffers
                .map(|buffer| Place {
                    capacity: buffer.capacity,
                    block: None,
                })
                .collect(),
        }
    }

    /// Indices and capacities of the buffers that have no block.
    pub(crate) fn unserved(&self) -> impl Iterator<Item = (usize, usize)> + Clone + '_ {
        let places = self.places.iter().enumerate();
        places
            .filter(|(_, place)| place.capacity > 0 && place.block.is_none())
            .map(|(index, place)| (index, place.capacity))
    }

    /// Has `block_of` give a block for the capacity of each buffer.
    pub(crate) fn fill(&mut self, mut block_of: impl FnMut(usize) -> Option<Block>) {
        for place in &mut self.places {
            if place.capacity > 0 {
                place.block = block_of(place.capacity);
            }
        }
    }

    /// The buffer without a block that one of `block_bytes` serves best.
    pub(crate) fn place_for(&self, block_bytes: usize) -> Option<usize> {
        self.unserved()
            .filter(|&(_, capacity)| self.serves(block_bytes, capacity))
            .max_by_key(|&(_, capacity)| capacity)
            .map(|(index, _)| index)
    }

    /// Whether a block of `block_bytes` may serve a buffer of `capacity`.
    fn serves(&self, block_bytes: usize, capacity: usize) -> bool {
        (capacity..=self.most(capacity)).contains(&block_bytes)
    }

    /// Bytes of the largest block that may serve a buffer of `capacity`.
    pub(crate) fn most(&self, capacity: usize) -> usize {
        let waste = capacity as u128 * u128::from(self.waste_percent) / 100;
        usize::try_from(capacity as u128 + waste).unwrap_or(usize::MAX)
    }

    pub(crate) fn set(&mut self, index: usize, block: Block) {
        debug_assert!(self.places[index].block.is_none());
        self.places[index].block = Some(block);
    }

    pub(crate) fn take(&mut self, index: usize) -> Option<Block> {
        self.places[index].block.take()
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Block> + '_ {
        self.places
            .iter_mut()
            .filter_map(|place| place.block.take())
    }

    /// Whether no buffer has a block.
    fn is_empty(&self) -> bool {
        self.places.iter().all(|place| place.block.is_none())
    }

    /// Bytes of the buffers that have no block. Part of a request's total, so
    /// the sum does not overflow.
    pub(crate) fn unserved_bytes(&self) -> u64 {
        self.unserved().map(|(_, capacity)| capacity as u64).sum()
    }

    /// Takes out blocks that are larger than asked, the most wasteful first, if
    /// buffers of the exact size in their place save `missing_bytes`, and none
    /// otherwise.
    pub(crate) fn take_waste(&mut self, missing_bytes: u64) -> Vec<Block> {
        let mut wasteful: Vec<(usize, u64)> = self
            .places
            .iter()
            .enumerate()
            .filter_map(|(index, place)| {
                let waste = place.block.as_ref()?.capacity() - place.capacity;
                (waste > 0).then_some((index, waste as u64))
            })
            .collect();
        let waste_bytes: u64 = wasteful.iter().map(|(_, waste)| waste).sum();
        if missing_bytes == 0 || waste_bytes < missing_bytes {
            return Vec::new();
        }
        wasteful.sort_by_key(|(_, waste)| std::cmp::Reverse(*waste));
        let mut saved_bytes = 0;
        let mut taken = Vec::new();
        for (index, waste) in wasteful {
            if saved_bytes >= missing_bytes {
                break;
            }
            saved_bytes += waste;
            taken.extend(self.take(index));
        }
        taken
    }
}

/// A request that the budget has granted: the bytes, and blocks for some of the
/// buffers. What is not taken out goes back to the idle ones.
pub(crate) struct Grant {
    pub(crate) pool: Arc<Shared>,
    pub(crate) selection: Selection,
    /// Bytes of the buffers without a block, and those counted beside the buffers.
    /// Taken when the grant has become buffers.
    pub(crate) reservations: Option<(Reservation, Reservation)>,
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.selection.is_empty() {
            let mut idle = lock(&self.pool.idle);
            self.selection.take_all().for_each(|block| idle.put(block));
        }
    }
}

/// The selection of the one request of the pool that reclaims, kept beside the
/// idle blocks: out of sight of reclaimers and of other requests, and first to
/// get a block that is handed back meanwhile.
pub(crate) struct Claim<'a> {
    pool: &'a Arc<Shared>,
}

impl<'a> Claim<'a> {
    /// Sets aside what is idle, and what has a fence that it waits for.
    pub(crate) fn new(pool: &'a Arc<Shared>, order: &Order, waste_percent: u8) -> Self {
        {
            let mut idle = lock(&pool.idle);
            let selection = idle.select(order, waste_percent);
            let before = idle.claim.replace(selection);
            assert!(before.is_none(), "one request at a time reclaims");
        }
        let claim = Self { pool };
        loop {
            // The lock is released before the fence is waited for.
            let Some(fenced) = lock(&pool.idle).take_fenced_for_claim() else {
                return claim;
            };
            let block = fenced.wait();
            lock(&pool.idle).put(block);
        }
    }

    /// Bytes of the buffers that have no block yet.
    pub(crate) fn unserved_bytes(&self) -> u64 {
        let idle = lock(&self.pool.idle);
        idle.claim.as_ref().map_or(0, Selection::unserved_bytes)
    }

    /// Gives up larger blocks for the exact size where that saves
    /// `missing_bytes`. Returns whether it did.
    pub(crate) fn give_up_waste(&self, missing_bytes: u64) -> bool {
        let mut idle = lock(&self.pool.idle);
        let taken = match &mut idle.claim {
            Some(selection) => selection.take_waste(missing_bytes),
            None => Vec::new(),
        };
        let has_given_up = !taken.is_empty();
        for block in taken {
            idle.put_unclaimed(block);
        }
        has_given_up
    }

    /// Ends the claim with its blocks.
    pub(crate) fn into_selection(self) -> Selection {
        let selection = lock(&self.pool.idle).claim.take();
        selection.expect("only the claim's end takes it out")
    }
}

impl Drop for Claim<'_> {
    /// Puts back what was set aside. Wakes nobody: whoever looked meanwhile has
    /// to take its turn to reclaim, which comes after this.
    fn drop(&mut self) {
        let mut idle = lock(&self.pool.idle);
        if let Some(mut selection) = idle.claim.take() {
            selection.take_all().for_each(|block| idle.put(block));
        }
    }
}
