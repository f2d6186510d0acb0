//! Medians and intervals of a few noisy samples.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Resamples behind an interval.
const RESAMPLES: usize = 2000;

/// A median with its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// 2.5th percentile of resampled medians.
    pub low: f64,
    /// 97.5th percentile.
    pub high: f64,
}

/// The middle of the samples; the mean of the two middle ones of an even number.
///
/// # Panics
/// Without samples.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}

/// The smallest of the samples that 95 % of them are not above.
///
/// # Panics
/// Without samples.
pub fn p95(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * 95).div_ceil(100);
    sorted[rank - 1]
}

/// The median and its interval, the same for the same samples.
///
/// # Panics
/// Without samples.
pub fn interval(samples: &[f64]) -> Interval {
    let mut rng = ChaCha8Rng::seed_from_u64(samples.len() as u64);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut pick = || samples[rng.next_u32() as usize % samples.len()];
            let resample: Vec<f64> = (0..samples.len()).map(|_| pick()).collect();
            median(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Interval {
        median: median(samples),
        low: medians[RESAMPLES * 25 / 1000],
        high: medians[RESAMPLES * 975 / 1000 - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_95th_of_a_hundred_is_what_five_are_above() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(p95(&samples), 95.0);
        assert_eq!(p95(&samples[..21]), 99.0);
        assert_eq!(p95(&[3.0]), 3.0);
    }

    #[test]
    fn medians_and_intervals() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(
            interval(&[5.0]),
            Interval {
                median: 5.0,
                low: 5.0,
                high: 5.0
            }
        );
        let noisy: Vec<f64> = (0..21).map(f64::from).collect();
        let found = interval(&noisy);
        assert_eq!(found.median, 10.0);
        assert!(
            (4.0..10.0).contains(&found.low) && (11.0..17.0).contains(&found.high),
            "{found:?}"
        );
        assert_eq!(
            found,
            interval(&noisy),
            "the same samples give the same interval"
        );
    }
}
