//! Counters of what the engine did. They only grow; gauges are read where the thing
//! they measure lives.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::filling::ObstacleCounters;
use crate::placement::Placed;

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
    /// Stages that took longer than their limit and were given up.
    pub stages_given_up: Counter,
    /// Parts that were tried again.
    pub parts_retried: Counter,
    /// Proofs that did not verify.
    pub verification_failures: Counter,
    /// Circuits that outgrew their capacity hint.
    pub hint_misses: Counter,
    /// Parts that were synthesised in segments.
    pub syntheses_cut: Counter,
    /// Parts that were synthesised whole.
    pub syntheses_whole: Counter,
    /// Parts synthesised whole although segments were asked for, by why.
    pub syntheses_instead: ObstacleCounters,
    /// Circuits that were said to repeat, and do not.
    pub cuts_refused: Counter,
    /// Parts for which the key stayed in its file because there was no room.
    pub tiers_lowered: Counter,
    /// Parts that were to have page-locked memory and were given ordinary memory.
    pub placements_refused: Counter,
    /// Parts proved, by where their columns were read.
    pub placements: PlacementCounters,
}

/// Parts proved, by the name of their [placement](crate::Placed).
#[derive(Debug, Default)]
pub struct PlacementCounters {
    heap: Counter,
    register: Counter,
    staged: Counter,
    direct: Counter,
}

impl PlacementCounters {
    fn counters(&self) -> [(&'static str, &Counter); 4] {
        let Self {
            heap,
            register,
            staged,
            direct,
        } = self;
        [
            ("heap", heap),
            ("register", register),
            ("staged", staged),
            ("direct", direct),
        ]
    }

    pub(crate) fn add(&self, placed: Placed) {
        let counters = self.counters();
        let counter = counters.iter().find(|(name, _)| *name == placed.name);
        counter.expect("every placement has a counter").1.add(1);
    }

    /// Names and numbers.
    pub fn counts(&self) -> [(&'static str, u64); 4] {
        self.counters()
            .map(|(name, counter)| (name, counter.count()))
    }
}
