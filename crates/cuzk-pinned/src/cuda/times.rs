//! Where the time of a backing goes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time that a backing has spent since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingTimes {
    /// Getting memory: the driver's allocation, or the mapping.
    pub allocate: Duration,
    /// Writing it for the first time.
    pub touch: Duration,
    /// Page-locking it, where that is a step of its own.
    pub register: Duration,
    /// Giving it back.
    pub free: Duration,
}

/// One span, summed.
#[derive(Debug, Default)]
pub(super) struct Span(AtomicU64);

impl Span {
    /// Runs `work` and adds its time.
    pub(super) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let result = work();
        let nanoseconds = u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanoseconds, Ordering::Relaxed);
        result
    }

    fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The spans of a backing.
#[derive(Debug, Default)]
pub(super) struct Spans {
    pub(super) allocate: Span,
    pub(super) touch: Span,
    pub(super) register: Span,
    pub(super) free: Span,
}

impl Spans {
    pub(super) fn totals(&self) -> BackingTimes {
        BackingTimes {
            allocate: self.allocate.total(),
            touch: self.touch.total(),
            register: self.register.total(),
            free: self.free.total(),
        }
    }
}
