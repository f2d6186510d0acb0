//! What starts now, and the numbers that it is held against.

use std::cmp::Reverse;

use super::devices::DeviceSet;
use super::job::{JobStage, Stage};
use super::{Action, Aim, Circuit, Dispatch, JobId, PartId, Priority, Scheduler};

/// What is counted of parts, each for a class of priority.
#[derive(Clone, Copy, Debug)]
enum Counted {
    Reserving,
    /// Synthesised, or about to be.
    Synthesising,
    /// The threads that those can use which are cut in segments.
    Shared,
    /// Those that have a thread of their own.
    Lone,
    Explaining,
}

/// Parts in each stage, among them those of ending jobs that a stage works on.
#[derive(Default)]
struct Load {
    counts: [[usize; Priority::CLASSES]; 5],
    /// Those in flight.
    flying: Vec<Flying>,
}

struct Flying {
    class: Priority,
    /// Where it may be proved, or is.
    devices: DeviceSet,
    is_between: bool,
}

impl Load {
    /// One more part; its synthesis can use `threads`, and more than one if it is shared.
    fn add(
        &mut self,
        class: Priority,
        stage: Stage,
        is_shared: bool,
        threads: usize,
        devices: DeviceSet,
    ) {
        let has_place = stage.has_synthesis_place();
        for (is_counted, counted, count) in [
            (stage == Stage::Reserving, Counted::Reserving, 1),
            (has_place, Counted::Synthesising, 1),
            (has_place && is_shared, Counted::Shared, threads),
            (has_place && !is_shared, Counted::Lone, 1),
            (stage == Stage::Explaining, Counted::Explaining, 1),
        ] {
            self.counts[counted as usize][class as usize] += if is_counted { count } else { 0 };
        }
        if stage.in_flight() {
            self.flying.push(Flying {
                class,
                devices,
                is_between: stage.is_between(),
            });
        }
    }

    /// Parts of a class or a higher one.
    fn of(&self, counted: Counted, class: Priority) -> usize {
        self.counts[counted as usize][class as usize..].iter().sum()
    }

    /// Of those in flight, the ones of a class or a higher one that a device of a set may
    /// prove, or does.
    fn flying(&self, class: Priority, set: DeviceSet) -> impl Iterator<Item = &Flying> {
        let flying = self.flying.iter();
        flying.filter(move |part| part.class >= class && part.devices.meets(set))
    }
}

impl Scheduler {
    /// What is aimed at now for the parts of a circuit.
    pub fn aim(&self, circuit: Circuit) -> Aim {
        self.aim_at(circuit, self.devices_of(circuit))
    }

    /// What is aimed at for those of its parts that go to devices of a set.
    pub(super) fn aim_at(&self, circuit: Circuit, devices: DeviceSet) -> Aim {
        let rates = self.circuits.get(&circuit);
        let width = self.width(circuit);
        let lead = match self.limits.dispatch {
            Dispatch::Burst => usize::MAX,
            Dispatch::Reactive => rates.map_or(1, |rates| rates.lead(&self.devices, devices)),
        };
        let lead = if mutated!(self, AlwaysBursts) {
            usize::MAX
        } else if mutated!(self, NeverLeads) {
            0
        } else {
            lead
        };
        Aim {
            lead,
            free_slots: self.devices.free_slots(devices),
            synthesis_max: self.limits.synthesis_max(width),
            parts_in_flight_max: self
                .limits
                .parts_in_flight_max(width, self.devices.slots(devices)),
        }
    }

    /// Starts whatever may start now.
    pub(super) fn dispatch(&mut self, actions: &mut Vec<Action>) {
        let order = self.order();
        // Slots first: whether a part may follow depends on those that are free after it.
        // One that waits for another slot may find it taken by one behind it, so they are
        // looked at until none is given any.
        loop {
            let before = actions.len();
            for &part in &order {
                self.start_proof(part, actions);
            }
            if actions.len() == before {
                break;
            }
        }
        self.end_jobs(actions);
        let mut load = self.load();
        // The devices that somebody waits for.
        let mut awaited = DeviceSet::NONE;
        for &part in &order {
            self.start_stage(part, &mut load, &mut awaited, actions);
        }
    }

    /// The parts of running jobs, those that go first before the others.
    fn order(&self) -> Vec<PartId> {
        let running = self.jobs.iter();
        let running = running.filter(|(_, job)| job.stage == JobStage::Running);
        let mut jobs: Vec<(Priority, JobId)> = running.map(|(&id, job)| (job.class, id)).collect();
        if mutated!(self, IgnoresPriority) {
            jobs.sort_by_key(|&(_, id)| id);
        } else if mutated!(self, ServesNewestFirst) {
            jobs.sort_by_key(|&(class, id)| Reverse((class, id)));
        } else {
            jobs.sort_by_key(|&(class, id)| (Reverse(class), id));
        }
        let parts = jobs.into_iter().flat_map(|(_, job)| {
            let count = self.jobs[&job].parts.len();
            let is_reversed = mutated!(self, ServesLastPartFirst);
            (0..count).map(move |index| PartId {
                job,
                index: if is_reversed {
                    count - 1 - index
                } else {
                    index
                },
            })
        });
        parts.collect()
    }

