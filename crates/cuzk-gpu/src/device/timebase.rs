//! The host's time of a moment that a device measured.
//!
//! A device tells how long after another moment of its own one came, in milliseconds as
//! a 32-bit float. So moments are told from an anchor: one whose time on the host is
//! known. After a while an anchor is too far back for such a float, and a new one is
//! chained to it.

use std::time::{Duration, Instant};

/// After this a new anchor is due. The float of a moment ten times as far from its anchor
/// has a step of 30 microseconds.
pub(crate) const ANCHOR_AGE_MAX: Duration = Duration::from_secs(5);

/// The moment so many milliseconds after an anchor.
pub(crate) fn after(anchor: Instant, ms: f64) -> Instant {
    // What is not a length of time is none.
    anchor + Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

/// The time of a new anchor, `ms` after one at `before`, which was passed between two moments
/// of the host. The device's word counts, so that lengths across anchors are its own;
/// where its clock has drifted beyond what the host saw, the nearest that the host did see.
pub(crate) fn chained(before: Instant, ms: f64, seen: [Instant; 2]) -> Instant {
    let [earliest, latest] = seen;
    after(before, ms).clamp(earliest, latest.max(earliest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(begin: Instant, us: u64) -> Instant {
        begin + Duration::from_micros(us)
    }

    #[test]
    fn a_moment_is_told_from_its_anchor() {
        let begin = Instant::now();
        assert_eq!(after(begin, 1.5), at(begin, 1500));
        for odd in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(after(begin, odd), begin);
        }
    }

    #[test]
    fn anchors_keep_the_devices_lengths_while_the_host_agrees() {
        let begin = Instant::now();
        let seen = [at(begin, 30_000_000), at(begin, 30_000_080)];
        assert_eq!(chained(begin, 30_000.05, seen), at(begin, 30_000_050));
        // A device's clock that is slow, and one that is fast.
        assert_eq!(chained(begin, 29_999.0, seen), seen[0]);
        assert_eq!(chained(begin, 30_001.0, seen), seen[1]);
    }

    /// For an hour, with a device's clock that is 20 in a million fast, an anchor is never
    /// more than what the host saw off.
    #[test]
    fn drift_does_not_add_up() {
        let begin = Instant::now();
        let mut anchor = begin;
        for turn in 1..=120 {
            let real = begin + ANCHOR_AGE_MAX * turn;
            let seen = [real, real + Duration::from_micros(60)];
            let ms = real.duration_since(anchor).as_secs_f64() * 1e3 * 1.000_02;
            anchor = chained(anchor, ms, seen);
            assert!(anchor >= seen[0] && anchor <= seen[1], "turn {turn}");
        }
    }
}
