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

/// Parts beyond those that rates justify.
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

/// A proof ends together with the one before if it follows it by less than its eighth.
const BUNCHED: f64 = 8.0;

/// The time between the ends of proofs. A device that makes several together ends them
/// together, and then none for long: they count as if they ended one by one.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The mean before those that ended together last, and with them.
    before: Option<f64>,
    mean: Option<f64>,
    /// Those that ended together last, and the time since the one before them.
    count: i32,
    seconds: f64,
}

impl Pace {
    fn add(&mut self, seconds: f64) {
        let is_bunched = self.count > 0 && seconds * BUNCHED < self.seconds / f64::from(self.count);
        if is_bunched && self.count < i32::MAX {
            self.count += 1;
            self.seconds += seconds;
        } else {
            self.before = self.mean;
            (self.count, self.seconds) = (1, seconds);
        }
        let each = self.seconds / f64::from(self.count);
        let before = self.before.unwrap_or(each);
        self.mean = Some(each + (before - each) * (1.0 - WEIGHT).powi(self.count));
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
    proofs: Vec<Pace>,
}

impl Rates {
    pub(super) fn new(width: usize, devices: usize) -> Self {
        Self {
            width,
            devices: DeviceSet::ALL,
            synthesis: Mean::default(),
            proofs: vec![Pace::default(); devices],
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
        let known = self.proofs.iter().filter_map(|pace| pace.mean);
        self.proofs[device.0]
            .mean
            .or_else(|| known.reduce(f64::min))
    }

    /// Parts that are to be between their reservation and a device of a set, beside those that
    /// free slots wait for; no less than two, so that while nothing is measured one waits as
    /// another is synthesised. A device that has proved none yet is fed by its free slots
    /// alone where others have.
    pub(super) fn lead(&self, devices: &Devices, set: DeviceSet) -> usize {
        let able = devices.in_service(set);
        let rates = able.filter_map(|device| self.proofs[device.0].mean.map(f64::recip));
        let per_second: f64 = rates.sum();
        let parts = per_second * self.synthesis.0.unwrap_or(0.0);
        let parts = parts.ceil().max(1.0);
        // A proof that takes no time justifies any number: others bound it.
        if parts.is_finite() && parts < f64::from(u16::MAX) {
            SPARE + parts as usize
        } else {
            usize::from(u16::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    fn means(seconds: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let mut pace = Pace::default();
        let add = |seconds| {
            pace.add(seconds);
            pace.mean.expect("one was added")
        };
        seconds.into_iter().map(add).collect()
    }

    #[test]
    fn proofs_that_end_together_count_as_evenly() {
        let bunched = means([8.0, 0.0, 0.0, 0.0].repeat(5));
        for bunch in bunched.chunks(4) {
            assert!((bunch[3] - 2.0).abs() < 1e-9, "{bunch:?}");
        }
        // Faster ones are followed as fast as if each ended for itself.
        let [mut slow, mut fast] = [vec![2.0; 4], vec![1.0; 4]];
        slow.append(&mut fast);
        let one_by_one = means(slow);
        let bunched = means([8.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0]);
        assert!((bunched[7] - one_by_one[7]).abs() < 1e-9, "{bunched:?}");
    }

    /// One that was slow is no first of a bunch without end.
    #[test]
    fn a_slow_proof_is_forgotten() {
        let mut seconds = vec![16.0];
        seconds.extend([1.0; 40]);
        let last = means(seconds)[40];
        assert!((last - 1.0).abs() < 0.01, "{last}");
    }
}
