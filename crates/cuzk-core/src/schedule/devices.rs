//! The devices as the scheduler knows them: slots, and which are out of service.

use std::time::Duration;

use super::rates::Rates;

/// A device, by its place among those that the engine was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub usize);

/// Some of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSet(u64);

impl DeviceSet {
    /// More devices than any machine has.
    pub const DEVICES_MAX: usize = 64;
    /// All there are.
    pub const ALL: Self = Self(u64::MAX);

    /// Whether the device is one of them.
    pub fn has(self, device: DeviceIndex) -> bool {
        self.0 >> device.0 & 1 == 1
    }

    /// None of them.
    pub(super) const NONE: Self = Self(0);

    /// Whether some device is in both.
    pub(super) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn one(device: DeviceIndex) -> Self {
        Self(1 << device.0)
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn without(self, device: Option<DeviceIndex>) -> Self {
        Self(device.map_or(self.0, |device| self.0 & !(1 << device.0)))
    }
}

impl FromIterator<DeviceIndex> for DeviceSet {
    fn from_iter<I: IntoIterator<Item = DeviceIndex>>(devices: I) -> Self {
        let bits = devices.into_iter().map(|device| 1 << device.0);
        Self(bits.fold(0, |set, bit: u64| set | bit))
    }
}

#[derive(Clone, Debug)]
struct Device {
    slots: usize,
    running: usize,
    is_lost: bool,
    /// When it finished its last proof.
    last_end: Duration,
}

/// All devices.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    devices: Vec<Device>,
    #[cfg(test)]
    pub(super) mutation: Option<super::Mutation>,
}

impl Devices {
    pub(super) fn new(slots: &[usize]) -> Self {
        let device = |&slots| Device {
            slots,
            running: 0,
            is_lost: false,
            last_end: Duration::ZERO,
        };
        Self {
            devices: slots.iter().map(device).collect(),
            #[cfg(test)]
            mutation: None,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.devices.len()
    }

    /// Those of a set that take parts.
    pub(super) fn in_service(&self, set: DeviceSet) -> impl Iterator<Item = DeviceIndex> {
        let all = (0..self.devices.len()).map(DeviceIndex);
        all.filter(move |&device| {
            let set = if mutated!(self, IgnoresFit) {
                DeviceSet::ALL
            } else {
                set
            };
            let is_lost = self.devices[device.0].is_lost && !mutated!(self, UsesLostDevices);
            set.has(device) && !is_lost
        })
    }

    /// Slots of those of a set that take parts.
    pub(super) fn slots(&self, set: DeviceSet) -> usize {
        let able = self.in_service(set);
        able.map(|device| self.devices[device.0].slots).sum()
    }

    /// Slots of those of a set that have no part.
    pub(super) fn free_slots(&self, set: DeviceSet) -> usize {
        let able = self.in_service(set);
        able.map(|device| self.free(device)).sum()
    }

    fn free(&self, device: DeviceIndex) -> usize {
        let Device { slots, running, .. } = self.devices[device.0];
        let slots = slots + usize::from(mutated!(self, OverfillsSlots));
        slots.saturating_sub(running)
    }

    /// The free slot in which a part would be proved first. The device that failed it
    /// last is no choice while another one can prove it.
    pub(super) fn choose(&self, rates: &Rates, avoids: Option<DeviceIndex>) -> Option<DeviceIndex> {
        let others = rates.devices.without(avoids);
        let has_other = self.in_service(others).next().is_some();
        let set = match has_other && !mutated!(self, RetriesWhereItFailed) {
            true => others,
            false => rates.devices,
        };
        let free = self.in_service(set).filter(|&device| self.free(device) > 0);
        let end = |device: DeviceIndex| {
            let running = self.devices[device.0].running;
            let seconds = rates.proof_seconds(device).unwrap_or(1.0);
            let seconds = match mutated!(self, PrefersSlowDevices) {
                true => -seconds,
                false => seconds,
            };
            ((running + 1) as f64 * seconds, running)
        };
        free.min_by(|&left, &right| {
            let ((left, left_running), (right, right_running)) = (end(left), end(right));
            left.total_cmp(&right)
                .then(left_running.cmp(&right_running))
        })
    }

    /// Whether a part is to wait behind those that a device has, or for a slot of another:
    /// not if the others will have proved all `left` parts before this one would have
    /// proved it. A device that has none is never spared, so that nothing waits for one
    /// that hangs while another is idle.
    pub(super) fn is_worth_queueing(
        &self,
        rates: &Rates,
        device: DeviceIndex,
        avoids: Option<DeviceIndex>,
        left: usize,
    ) -> bool {
        let running = |device: DeviceIndex| self.devices[device.0].running as f64;
        let Some(seconds) = rates.proof_seconds(device) else {
            return true;
        };
        if self.devices[device.0].running == 0 || mutated!(self, QueuesAnywhere) {
            return true;
        }
        let end = (running(device) + 1.0) * seconds;
        let others = self.in_service(rates.devices.without(avoids).without(Some(device)));
        let by_others = others.map(|other| {
            let seconds = rates.proof_seconds(other).unwrap_or(seconds);
            // Proofs that take no time are as many as anybody wants.
            let ends_before = (end / seconds).ceil() - 1.0;
            (ends_before - running(other)).max(0.0)
        });
        by_others.sum::<f64>() < left as f64
    }

    pub(super) fn take(&mut self, device: DeviceIndex) {
        self.devices[device.0].running += 1;
    }

    pub(super) fn release(&mut self, device: DeviceIndex) {
        self.devices[device.0].running -= 1;
    }

    /// Notes the end of a proof that began at `since`, and tells what it took of the
    /// device: the time since that began or the one before ended.
    pub(super) fn proved(
        &mut self,
        device: DeviceIndex,
        since: Duration,
        now: Duration,
    ) -> Duration {
        let device = &mut self.devices[device.0];
        let from = since.max(device.last_end);
        device.last_end = now;
        now.saturating_sub(from)
    }

    pub(super) fn lose(&mut self, device: DeviceIndex) {
        if let Some(device) = self.devices.get_mut(device.0) {
            device.is_lost = true;
        }
    }
}