    fn load(&self) -> Load {
        let mut load = Load::default();
        for job in self.jobs.values() {
            let width = self.width(job.circuit);
            let threads = self.limits.used(width);
            // What ends has given back what no stage of it works on.
            let is_ending = job.stage == JobStage::Ending && !mutated!(self, CountsWhatEnds);
            for part in &job.parts {
                if !is_ending || part.stage.runs() {
                    let devices = self.devices_of(job.circuit);
                    let devices = match (part.device, devices.meets(part.bound)) {
                        (Some(device), _) => DeviceSet::one(device),
                        (None, true) => devices.minus(DeviceSet::ALL.minus(part.bound)),
                        (None, false) => devices,
                    };
                    load.add(job.class, part.stage, width > 1, threads, devices);
                }
            }
        }
        load
    }

    /// The devices that can prove the parts of a circuit, as far as is known.
    fn devices_of(&self, circuit: Circuit) -> DeviceSet {
        let rates = self.circuits.get(&circuit);
        rates.map_or(DeviceSet::ALL, |rates| rates.devices)
    }

    fn width(&self, circuit: Circuit) -> usize {
        let rates = self.circuits.get(&circuit);
        rates.map_or(1, |rates| rates.width)
    }

    /// Gives a part that is synthesised the slot where it will be proved first, if one is
    /// free.
    fn start_proof(&mut self, id: PartId, actions: &mut Vec<Action>) {
        let job = &self.jobs[&id.job];
        let part = &job.parts[id.index];
        if part.stage != Stage::Synthesised || job.stage != JobStage::Running {
            return;
        }
        let rates = &self.circuits[&job.circuit];
        if self.devices.in_service(rates.devices).next().is_none() {
            actions.push(Action::Refuse(id));
            let job = self.jobs.get_mut(&id.job).expect("it is in the order");
            job.stage = JobStage::Ending;
            return;
        }
        let Some(device) = self.devices.choose(rates, part.avoids) else {
            return;
        };
        let class = job.class;
        let left = self.parts_left(class);
        let devices = &self.devices;
        if !devices.is_worth_queueing(rates, device, part.avoids, left) {
            return;
        }
        self.devices.take(device);
        self.note_overtaken(id.job, class);
        self.enter(id, Stage::Proving);
        if let Some(part) = self.part(id) {
            part.device = Some(device);
        }
        actions.push(Action::Prove { part: id, device });
    }

    /// Parts of a class or a higher one that no device has yet.
    fn parts_left(&self, class: Priority) -> usize {
        let jobs = self.jobs.values();
        let jobs = jobs.filter(|job| job.class >= class && job.stage == JobStage::Running);
        let stages = jobs.flat_map(|job| job.parts.iter().map(|part| part.stage));
        stages
            .filter(|stage| *stage == Stage::Waiting || stage.is_between())
            .count()
    }

    /// Seconds of a proof of the circuit on a device, as far as any is measured.
    #[cfg(test)]
    pub(super) fn proof_seconds(
        &self,
        circuit: Circuit,
        device: super::DeviceIndex,
    ) -> Option<f64> {
        self.circuits.get(&circuit)?.proof_seconds(device)
    }

    /// Starts the part's next stage, if it may.
    fn start_stage(
        &mut self,
        id: PartId,
        load: &mut Load,
        awaited: &mut DeviceSet,
        actions: &mut Vec<Action>,
    ) {
        let Some(job) = self.jobs.get(&id.job) else {
            return;
        };
        if job.stage != JobStage::Running {
            return;
        }
        let (class, circuit) = (job.class, job.circuit);
        let explaining = load.of(Counted::Explaining, class);
        let mut bound = DeviceSet::ALL;
        let (stage, action) = match job.parts[id.index].stage {
            Stage::Waiting => {
                let of_circuit = self.devices_of(circuit);
                bound = of_circuit.minus(*awaited);
                // One that no device is left for is told so where its memory is asked for.
                let is_left = self.devices.in_service(bound).next().is_some();
                if !is_left && *awaited != DeviceSet::NONE {
                    return;
                }
                if let Err(held_up) = self.may_take_off(class, circuit, bound, load) {
                    *awaited = awaited.plus(held_up);
                    return;
                }
                self.note_overtaken(id.job, class);
                let priority = class;
                (Stage::Reserving, Action::Reserve { part: id, priority })
            }
            // It had its place from the start of its reservation.
            Stage::Reserved => (Stage::Synthesising, Action::Synthesise(id)),
            Stage::Proved => (Stage::Verifying, Action::Verify(id)),
            // A whole synthesis, of a part that is not in flight any more.
            Stage::Rejected if explaining == 0 || mutated!(self, ExplainsAll) => {
                (Stage::Explaining, Action::Explain(id))
            }
            _ => return,
        };
        // What is in flight already is counted.
        if matches!(stage, Stage::Reserving | Stage::Explaining) {
            let width = self.width(circuit);
            load.add(class, stage, width > 1, self.limits.used(width), bound);
        }
        self.enter(id, stage);
        if let (Stage::Reserving, Some(part)) = (stage, self.part(id)) {
            part.bound = bound;
            part.asked = class;
        }
        actions.push(action);
    }

