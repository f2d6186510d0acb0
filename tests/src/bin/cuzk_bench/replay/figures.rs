//! What spans say of a device's time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cuzk_gpu::{Phase, PhaseLane, union};
use cuzk_tests::stats::{median, p95};

use super::feed::Made;

/// Of all parts of a case.
pub(crate) struct Figures {
    /// From the first kernel to the last.
    pub(super) wall_ms: f64,
    /// Share of that in which a kernel ran.
    pub(super) busy: f64,
    /// The longest time between kernels.
    pub(super) longest_gap_ms: f64,
    /// The device's time for a part alone: the median.
    pub(super) alone_ms: f64,
    /// Parts made in the time of one alone.
    pub(super) rate_of_alone: f64,
    /// From each part's last kernel to that of the part `batch` after it, over `batch`.
    pub(super) part_ms: Vec<f64>,
    pub(super) p95_over_median: f64,
    /// The same of the replies, which the host makes.
    pub(super) reply_p95_over_median: f64,
    /// Share of the uploads' time in which a kernel ran.
    pub(super) uploads_overlapped: f64,
    pub(super) upload_gb_per_s: f64,
    /// Of all parts, of keys and in all.
    pub(super) key_bytes: u64,
    pub(super) pcie_bytes: u64,
}

type Spans = Vec<(Instant, Instant)>;

fn ms(length: Duration) -> f64 {
    length.as_secs_f64() * 1e3
}

fn lane(phases: &[Phase], lane: PhaseLane) -> impl Iterator<Item = &Phase> {
    phases.iter().filter(move |phase| phase.lane == lane)
}

/// From the first kernel to the last of one part.
fn computation(phases: &[Phase]) -> Option<(Instant, Instant)> {
    let start = lane(phases, PhaseLane::Compute).map(|phase| phase.start);
    let end = lane(phases, PhaseLane::Compute).map(|phase| phase.end);
    start.min().zip(end.max())
}

/// Milliseconds in which a kernel of one part ran: what it waits for is not among them.
pub(crate) fn device_ms(phases: &[Phase]) -> f64 {
    Phase::busy_ms(lane(phases, PhaseLane::Compute))
}

/// The figures of parts, beside parts alone; `batch` of them share a pass of their key, so
/// that they end close to each other.
pub(crate) fn figures(made: &[Made], alone_ms: &[f64], batch: usize) -> Result<Figures> {
    let all = |of: PhaseLane| -> Spans {
        let phases = made.iter().flat_map(|made| lane(&made.phases, of));
        union(phases.map(|phase| (phase.start, phase.end)).collect())
    };
    let bytes = |of: PhaseLane| -> u64 {
        let phases = made.iter().flat_map(|made| lane(&made.phases, of));
        phases.filter_map(|phase| phase.bytes).sum()
    };
    let computed = all(PhaseLane::Compute);
    let (first, last) = computed.first().zip(computed.last()).context("no kernel")?;
    let wall_ms = ms(last.1 - first.0);
    let ends = made.iter().map(|made| computation(&made.phases));
    let ends: Option<Vec<Instant>> = ends.map(|span| span.map(|(_, end)| end)).collect();
    let part_ms = intervals(ends.context("a part without a kernel")?, batch);
    let reply_ms = intervals(made.iter().map(|made| made.replied).collect(), batch);
    let alone_ms = median(alone_ms);
    let uploads = all(PhaseLane::Upload);
    let upload_ms = length_ms(&uploads);
    Ok(Figures {
        wall_ms,
        busy: length_ms(&computed) / wall_ms,
        longest_gap_ms: gaps(&computed).fold(0.0, f64::max),
        alone_ms,
        rate_of_alone: made.len() as f64 * alone_ms / wall_ms,
        p95_over_median: p95_over_median(&part_ms),
        reply_p95_over_median: p95_over_median(&reply_ms),
        part_ms,
        uploads_overlapped: match upload_ms {
            0.0 => 1.0,
            _ => length_ms(&both(&uploads, &computed)) / upload_ms,
        },
        upload_gb_per_s: match upload_ms {
            0.0 => 0.0,
            _ => bytes(PhaseLane::Upload) as f64 / 1e6 / upload_ms,
        },
        key_bytes: bytes(PhaseLane::Key),
        pcie_bytes: bytes(PhaseLane::Upload) + bytes(PhaseLane::Key),
    })
}

fn length_ms(apart: &Spans) -> f64 {
    apart.iter().map(|&(start, end)| ms(end - start)).sum()
}

