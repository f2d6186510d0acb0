//! The method on made samples, whose truth is known.

use super::*;

/// How a machine disturbs runs, one after the other.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// 1 % about the true time.
    Plain,
    /// Most within 1 %, and some far out: Student's t with two degrees.
    Heavy,
    /// Each run half a percent slower than the one before.
    Drift,
    /// Every second run 3 % slower.
    Alternating,
    /// Warmer and colder: each run begins where the one before ended.
    Walk,
}

const NOISES: [Noise; 5] = [
    Noise::Plain,
    Noise::Heavy,
    Noise::Drift,
    Noise::Alternating,
    Noise::Walk,
];

/// Sets of samples of one seed.
struct Machine {
    random: SplitMix,
    noise: Noise,
    run: usize,
    walked: f64,
}

impl Machine {
    fn new(noise: Noise, seed: u64) -> Self {
        Self {
            random: SplitMix(seed),
            noise,
            run: 0,
            walked: 0.0,
        }
    }

    /// In (0, 1).
    fn uniform(&mut self) -> f64 {
        ((self.random.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// What a run takes that takes `true_ms`.
    fn run_ms(&mut self, true_ms: f64) -> f64 {
        let plain = 0.01 * self.normal();
        let off = match self.noise {
            Noise::Plain => plain,
            Noise::Heavy => plain / (-self.uniform().ln()).sqrt(),
            Noise::Drift => plain + 0.005 * self.run as f64,
            Noise::Alternating => plain + 0.03 * (self.run % 2) as f64,
            Noise::Walk => {
                self.walked += 0.01 * self.normal();
                plain + self.walked
            }
        };
        self.run += 1;
        true_ms * off.exp()
    }

    /// Pairs in the order in which they are measured: there and back, begun by turns.
    fn pairs(&mut self, count: usize, on_ms: f64) -> Vec<Pair> {
        let mut pair = |at: usize| {
            let is_on_first = (at / 2 + at).is_multiple_of(2);
            let first = if is_on_first { on_ms } else { 100.0 };
            let second = if is_on_first { 100.0 } else { on_ms };
            let (first, second) = (self.run_ms(first), self.run_ms(second));
            let (on, off) = if is_on_first {
                (first, second)
            } else {
                (second, first)
            };
            Pair {
                on,
                off,
                is_on_first,
            }
        };
        (0..count).map(&mut pair).collect()
    }
}

/// Of `sets` sets of so many pairs, those whose interval is as wanted.
fn count(
    noise: Noise,
    sets: u64,
    pairs: usize,
    on_ms: f64,
    is_wanted: impl Fn(Spread) -> bool,
) -> usize {
    let found = (0..sets).filter(|set| {
        let mut machine = Machine::new(noise, 1000 * set);
        is_wanted(ratio(&machine.pairs(pairs, on_ms)))
    });
    found.count()
}

fn holds_one(ratio: Spread) -> bool {
    ratio.low <= 1.0 && 1.0 <= ratio.high
}

#[test]
fn of_twenty_sets_without_a_difference_eighteen_intervals_hold_one() {
    for noise in NOISES {
        for pairs in [8, 12, 20] {
            let held = count(noise, 20, pairs, 100.0, holds_one);
            assert!(held >= 18, "{noise:?}, {pairs} pairs: {held}");
        }
    }
}

#[test]
fn intervals_hold_what_is_true_nineteen_times_in_twenty_or_nearly() {
    for noise in NOISES {
        for (pairs, least) in [(8, 180), (12, 184), (20, 184)] {
            let held = count(noise, 200, pairs, 100.0, holds_one);
            assert!(held >= least, "{noise:?}, {pairs} pairs: {held} of 200");
        }
    }
}

#[test]
fn three_percent_are_found() {
    for (noise, least) in [
        (Noise::Plain, 95),
        (Noise::Drift, 95),
        (Noise::Alternating, 95),
        (Noise::Walk, 90),
        (Noise::Heavy, 75),
    ] {
        let found = count(noise, 100, 12, 103.0, |ratio| ratio.high < 1.0);
        assert!(found >= least, "{noise:?}: {found} of 100");
        let wrong = count(noise, 100, 12, 103.0, |ratio| ratio.low > 1.0);
        assert_eq!(wrong, 0, "{noise:?}: found the other way round");
    }
}

#[test]
fn what_comes_from_the_order_cancels() {
    // The second run takes 5 % more, whichever it is.
    let pair = |is_on_first: bool| Pair {
        on: if is_on_first { 50.0 } else { 52.5 },
        off: if is_on_first { 105.0 } else { 100.0 },
        is_on_first,
    };
    let pairs: Vec<Pair> = (0..8).map(|at| pair(at % 2 == 0)).collect();
    let found = ratio(&pairs);
    assert!((found.median - 2.0).abs() < 1e-9, "{found:?}");
    assert!((found.high - found.low).abs() < 1e-9, "{found:?}");
    assert_eq!(ratio(&pairs[..1]).median, 105.0 / 50.0, "of one order");
}

#[test]
fn medians_alone_and_of_two_days() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    let one = alone(&[5.0]);
    assert_eq!((one.median, one.low, one.high), (5.0, 5.0, 5.0));
    let twice = unpaired(&[20.0; 3], &[10.0; 5]);
    assert_eq!((twice.median, twice.low, twice.high), (2.0, 2.0, 2.0));
    let noisy: Vec<f64> = (0..21).map(f64::from).collect();
    let found = alone(&noisy);
    assert!((4.0..10.0).contains(&found.low), "{found:?}");
    assert!((11.0..17.0).contains(&found.high), "{found:?}");
}
