//! A pool of buffers.

use cuzk_budget::{Budget, BudgetError, Consumer, Reservation};

/// A pool of page-locked buffers.
#[derive(Clone, Debug)]
pub struct PinnedPool {
    budget: Budget,
}

/// A buffer that carries its reservation.
#[derive(Debug)]
pub struct PinnedBacking {
    words: Vec<u128>,
    len: usize,
    _reservation: Reservation,
}

impl PinnedPool {
    /// A pool of ordinary memory.
    pub fn heap(budget: Budget) -> Self {
        Self { budget }
    }
    /// One buffer for each length in bytes, all or nothing.
    ///
    /// # Errors
    /// If the budget refuses.
    pub fn try_acquire(&self, lens: &[usize]) -> Result<Vec<PinnedBacking>, BudgetError> {
        lens.iter()
            .map(|&len| {
                let reservation = self.budget.try_reserve(Consumer("columns"), len as u64)?;
                Ok(PinnedBacking {
                    words: vec![0; len.div_ceil(16)],
                    len,
                    _reservation: reservation,
                })
            })
            .collect()
    }
}

impl PinnedBacking {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `words` holds at least `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }
    /// The bytes, to be written.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }
}
