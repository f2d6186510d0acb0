//! Counters of what the engine did. They only grow; gauges are read where the thing
//! they measure lives.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number of events since the start.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // Each counter stands alone; nothing is ordered by it.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The number.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Jobs that ended with a proof.
    pub jobs_completed: Counter,
    /// Jobs that ended with an error.
    pub jobs_failed: Counter,
    /// Jobs that their callers cancelled.
    pub jobs_cancelled: Counter,
    /// Parts that were tried again.
    pub parts_retried: Counter,
    /// Proofs that did not verify.
    pub verification_failures: Counter,
    /// Circuits that outgrew their capacity hint.
    pub hint_misses: Counter,
    /// Parts for which the key stayed in its file because there was no room.
    pub tiers_lowered: Counter,
}
