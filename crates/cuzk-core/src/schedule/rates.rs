//! How long syntheses and proofs take, as measured, and what that justifies.
//!
//! Little's law says how many parts are to be under way so that a device never waits:
//! the time that a part takes to get there, times the parts that the devices finish in
//! that time. One more covers what varies. A synthesis is measured in the seconds that it
//! takes alone: with the time that it takes beside others, each part more would justify
//! one more.

use std::time::Duration;

use super::devices::Devices;
use super::{DeviceIndex, DeviceSet};

/// Weight of a new measurement: the last four or so count.
const WEIGHT: f64 = 0.25;

/// Parts beyond those that rates justify, and all of them while nothing is measured.
const SPARE: usize = 1;

/// A mean in which older measurements fade.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn add(&mut self, seconds: f64) {
        let mean = self.0.unwrap_or(seconds);
        self.0 = Some(mean + WEIGHT * (seconds - mean));
    }
}

/// What is known of a circuit's parts.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// Threads that a synthesis can use: one for each segment, or one.
    pub(super) width: usize,
    /// The devices that can prove them.
    pub(super) devices: DeviceSet,
    /// Seconds of a synthesis alone.
    synthesis: Mean,
    /// Seconds between the ends of two proofs, for each device.
    proofs: Vec<Mean>,
}

impl Rates {
    pub(super) fn new(width: usize, devices: usize) -> Self {
        Self {
            width,
            devices: DeviceSet::ALL,
            synthesis: Mean::default(),
            proofs: vec![Mean::default(); devices],
        }
    }

    pub(super) fn add_synthesis(&mut self, seconds: f64) {
        self.synthesis.add(seconds);
    }

    pub(super) fn add_proof(&mut self, device: DeviceIndex, time: Duration) {
        self.proofs[device.0].add(time.as_secs_f64());
    }

    /// Seconds of a proof on a device; of one that has made none, those of the fastest
    /// that has, so that it is tried.
    pub(super) fn proof_seconds(&self, device: DeviceIndex) -> Option<f64> {
        let known = self.proofs.iter().filter_map(|mean| mean.0);
        self.proofs[device.0].0.or_else(|| known.reduce(f64::min))
    }

    /// Parts that are to be between their reservation and a device of a set, beside those that
    /// free slots wait for; no less than one. A device that has proved none yet is fed by
    /// its free slots alone.
    pub(super) fn lead(&self, devices: &Devices, set: DeviceSet) -> usize {
        let able = devices.in_service(set);
        let rates = able.filter_map(|device| self.proofs[device.0].0.map(f64::recip));
        let per_second: f64 = rates.sum();
        let parts = (per_second * self.synthesis.0.unwrap_or(0.0)).ceil();
        // A proof that takes no time justifies any number: others bound it.
        if parts.is_finite() && parts < f64::from(u16::MAX) {
            SPARE + parts as usize
        } else {
            usize::from(u16::MAX)
        }
    }
}
