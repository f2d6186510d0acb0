//! Who holds bytes, and what a ledger says about itself.

use std::fmt;
use std::sync::Arc;

/// Who holds bytes: a short, stable name, the same in errors, plans and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Consumer(pub &'static str);

impl Consumer {
    /// Whether both are one name. Mostly it is one text at one place, which is
    /// looked at first.
    #[inline]
    pub(crate) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.0, other.0) || self == other
    }
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// One consumer and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Who holds.
    pub consumer: Consumer,
    /// Bytes held by all its reservations together.
    pub bytes: u64,
}

/// A ledger at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Name of the ledger.
    pub ledger: Arc<str>,
    /// Bytes that may be held at most.
    pub limit_bytes: u64,
    /// Bytes held: the sum of all live reservations, those of its shares
    /// included.
    pub used_bytes: u64,
    /// The most that was ever held.
    pub peak_bytes: u64,
    /// Bytes of `used_bytes` that reclaimers could give back now.
    pub idle_bytes: u64,
    /// Every consumer that holds something, largest first.
    pub holders: Vec<Holder>,
    /// Requests that wait for bytes of this ledger.
    pub waiters: usize,
}

impl Usage {
    /// Bytes that nobody holds.
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }

    /// Bytes that `consumer` holds.
    pub fn held_by(&self, consumer: Consumer) -> u64 {
        self.holders
            .iter()
            .find(|holder| holder.consumer == consumer)
            .map_or(0, |holder| holder.bytes)
    }
}

/// The holders that hold something, largest first, at most `count_max`.
pub(crate) fn largest_first(holders: &[Holder], count_max: usize) -> Vec<Holder> {
    let mut sorted: Vec<Holder> = holders.iter().filter(|h| h.bytes > 0).copied().collect();
    sorted.sort_by(|x, y| y.bytes.cmp(&x.bytes).then(x.consumer.cmp(&y.consumer)));
    sorted.truncate(count_max);
    sorted
}
