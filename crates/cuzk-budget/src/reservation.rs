//! Bytes held, for as long as a value lives.

use std::fmt;

use crate::budget::Budget;
use crate::error::{BudgetError, MergeError};
use crate::state::{Key, Standing};
use crate::usage::Consumer;

/// Bytes of one ledger, held until this value is dropped.
///
/// A reservation cannot be copied, so its bytes cannot be given back twice.
/// Whoever frees memory frees it first and drops the reservation after, and
/// whoever allocates reserves first: then the ledger never holds less than the
/// memory does.
pub struct Reservation {
    budget: Budget,
    consumer: Consumer,
    bytes: u64,
}

impl Reservation {
    /// For bytes that the ledger counts already.
    #[inline]
    pub(crate) fn of_counted(budget: Budget, consumer: Consumer, bytes: u64) -> Self {
        Self {
            budget,
            consumer,
            bytes,
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Who holds them.
    pub fn consumer(&self) -> Consumer {
        self.consumer
    }

    /// The ledger that counts them.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Splits `bytes` off into a reservation of their own. The ledger does not
    /// change.
    ///
    /// # Errors
    /// [`BudgetError::NotHeld`] if this holds less; it stays as it is then.
    pub fn split(&mut self, bytes: u64) -> Result<Self, BudgetError> {
        self.bytes = self.left_after(bytes)?;
        Ok(Self::of_counted(self.budget.clone(), self.consumer, bytes))
    }

    /// Takes over the bytes of `other`, under this reservation's consumer.
    ///
    /// # Errors
    /// If `other` is of another ledger; the error carries it.
    pub fn merge(&mut self, mut other: Self) -> Result<(), MergeError> {
        if !self.budget.is_same_ledger(&other.budget) {
            return Err(MergeError { reservation: other });
        }
        other.reassign(self.consumer);
        // What `other` drops with is zero, so nothing is given back.
        self.bytes += std::mem::take(&mut other.bytes);
        Ok(())
    }

    /// Gives `bytes` of it back.
    ///
    /// # Errors
    /// [`BudgetError::NotHeld`] if this holds less; nothing is given back then.
    pub fn shrink(&mut self, bytes: u64) -> Result<(), BudgetError> {
        drop(self.split(bytes)?);
        Ok(())
    }

    /// Takes `bytes` more, at once or not at all. The holder comes before every
    /// waiting request, since they wait for what it holds; reclaimers are
    /// called where that makes room.
    ///
    /// # Errors
    /// As [`Budget::try_reserve`]; it holds what it held then.
    pub fn grow(&mut self, bytes: u64) -> Result<(), BudgetError> {
        self.grow_at(Standing::Holder, bytes)
    }

    /// As [`grow`](Self::grow), for what the holder can do without: it takes no kept
    /// bytes, and comes after waiting requests of the highest priority.
    ///
    /// # Errors
    /// As [`Budget::try_reserve`]; it holds what it held then.
    pub fn grow_below_highest(&mut self, bytes: u64) -> Result<(), BudgetError> {
        self.grow_at(Standing::At(Key::below_highest()), bytes)
    }

    fn grow_at(&mut self, standing: Standing, bytes: u64) -> Result<(), BudgetError> {
        let more = self
            .budget
            .take_or_reclaim(standing, self.consumer, bytes)?;
        self.merge(more).expect("the same ledger granted both");
        Ok(())
    }

    /// Books the bytes on another consumer.
    #[inline]
    pub fn reassign(&mut self, consumer: Consumer) {
        if !consumer.is(self.consumer) {
            self.budget.rename(self.consumer, consumer, self.bytes);
            self.consumer = consumer;
        }
    }

    fn left_after(&self, bytes: u64) -> Result<u64, BudgetError> {
        self.bytes.checked_sub(bytes).ok_or(BudgetError::NotHeld {
            consumer: self.consumer,
            asked_bytes: bytes,
            held_bytes: self.bytes,
        })
    }
}

impl Drop for Reservation {
    #[inline]
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.consumer, self.bytes);
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("consumer", &self.consumer)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
