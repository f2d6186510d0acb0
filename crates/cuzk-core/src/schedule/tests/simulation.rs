//! Seeded runs of whole machines. A seed that fails is printed, and
//! `CUZK_SIMULATION_SEED=SEED cargo test -p cuzk-core simulation` runs it alone.

use std::ops::Range;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::Mutation;
use super::world::{Arrival, Kind, Spec, World};
use crate::config::Dispatch;
use crate::schedule::{DeviceIndex, DeviceSet, Limits, Priority, StageLimits};

const PRIORITIES: [Priority; 4] = [
    Priority::Low,
    Priority::Normal,
    Priority::High,
    Priority::Critical,
];

/// Draws a machine and its jobs.
struct Draw(ChaCha8Rng);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0.next_u32() as usize % bound
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// A number below `max`.
    fn seconds(&mut self, max: f64) -> f64 {
        max * f64::from(self.0.next_u32()) / f64::from(u32::MAX)
    }

    fn limits(&mut self) -> Limits {
        let devices = 1 + self.below(4);
        let some = |is_some: usize, count: usize| (is_some == 0).then_some(count);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        Limits {
            dispatch: self.one(&[Dispatch::Reactive, Dispatch::Reactive, Dispatch::Burst]),
            threads: 1 + self.below(4),
            synthesis_max: some(self.below(2), 1 + self.below(3)),
            parts_in_flight_max: some(self.below(2), 1 + self.below(6)),
            device_slots: (0..devices).map(|_| 1 + self.below(2)).collect(),
            retries_max: self.below(3),
            overtaken_max: self.one(&[None, seconds(10), seconds(30)]),
            // Far longer than anything that does not hang.
            stages: StageLimits {
                synthesis_max: seconds(1000),
                prove_max: seconds(1000),
                other_max: seconds(500),
            },
        }
    }

    fn spec(&mut self) -> Spec {
        let limits = self.limits();
        let devices = limits.device_slots.len();
        let fits = [
            DeviceSet::ALL,
            DeviceSet::ALL,
            [DeviceIndex(devices - 1)].into_iter().collect(),
        ];
        let mut kind = |is_shared: bool, bytes: u64, scale: f64| Kind {
            is_shared,
            synthesis: scale * (0.5 + self.seconds(5.0)),
            proof: scale * (0.5 + self.seconds(3.0)),
            bytes,
            devices: self.one(&fits),
        };
        let kinds = vec![kind(true, 10, 1.0), kind(false, 8, 1.0), kind(true, 1, 0.1)];
        let dies = |draw: &mut Self| (draw.below(6) == 0).then(|| draw.seconds(60.0));
        Spec {
            kinds,
            slowness: (0..devices).map(|_| self.one(&[1.0, 1.0, 4.0])).collect(),
            deaths: (0..devices).map(|_| dies(self)).collect(),
            memory: self.one(&[12, 25, 60]),
            kept: self.one(&[0, 1, 2]),
            jitter: self.one(&[0.0, 0.2, 0.8]),
            failures_percent: self.one(&[0, 3, 15]),
            slow_percent: self.one(&[0, 0, 5]),
            hangs_percent: self.one(&[0, 0, 2]),
            batch: 1,
            limits,
        }
    }

    fn arrivals(&mut self) -> Vec<Arrival> {
        let mut at = 0.0;
        let arrival = |_| {
            at += self.seconds(8.0);
            Arrival {
                at,
                priority: self.one(&PRIORITIES),
                parts: 1 + self.below(5),
                kind: self.below(3),
                cancel_at: (self.below(12) == 0).then(|| at + self.seconds(20.0)),
                again: (self.below(4) == 0)
                    .then(|| (at + self.seconds(20.0), self.one(&PRIORITIES))),
            }
        };
        (0..12).map(arrival).collect()
    }
}

/// Runs what a seed draws.
pub(super) fn simulate(seed: u64, mutation: Option<Mutation>) {
    let mut draw = Draw(ChaCha8Rng::seed_from_u64(seed));
    let (spec, arrivals) = (draw.spec(), draw.arrivals());
    World::new(seed, spec, mutation).run(arrivals);
}

/// The seed that is to be run alone.
fn only_seed() -> Option<u64> {
    let seed = std::env::var("CUZK_SIMULATION_SEED").ok()?;
    Some(seed.parse().expect("CUZK_SIMULATION_SEED is a number"))
}

fn simulate_all(seeds: Range<u64>) {
    match only_seed() {
        Some(seed) => simulate(seed, None),
        None => seeds.for_each(|seed| simulate(seed, None)),
    }
}

// Two tests, since there are two cores at least.

#[test]
fn the_rules_hold_whatever_happens_and_no_job_is_lost() {
    simulate_all(0..5_000);
}

#[test]
fn the_rules_hold_whatever_happens_to_as_many_more() {
    simulate_all(5_000..10_000);
}