    /// Whether a part of a class may start its reservation, to go to a device of a set. If
    /// not, the devices that others must not be started for before it: that set where it
    /// is what is not free, and all where it is anything that all share.
    fn may_take_off(
        &self,
        class: Priority,
        circuit: Circuit,
        bound: DeviceSet,
        load: &Load,
    ) -> Result<(), DeviceSet> {
        let aim = self.aim_at(circuit, bound);
        let Aim {
            synthesis_max,
            parts_in_flight_max,
            ..
        } = aim;
        let counted_from = match mutated!(self, CountsLowerPriorities) {
            true => Priority::Low,
            false => class,
        };
        let of = |counted| load.of(counted, counted_from);
        // Where a number is given it is for all together.
        let width = self.width(circuit);
        let (synthesising, each) = match (self.limits.synthesis_max, width) {
            (Some(_), _) => (of(Counted::Synthesising), 1),
            // In threads: syntheses of several widths go side by side.
            (None, 2..) => (of(Counted::Shared), self.limits.used(width)),
            (None, _) => (of(Counted::Lone), 1),
        };
        // Where a number is given it is for all together here too.
        let (in_flight, flying_set) = match self.limits.parts_in_flight_max {
            Some(_) => (
                load.flying(counted_from, DeviceSet::ALL).count(),
                DeviceSet::ALL,
            ),
            None => (load.flying(counted_from, bound).count(), bound),
        };
        let between = load
            .flying(counted_from, bound)
            .filter(|part| part.is_between);
        let held_up = match mutated!(self, HoldsUpAllBehind) {
            true => |_| DeviceSet::ALL,
            false => |set| set,
        };
        // One wait for memory at a time (and priority) keeps the order.
        if (of(Counted::Reserving) > 0 && !mutated!(self, ReservesTogether))
            || (synthesising >= synthesis_max.saturating_mul(each)
                && !mutated!(self, ForgetsSynthesisMax))
        {
            Err(DeviceSet::ALL)
        } else if in_flight >= parts_in_flight_max && !mutated!(self, ForgetsInFlightMax) {
            Err(held_up(flying_set))
        } else if between.count() >= aim.between_max() {
            Err(held_up(bound))
        } else {
            Ok(())
        }
    }

    /// A part of `by` starts, or is given a slot: jobs that came before it and go on waiting
    /// are overtaken.
    fn note_overtaken(&mut self, by: JobId, class: Priority) {
        let now = self.now;
        let starts_alone = mutated!(self, ForgetsWaitsForSlots);
        for (_, job) in self.jobs.range_mut(..by) {
            if job.class < class && job.waits(starts_alone) {
                job.overtaken.get_or_insert(now);
            }
        }
        if let Some(job) = self.jobs.get_mut(&by) {
            job.overtaken = None;
        }
    }

    /// Completes jobs whose parts are all verified, and aborts ending ones of which
    /// nothing runs any more.
    fn end_jobs(&mut self, actions: &mut Vec<Action>) {
        let (aborts_busy, completes_early) = (
            mutated!(self, AbortsBusy),
            mutated!(self, CompletesWithoutLast),
        );
        let now = self.now;
        self.jobs.retain(|&id, job| {
            let ended = job.stage == JobStage::Ending && (job.idle() || aborts_busy);
            if ended {
                actions.push(Action::Abort(id));
            }
            !ended
        });
        for (&id, job) in &mut self.jobs {
            let is_early = completes_early
                && job.stage == JobStage::Running
                && job
                    .parts
                    .iter()
                    .rev()
                    .skip(1)
                    .all(|part| part.stage == Stage::Verified)
                && job.parts.len() > 1;
            if job.is_verified() || is_early {
                job.stage = JobStage::Completing;
                job.busy = true;
                job.since = now;
                actions.push(Action::Complete(id));
            }
        }
    }
}
