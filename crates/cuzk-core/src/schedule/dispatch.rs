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
    Between,
    InFlight,
    Explaining,
}

/// Parts in each stage, among them those of ending jobs that a stage works on.
#[derive(Default)]
struct Load([[usize; Priority::CLASSES]; 7]);

impl Load {
    /// One more part; its synthesis can use `threads`, and more than one if it is shared.
    fn add(&mut self, class: Priority, stage: Stage, is_shared: bool, threads: usize) {
        let has_place = stage.has_synthesis_place();
        for (is_counted, counted, count) in [
            (stage == Stage::Reserving, Counted::Reserving, 1),
            (has_place, Counted::Synthesising, 1),
            (has_place && is_shared, Counted::Shared, threads),
            (has_place && !is_shared, Counted::Lone, 1),
            (stage.is_between(), Counted::Between, 1),
            (stage.in_flight(), Counted::InFlight, 1),
            (stage == Stage::Explaining, Counted::Explaining, 1),
        ] {
            self.0[counted as usize][class as usize] += if is_counted { count } else { 0 };
        }
    }

    /// Parts of a class or a higher one.
    fn of(&self, counted: Counted, class: Priority) -> usize {
        self.0[counted as usize][class as usize..].iter().sum()
    }
}

impl Scheduler {
    /// What is aimed at now for the parts of a circuit.
    pub fn aim(&self, circuit: Circuit) -> Aim {
        let rates = self.circuits.get(&circuit);
        let devices = rates.map_or(DeviceSet::ALL, |rates| rates.devices);
        let width = self.width(circuit);
        let lead = match self.limits.dispatch {
            Dispatch::Burst => usize::MAX,
            Dispatch::Reactive => rates.map_or(1, |rates| rates.lead(&self.devices)),
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
        for &part in &order {
            self.start_proof(part, actions);
        }
        self.end_jobs(actions);
        let mut load = self.load();
        let mut is_held_up = false;
        for &part in &order {
            self.start_stage(part, &mut load, &mut is_held_up, actions);
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
                    load.add(job.class, part.stage, width > 1, threads);
                }
            }
        }
        load
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
        is_held_up: &mut bool,
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
        let (stage, action) = match job.parts[id.index].stage {
            Stage::Waiting if !*is_held_up => {
                if !self.may_take_off(class, circuit, load) {
                    *is_held_up = true;
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
            load.add(class, stage, width > 1, self.limits.used(width));
        }
        self.enter(id, stage);
        if let (Stage::Synthesising, Some(part)) = (stage, self.part(id)) {
            part.work_seconds = 0.0;
        }
        actions.push(action);
    }

    /// Whether a part of a class may start its reservation.
    fn may_take_off(&self, class: Priority, circuit: Circuit, load: &Load) -> bool {
        let aim = self.aim(circuit);
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
        // One wait for memory at a time (and priority) keeps the order.
        (of(Counted::Reserving) == 0 || mutated!(self, ReservesTogether))
            && (synthesising < synthesis_max.saturating_mul(each)
                || mutated!(self, ForgetsSynthesisMax))
            && (of(Counted::InFlight) < parts_in_flight_max || mutated!(self, ForgetsInFlightMax))
            && of(Counted::Between) < aim.between_max()
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
