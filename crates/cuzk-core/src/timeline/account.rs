//! Counters of a unit's time, kept while spans come: they only grow, and need none of
//! the spans that the ring has dropped.

use super::intervals::Intervals;
use super::lane::Unit;
use super::span::Span;
use super::utilisation::{Reason, explained};

/// Stretches of work that may still be joined by one before them. Spans are recorded
/// when a proof is done, and those of two proofs may come in either order. The gap before
/// the oldest is told only when it cannot change any more.
const RECENT_MAX: usize = 8;

/// Seconds of one unit since the engine's start.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitSeconds {
    /// Which one.
    pub unit: Unit,
    /// Seconds in which it computed; what overlaps counts once.
    pub busy: f64,
    /// Seconds between two kernels, by reason. A gap is counted when eight more
    /// stretches of work have followed.
    pub gaps: [(Reason, f64); Reason::ALL.len()],
}

/// The account of one unit.
#[derive(Debug)]
pub(super) struct Account {
    unit: Unit,
    busy_ms: f64,
    gaps_ms: [f64; Reason::ALL.len()],
    recent: Intervals,
    /// What lies before has been told.
    told_until_ms: f64,
}

impl Account {
    pub(super) fn new(unit: Unit) -> Self {
        Self {
            unit,
            busy_ms: 0.0,
            gaps_ms: [0.0; Reason::ALL.len()],
            recent: Intervals::default(),
            told_until_ms: 0.0,
        }
    }

    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// Adds a kernel; a gap that is to be explained now.
    pub(super) fn compute(&mut self, from_ms: f64, until_ms: f64) -> Option<(f64, f64)> {
        // Work that comes later than any should counts from where nothing was told.
        let from_ms = from_ms.max(self.told_until_ms);
        self.busy_ms += self.recent.insert(from_ms, until_ms);
        if self.recent.count() <= RECENT_MAX {
            return None;
        }
        let gap = self.recent.forget_first()?;
        self.told_until_ms = gap.1;
        Some(gap)
    }

    /// Counts a gap by what `spans` say of it.
    pub(super) fn explain<'a>(
        &mut self,
        gap: (f64, f64),
        spans: impl IntoIterator<Item = &'a Span>,
    ) {
        for piece in explained(self.unit, &[gap], spans) {
            let at = Reason::ALL
                .iter()
                .position(|reason| *reason == piece.reason);
            if let Some(sum) = at.and_then(|at| self.gaps_ms.get_mut(at)) {
                *sum += piece.length_ms();
            }
        }
    }

    pub(super) fn seconds(&self) -> UnitSeconds {
        let mut gaps = Reason::ALL.map(|reason| (reason, 0.0));
        for ((_, seconds), ms) in gaps.iter_mut().zip(self.gaps_ms) {
            *seconds = ms / 1000.0;
        }
        UnitSeconds {
            unit: self.unit,
            busy: self.busy_ms / 1000.0,
            gaps,
        }
    }
}