/// Milliseconds between spans that are apart.
fn gaps(apart: &Spans) -> impl Iterator<Item = f64> {
    apart.windows(2).map(|pair| ms(pair[1].0 - pair[0].1))
}

/// Where both were; each of them is apart and in order.
fn both(left: &Spans, right: &Spans) -> Spans {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let mut both = Vec::new();
    while let (Some(&&(from, to)), Some(&&(begin, end))) = (left.peek(), right.peek()) {
        let (start, until) = (from.max(begin), to.min(end));
        if start < until {
            both.push((start, until));
        }
        if to <= end {
            left.next();
        } else {
            right.next();
        }
    }
    both
}

/// Milliseconds from each moment to the one `apart` after it, over `apart`; of too few
/// moments, none has passed.
fn intervals(mut moments: Vec<Instant>, apart: usize) -> Vec<f64> {
    moments.sort_unstable();
    let later = moments.iter().skip(apart);
    let pairs = moments.iter().zip(later);
    let intervals: Vec<f64> = pairs
        .map(|(earlier, later)| ms(*later - *earlier) / apart as f64)
        .collect();
    match intervals.is_empty() {
        true => vec![0.0],
        false => intervals,
    }
}

/// The smallest that 95 % are not above, over the median.
fn p95_over_median(samples: &[f64]) -> f64 {
    let median = median(samples);
    match median {
        0.0 => 1.0,
        _ => p95(samples) / median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(begin: Instant, phases: &[(&'static str, PhaseLane, u64, u64)]) -> Made {
        let at = |ms| begin + Duration::from_millis(ms);
        let phases: Vec<Phase> = phases
            .iter()
            .map(|&(name, lane, from, to)| Phase {
                bytes: (lane != PhaseLane::Compute).then_some(1_000_000 * (to - from)),
                ..Phase::new(name, lane, at(from), at(to))
            })
            .collect();
        Made {
            submitted: begin,
            replied: phases[phases.len() - 1].end,
            phases,
            tier: None,
        }
    }

    #[test]
    fn a_small_timeline_has_the_figures_that_a_hand_counts() {
        use PhaseLane::{Compute, Key, Upload};
        let begin = Instant::now();
        let made = [
            part(
                begin,
                &[
                    ("upload", Upload, 0, 10),
                    ("ntt", Compute, 10, 20),
                    ("msm_h", Compute, 22, 50),
                ],
            ),
            part(
                begin,
                &[
                    ("upload", Upload, 15, 25),
                    ("key_h", Key, 30, 40),
                    ("ntt", Compute, 50, 60),
                    ("msm_h", Compute, 60, 90),
                ],
            ),
            part(
                begin,
                &[("upload", Upload, 60, 70), ("ntt", Compute, 98, 110)],
            ),
        ];
        let figures = figures(&made, &[30.0, 40.0, 50.0], 1).expect("kernels");
        assert_eq!(figures.wall_ms, 100.0);
        assert_eq!(figures.busy, 0.9);
        assert_eq!(figures.longest_gap_ms, 8.0);
        assert_eq!(figures.alone_ms, 40.0);
        assert!((figures.rate_of_alone - 1.2).abs() < 1e-12);
        assert_eq!(figures.part_ms, [40.0, 20.0]);
        assert!((figures.p95_over_median - 40.0 / 30.0).abs() < 1e-12);
        // 0 to 10 lies under nothing, and 20 to 22 neither.
        assert!((figures.uploads_overlapped - 18.0 / 30.0).abs() < 1e-12);
        assert!((figures.upload_gb_per_s - 1.0).abs() < 1e-12);
        assert_eq!(
            (figures.key_bytes, figures.pcie_bytes),
            (10_000_000, 40_000_000)
        );
        assert_eq!(device_ms(&made[0].phases), 38.0);
    }

    #[test]
    fn parts_of_one_pass_share_its_time() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let ends = vec![at(100), at(101), at(200), at(203)];
        assert_eq!(intervals(ends.clone(), 2), [50.0, 51.0]);
        assert_eq!(intervals(ends.clone(), 1), [1.0, 99.0, 3.0]);
        assert_eq!(intervals(ends, 4), [0.0]);
    }

    #[test]
    fn the_95th_of_a_hundred_is_what_five_are_above() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!((p95_over_median(&samples) - 95.0 / 50.5).abs() < 1e-12);
        assert_eq!(p95_over_median(&[3.0]), 1.0);
    }
}
