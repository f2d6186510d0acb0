//! Which part goes first, and what may not be left undone.

use std::cmp::Reverse;

use super::Place::{self, After, In};
use super::Stage::{self, Prove, Reserve, Synthesise};
use super::{Life, Model, ModelPart};
use crate::schedule::{Circuit, DeviceIndex, DeviceSet, PartId, Priority, Scheduler};

impl Model {
    /// Parts of ready jobs in a place, the one that goes first before the others.
    fn ready(&self, place: Place) -> Vec<PartId> {
        let mut ready = Vec::new();
        for (&job, entry) in self.jobs.iter().filter(|(_, job)| job.life == Life::Proves) {
            for (index, _) in entry
                .parts
                .iter()
                .enumerate()
                .filter(|(_, part)| part.place == place)
            {
                ready.push((Reverse(entry.class), PartId { job, index }));
            }
        }
        ready.sort();
        ready.into_iter().map(|(_, id)| id).collect()
    }

    /// The part that may start before all others, and the devices that it may count on. One
    /// that waits for devices holds up those that need them, one that waits for what all
    /// share holds up all.
    pub(super) fn first_to_start(&self, scheduler: &Scheduler) -> Option<(PartId, DeviceSet)> {
        let mut awaited = DeviceSet::NONE;
        for id in self.ready(Place::Waits) {
            let (_, able) = self.circuits[&self.jobs[&id.job].circuit];
            let devices = able.minus(awaited);
            let in_service = self.in_service(id).into_iter();
            let is_left = in_service.into_iter().any(|device| devices.has(device));
            if !is_left && awaited != DeviceSet::NONE {
                continue;
            }
            match self.waits_for(id, devices, scheduler) {
                None => return Some((id, devices)),
                Some(waits_for) => awaited = awaited.plus(waits_for),
            }
        }
        None
    }

    pub(super) fn first_for_a_slot(&self, scheduler: &Scheduler) -> Option<PartId> {
        let ready = self.ready(After(Synthesise)).into_iter();
        ready
            .into_iter()
            .find(|&id| !self.slots_for(id).is_empty() && !self.waits_for_another(id, scheduler))
    }

    /// Whether every device that would have the part has one already, and the others will
    /// have proved all that is left before.
    fn waits_for_another(&self, id: PartId, scheduler: &Scheduler) -> bool {
        let job = &self.jobs[&id.job];
        let running = |device: DeviceIndex| {
            let parts = self.jobs.values().flat_map(|job| &job.parts);
            parts.filter(|part| part.device == Some(device)).count() as f64
        };
        let seconds = |device| scheduler.proof_seconds(job.circuit, device);
        let end = |device: DeviceIndex| (running(device) + 1.0) * seconds(device).unwrap_or(1.0);
        let best = self.slots_for(id).into_iter().min_by(|&left, &right| {
            let by_end = end(left).total_cmp(&end(right));
            by_end.then(running(left).total_cmp(&running(right)))
        });
        let Some(best) = best.filter(|&best| running(best) > 0.0 && seconds(best).is_some()) else {
            return false;
        };
        let others = self.in_service(id).into_iter();
        let others =
            others.filter(|&other| other != best && Some(other) != job.parts[id.index].failed_on);
        let by_others: f64 = others
            .map(|other| {
                // As many as end strictly before.
                let all = (end(best) / seconds(other).unwrap_or(1.0)).ceil() - 1.0;
                (all - running(other)).max(0.0)
            })
            .sum();
        let jobs = self.jobs.values();
        let jobs = jobs.filter(|other| other.life == Life::Proves && other.class >= job.class);
        let places = jobs.flat_map(|job| job.parts.iter().map(|part| part.place));
        let left = places.filter(|place| *place == Place::Waits || place.is_between());
        by_others >= left.count() as f64
    }

    pub(super) fn first_to_explain(&self) -> Option<PartId> {
        let ready = self.ready(Place::Rejected).into_iter();
        let explains = |part: &ModelPart| part.place == In(Stage::Explain);
        ready
            .into_iter()
            .find(|&id| self.count(id, |_, part| explains(part)) == 0)
    }

    /// Devices in service that can prove the part.
    pub(super) fn in_service(&self, id: PartId) -> Vec<DeviceIndex> {
        let (_, able) = self.circuits[&self.jobs[&id.job].circuit];
        let all = (0..self.lost.len()).map(DeviceIndex);
        all.filter(|&device| able.has(device) && !self.lost[device.0])
            .collect()
    }

    /// Devices that have a free slot for the part.
    pub(super) fn slots_for(&self, id: PartId) -> Vec<DeviceIndex> {
        let in_service = self.in_service(id);
        let failed_on = self.jobs[&id.job].parts[id.index].failed_on;
        let others = in_service.iter().copied();
        let others: Vec<_> = others.filter(|&device| Some(device) != failed_on).collect();
        let able = if others.is_empty() {
            in_service
        } else {
            others
        };
        let free = |device: &DeviceIndex| {
            let parts = self.jobs.values().flat_map(|job| &job.parts);
            let running = parts.filter(|part| part.device == Some(*device)).count();
            running < self.limits.device_slots[device.0]
        };
        able.into_iter().filter(free).collect()
    }

