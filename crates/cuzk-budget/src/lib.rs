//! Counts bytes.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex};

/// Who holds bytes: a short stable name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Consumer(pub &'static str);

/// A limit and what is held under it.
#[derive(Clone, Debug)]
pub struct Budget {
    limit: u64,
    used: Arc<Mutex<u64>>,
}

/// Bytes held, until dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: u64,
}

/// Why bytes were refused.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// Does not fit.
    #[error("asked {asked} bytes, {used} of {limit} in use")]
    TooLarge {
        /// Asked.
        asked: u64,
        /// In use.
        used: u64,
        /// Limit.
        limit: u64,
    },
}

impl Budget {
    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit: limit_bytes,
            used: Arc::default(),
        }
    }
    /// Reserves or refuses at once.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn try_reserve(&self, _consumer: Consumer, bytes: u64) -> Result<Reservation, BudgetError> {
        let mut used = self.used.lock().expect("no panic under the lock");
        match used.checked_add(bytes) {
            Some(total) if total <= self.limit => {
                *used = total;
                Ok(Reservation {
                    budget: self.clone(),
                    bytes,
                })
            }
            _ => Err(BudgetError::TooLarge {
                asked: bytes,
                used: *used,
                limit: self.limit,
            }),
        }
    }
}

impl Reservation {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Ok(mut used) = self.budget.used.lock() {
            *used -= self.bytes;
        }
    }
}
