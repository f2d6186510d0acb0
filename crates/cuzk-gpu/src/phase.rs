//! Where the time of a proof went: stretches of it, each on a lane.

use std::time::Instant;

/// What a phase of a proof keeps busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PhaseLane {
    /// The way of columns to the device.
    Upload,
    /// What transforms and sums.
    Compute,
    /// The way of a key's points to where they are used: files, page-locked memory, bus.
    Key,
    /// Threads of the host.
    Host,
}

impl PhaseLane {
    /// As traces and records name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Compute => "compute",
            Self::Key => "key",
            Self::Host => "host",
        }
    }
}

/// A stretch of one proof. Uploads of one backend do not overlap each other, whatever
/// proofs they are of, and neither do computations; what brings keys and what the host does
/// may. They compare to a tenth of a millisecond, also where a device measured them. What
/// proofs share, such as a piece of a key, is a phase of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What was done (`upload`, `ntt`, `msm_h`).
    pub name: &'static str,
    /// Where.
    pub lane: PhaseLane,
    /// When it began.
    pub start: Instant,
    /// When it ended; not before `start`.
    pub end: Instant,
    /// Bytes that were moved, where it moved any to speak of.
    pub bytes: Option<u64>,
}

impl Phase {
    /// One that moved nothing to speak of.
    pub fn new(name: &'static str, lane: PhaseLane, start: Instant, end: Instant) -> Self {
        Self {
            name,
            lane,
            start,
            end: end.max(start),
            bytes: None,
        }
    }

    /// Its length in milliseconds.
    pub fn length_ms(&self) -> f64 {
        self.end.duration_since(self.start).as_secs_f64() * 1e3
    }

    /// Milliseconds in which at least one of these was under way.
    pub fn busy_ms<'a>(phases: impl IntoIterator<Item = &'a Self>) -> f64 {
        let spans = phases.into_iter().map(|phase| (phase.start, phase.end));
        let busy = union(spans.collect());
        let lengths = busy.iter().map(|&(start, end)| end.duration_since(start));
        lengths.map(|length| length.as_secs_f64()).sum::<f64>() * 1e3
    }
}

/// The stretches in which at least one of these was under way, in their order, apart.
pub fn union<T: Ord + Copy>(mut spans: Vec<(T, T)>) -> Vec<(T, T)> {
    spans.sort_unstable();
    let mut apart: Vec<(T, T)> = Vec::with_capacity(spans.len());
    for (start, end) in spans {
        match apart.last_mut() {
            Some((_, until)) if start <= *until => *until = end.max(*until),
            _ => apart.push((start, end)),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_overlaps_or_touches_counts_once() {
        let begin = Instant::now();
        let phase = |from, to| {
            let at = |ms| begin + Duration::from_millis(ms);
            Phase::new("ntt", PhaseLane::Compute, at(from), at(to))
        };
        let phases = [
            phase(40, 50),
            phase(0, 20),
            phase(5, 10),
            phase(20, 30),
            phase(29, 31),
        ];
        assert_eq!(Phase::busy_ms(&phases), 41.0);
        assert_eq!(phases[1].length_ms(), 20.0);
        assert_eq!(Phase::busy_ms([]), 0.0);
        // An end before the start is none.
        assert_eq!(phase(7, 3).length_ms(), 0.0);
    }

    #[test]
    fn unions_are_apart_and_in_order() {
        assert_eq!(union(vec![(5, 6), (1, 2), (2, 4)]), [(1, 4), (5, 6)]);
        assert_eq!(union(vec![(1, 9), (2, 3), (9, 9)]), [(1, 9)]);
        assert_eq!(union::<u64>(Vec::new()), []);
    }
}
