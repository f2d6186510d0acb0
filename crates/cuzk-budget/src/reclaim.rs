//! Those who can give bytes back when others need them.

use std::sync::{Arc, Weak};

use crate::sync::{Mutex, lock};

/// Somebody who holds bytes that nobody uses: a pool's idle buffers, keys
/// that no job works with.
///
/// A request that does not fit calls reclaimers once what all of them have
/// idle would make it fit, and not before: freeing less than is lacking would
/// cost memory that somebody may reuse, and help nobody. Reclaiming requests
/// run one at a time. Neither method may ask the same budget for bytes.
pub trait Reclaim: Send + Sync {
    /// Bytes that [`reclaim`](Self::reclaim) could give back now.
    fn idle_bytes(&self) -> u64;

    /// Gives back at least `wanted_bytes`, or as much as is idle, by dropping
    /// reservations, and returns how many bytes those held. The largest and
    /// oldest go first.
    fn reclaim(&self, wanted_bytes: u64) -> u64;
}

/// The reclaimers of one family of ledgers.
pub(crate) struct Reclaimers {
    known: Mutex<Vec<(usize, Weak<dyn Reclaim>)>>,
}

impl Reclaimers {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::new(Vec::new()),
        }
    }

    /// Adds one that holds bytes of `ledger`.
    pub(crate) fn add(&self, ledger: usize, reclaimer: Weak<dyn Reclaim>) {
        let mut known = lock(&self.known);
        known.retain(|(_, weak)| weak.strong_count() > 0);
        known.push((ledger, reclaimer));
    }

    /// Those whose ledger `counts_in` accepts, with what each has idle, the
    /// most first. No lock is held while they are asked.
    pub(crate) fn with_idle(&self, counts_in: impl Fn(usize) -> bool) -> Idle {
        let alive: Vec<Arc<dyn Reclaim>> = lock(&self.known)
            .iter()
            .filter(|(ledger, _)| counts_in(*ledger))
            .filter_map(|(_, weak)| weak.upgrade())
            .collect();
        let mut reclaimers: Vec<(u64, Arc<dyn Reclaim>)> = alive
            .into_iter()
            .map(|reclaimer| (reclaimer.idle_bytes(), reclaimer))
            .collect();
        reclaimers.sort_by_key(|(idle_bytes, _)| std::cmp::Reverse(*idle_bytes));
        Idle { reclaimers }
    }
}

/// Reclaimers and what they said they have idle.
pub(crate) struct Idle {
    reclaimers: Vec<(u64, Arc<dyn Reclaim>)>,
}

impl Idle {
    /// Bytes idle in all of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.reclaimers
            .iter()
            .fold(0, |sum, (idle_bytes, _)| sum.saturating_add(*idle_bytes))
    }

    /// Has `wanted_bytes` given back, or what there is.
    pub(crate) fn reclaim(&self, wanted_bytes: u64) -> u64 {
        let mut freed_bytes = 0_u64;
        for (_, reclaimer) in &self.reclaimers {
            if freed_bytes >= wanted_bytes {
                break;
            }
            let freed = reclaimer.reclaim(wanted_bytes - freed_bytes);
            freed_bytes = freed_bytes.saturating_add(freed);
        }
        freed_bytes
    }
}