    /// What keeps a part from starting that counts on some devices: those, or all.
    fn waits_for(
        &self,
        id: PartId,
        devices: DeviceSet,
        scheduler: &Scheduler,
    ) -> Option<DeviceSet> {
        let circuit = self.jobs[&id.job].circuit;
        let (is_shared, _) = self.circuits[&circuit];
        let aim = scheduler.aim_at(circuit, devices);
        let is_counted =
            |of: Circuit| self.limits.synthesis_max.is_some() || self.circuits[&of].0 == is_shared;
        let synthesised = self.count(id, |of, part| {
            part.place.is_synthesised_soon() && is_counted(of)
        });
        let reserving = self.count(id, |_, part| part.place == In(Reserve));
        if reserving > 0 || synthesised >= self.synthesis_max(is_shared) {
            return Some(DeviceSet::ALL);
        }
        let flies = |part: &ModelPart| part.place.is_between() || part.place == In(Prove);
        let meets = |of: Circuit, part: &ModelPart| self.goes_to(of, part).meets(devices);
        if self.limits.parts_in_flight_max.is_some() {
            if self.count(id, |_, part| flies(part)) >= aim.parts_in_flight_max {
                return Some(DeviceSet::ALL);
            }
        } else if self.count(id, |of, part| flies(part) && meets(of, part))
            >= aim.parts_in_flight_max
        {
            return Some(devices);
        }
        let between = self.count(id, |of, part| part.place.is_between() && meets(of, part));
        (between >= aim.between_max()).then_some(devices)
    }

    /// Where a part that has started is proved.
    fn goes_to(&self, of: Circuit, part: &ModelPart) -> DeviceSet {
        let (_, able) = self.circuits[&of];
        match part.device {
            Some(device) => [device].into_iter().collect(),
            None if able.meets(part.started_for) => {
                let others = DeviceSet::ALL.minus(part.started_for);
                able.minus(others)
            }
            None => able,
        }
    }

    fn synthesis_max(&self, is_shared: bool) -> usize {
        use crate::config::Dispatch::Reactive;
        match (self.limits.synthesis_max, self.limits.dispatch) {
            (Some(max), _) => max,
            (None, Reactive) if is_shared => 2,
            (None, _) => self.limits.threads,
        }
    }

    /// Parts of the job's own or a higher class; of jobs that end those in a stage.
    fn count(&self, id: PartId, counts: impl Fn(Circuit, &ModelPart) -> bool) -> usize {
        let class = self.jobs[&id.job].class;
        let above = self.jobs.values().filter(|job| job.class >= class);
        above
            .flat_map(|job| job.parts.iter().map(move |part| (job, part)))
            .filter(|(job, part)| job.life != Life::Ends || matches!(part.place, In(_)))
            .filter(|&(job, part)| counts(job.circuit, part))
            .count()
    }

    /// Nothing that may start is left idle, and nothing late is waited for.
    pub(super) fn rest(&self, scheduler: &Scheduler) {
        let waiting = self.first_to_start(scheduler);
        self.check(waiting.is_none(), "could start", &waiting);
        let reserved = self.ready(After(Reserve));
        self.check(reserved.is_empty(), "could be synthesised", &reserved);
        let for_a_slot = self.first_for_a_slot(scheduler);
        self.check(for_a_slot.is_none(), "could be proved", &for_a_slot);
        let proved = self.ready(After(Prove));
        self.check(proved.is_empty(), "could be verified", &proved);
        let rejected = self.first_to_explain();
        self.check(rejected.is_none(), "could be explained", &rejected);
        for id in self.ready(After(Synthesise)) {
            let in_service = self.in_service(id);
            self.check(!in_service.is_empty(), "waits for no device", &id);
        }
        let late = self.late();
        self.check(late.is_empty(), "hang", &late);
        for (id, job) in &self.jobs {
            let is_loading = job.life != Life::Loads || job.busy;
            self.check(is_loading, "does not load its key", id);
            self.check(!job.is_proved(), "is not handed over", id);
            let is_over = job.life == Life::Ends && !job.runs();
            self.check(!is_over, "is not aborted", id);
            let can_cancel = job.life != Life::Completes;
            self.check(
                scheduler.can_cancel(*id) == can_cancel,
                "is cancelled while it is handed over, or not",
                id,
            );
            let waits_below =
                |part: &ModelPart| part.place == In(Reserve) && part.asked < job.class;
            let is_urged = job.life != Life::Proves || !job.parts.iter().any(waits_below);
            self.check(is_urged, "waits with a priority that it had before", id);
            let is_raised = job.class != job.given && job.class == Priority::Critical;
            self.check(!is_raised, "is raised to the highest", id);
        }
    }
}
