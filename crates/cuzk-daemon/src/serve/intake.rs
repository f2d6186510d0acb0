//! How much memory requests may hold: their bytes are counted from the moment that a
//! message announces its length until the job it became has ended.
//!
//! What is counted is the message. While it is decoded and while its proofs are checked
//! a second copy of it may live for a moment; the parsed form that a job keeps is no
//! larger than the message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

use super::status;

/// The count of a server. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Intake(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    limit_bytes: u64,
    held_bytes: AtomicU64,
}

/// Bytes of one request, counted until dropped.
#[derive(Debug)]
pub(super) struct Held {
    counted: Arc<Counted>,
    bytes: u64,
}

impl Intake {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self(Arc::new(Counted {
            limit_bytes,
            held_bytes: AtomicU64::new(0),
        }))
    }

    /// Counts a request.
    ///
    /// # Errors
    /// If all together would be more than the limit; nothing is counted then.
    pub(super) fn take(&self, bytes: u64) -> Result<Held, Status> {
        let limit_bytes = self.0.limit_bytes;
        let add = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= limit_bytes);
        self.0
            .held_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .map_err(|held_bytes| status::too_many_bytes(bytes, held_bytes, limit_bytes))?;
        Ok(Held {
            counted: Arc::clone(&self.0),
            bytes,
        })
    }

    /// Bytes of all requests now.
    pub(super) fn held_bytes(&self) -> u64 {
        self.0.held_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that they may have together.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.counted
            .held_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Where the gate leaves what a call holds for the method that answers the call. A
/// call that ends before its method runs drops both.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldByCall(Arc<Mutex<Option<Held>>>);

impl HeldByCall {
    pub(super) fn put(&self, held: Held) {
        *self.slot() = Some(held);
    }

    pub(super) fn take(&self) -> Option<Held> {
        self.slot().take()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Held>> {
        // Nothing that can panic runs while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_what_lives() {
        let intake = Intake::new(3 << 20);
        let first = intake.take(2 << 20).expect("fits");
        let refused = intake.take((1 << 20) + 1).expect_err("a byte too many");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(
            refused.message(),
            "a request of 1.00 MiB (1048577 bytes): others hold 2.00 MiB (2097152 bytes) of the \
             3.00 MiB (3145728 bytes) that requests may hold (serve.requests_bytes_max)"
        );
        assert_eq!(intake.held_bytes(), 2 << 20);
        let second = intake.take(1 << 20).expect("fits");
        assert_eq!(intake.held_bytes(), 3 << 20);
        drop((first, second));
        assert_eq!(intake.held_bytes(), 0);
        intake.take(u64::MAX).expect_err("never fits");
        intake.take(3 << 20).expect("fits alone");
    }

    #[test]
    fn a_call_that_nobody_answers_holds_nothing() {
        let intake = Intake::new(10);
        let call = HeldByCall::default();
        call.put(intake.take(10).expect("fits"));
        drop(call.clone());
        assert_eq!(intake.held_bytes(), 10);
        drop(call);
        assert_eq!(intake.held_bytes(), 0);
    }
}
