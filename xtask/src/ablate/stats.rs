//! What paired samples of two settings say: how many times as fast one is, and how sure
//! that is.
//!
//! A pair is two runs of one round, one soon after the other. Its order matters: where the
//! machine drifts, or the second run finds warmer caches, the ratio is off by as much one
//! way as the other. So the pairs with the one first and those with the other first each
//! have a median of their own, and the ratio is the middle of the two: what comes from the
//! order cancels, and a few wild runs do not matter. The interval resamples each of the
//! two.

use crate::record::Spread;

/// Resamples behind an interval.
const RESAMPLES: usize = 2000;

/// One pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    /// What the setting that is tested took.
    pub(crate) on: f64,
    /// What the one beside it took.
    pub(crate) off: f64,
    /// Whether the tested one ran first.
    pub(crate) is_on_first: bool,
}

/// How many times as fast as off, off / on, on is.
///
/// # Panics
/// Without pairs.
pub(crate) fn ratio(pairs: &[Pair]) -> Spread {
    let of_order = |is_first: bool| -> Vec<f64> {
        let of_order = pairs.iter().filter(|pair| pair.is_on_first == is_first);
        of_order.map(|pair| (pair.off / pair.on).ln()).collect()
    };
    let orders: Vec<Vec<f64>> = [of_order(true), of_order(false)]
        .into_iter()
        .filter(|of_order| !of_order.is_empty())
        .collect();
    let middle =
        |medians: &mut dyn Iterator<Item = f64>| (medians.sum::<f64>() / orders.len() as f64).exp();
    let found = middle(&mut orders.iter().map(|logs| median(logs)));
    let mut random = SplitMix(pairs.len() as u64);
    let resampled = (0..RESAMPLES).map(|_| {
        let mut medians = orders.iter().map(|logs| median(&random.resample(logs)));
        middle(&mut medians)
    });
    spread(found, resampled.collect())
}

/// The median of samples that stand alone, and its interval.
///
/// # Panics
/// Without samples.
pub(crate) fn alone(samples: &[f64]) -> Spread {
    let mut random = SplitMix(samples.len() as u64);
    let resampled = (0..RESAMPLES).map(|_| median(&random.resample(samples)));
    spread(median(samples), resampled.collect())
}

/// How many times as fast as `before` samples of another day are: before / after.
///
/// # Panics
/// Without samples.
pub(crate) fn unpaired(before: &[f64], after: &[f64]) -> Spread {
    let mut random = SplitMix((before.len() + after.len()) as u64);
    let resampled =
        (0..RESAMPLES).map(|_| median(&random.resample(before)) / median(&random.resample(after)));
    spread(median(before) / median(after), resampled.collect())
}

/// The middle of the samples; the mean of the two middle ones of an even number.
///
/// # Panics
/// Without samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted[sorted.len() / 2];
    let lower = sorted[(sorted.len() - 1) / 2];
    (lower + upper) / 2.0
}

/// The 95 % in the middle of what resamples gave.
fn spread(found: f64, mut resampled: Vec<f64>) -> Spread {
    resampled.sort_by(f64::total_cmp);
    let at =
        |per_mille: usize| resampled[(resampled.len() * per_mille / 1000).min(resampled.len() - 1)];
    Spread {
        median: found,
        low: at(25).min(found),
        high: at(974).max(found),
    }
}

/// Steele, Lea and Flood's generator: resamples need no better one, and the same samples
/// give the same interval.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn resample(&mut self, samples: &[f64]) -> Vec<f64> {
        let len = samples.len() as u64;
        let mut pick = || samples[(self.next() % len) as usize];
        (0..samples.len()).map(|_| pick()).collect()
    }
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
