//! What time alone does: stages become late, overtaken jobs move up.

use std::time::Duration;

use super::job::{JobStage, Stage};
use super::{Action, JobId, PartId, Priority, Scheduler};

impl Scheduler {
    /// When time alone changes something, if it does. A [`Tick`](super::Event::Tick) is due
    /// then.
    pub fn next_deadline(&self) -> Option<Duration> {
        let late = self.running().filter_map(|(_, stage, since)| {
            let max = self.stage_max(stage)?;
            since.checked_add(max)
        });
        let late = late.chain(self.jobs.values().filter_map(|job| {
            let max = self.limits.stages.other_max.filter(|_| job.busy)?;
            job.since.checked_add(max)
        }));
        late.chain(self.overtaken().map(|(_, until)| until)).min()
    }

    fn running(&self) -> impl Iterator<Item = (PartId, Stage, Duration)> {
        self.jobs.iter().flat_map(|(&job, entry)| {
            let parts = entry.parts.iter().enumerate();
            let running = parts.filter(|(_, part)| part.stage.runs());
            running.map(move |(index, part)| (PartId { job, index }, part.stage, part.since))
        })
    }

    /// How long a stage of a part may take.
    fn stage_max(&self, stage: Stage) -> Option<Duration> {
        let limits = &self.limits.stages;
        match stage {
            Stage::Synthesising => limits.synthesis_max,
            Stage::Proving => limits.prove_max,
            Stage::Verifying | Stage::Explaining => limits.other_max,
            _ => None,
        }
    }

    /// Gives up what takes longer than it may.
    pub(super) fn give_up_late(&mut self, actions: &mut Vec<Action>) {
        if mutated!(self, NeverGivesUp) {
            return;
        }
        let now = self.now;
        let is_late = |since: Duration, max: Option<Duration>| {
            max.and_then(|max| since.checked_add(max))
                .is_some_and(|until| until <= now)
        };
        let late = self.running();
        let late = late.filter(|(_, stage, since)| is_late(*since, self.stage_max(*stage)));
        let late: Vec<_> = late.map(|(part, stage, _)| (part, stage)).collect();
        for (part, stage) in late {
            self.give_up(part, stage, actions);
        }
        let other_max = self.limits.stages.other_max;
        for (&id, job) in &mut self.jobs {
            if job.busy && is_late(job.since, other_max) {
                actions.push(Action::GiveUp {
                    job: id,
                    part: None,
                    stage: job.stage_name(),
                    device: None,
                });
                job.busy = false;
                job.stage = JobStage::Ending;
            }
        }
    }

    fn give_up(&mut self, id: PartId, stage: Stage, actions: &mut Vec<Action>) {
        let device = self.part(id).and_then(|part| part.device);
        actions.push(Action::GiveUp {
            job: id.job,
            part: Some(id.index),
            stage: stage.name(),
            device,
        });
        if let Some(device) = device
            && !mutated!(self, KeepsHungDevices)
        {
            self.devices.lose(device);
        }
        self.fail_part(id, device.is_some());
    }

    /// Jobs that are overtaken and can move up, with when they do.
    fn overtaken(&self) -> impl Iterator<Item = (JobId, Duration)> {
        self.jobs.iter().filter_map(|(&id, job)| {
            let max = self.limits.overtaken_max?;
            let since = job.overtaken.filter(|_| job.class.raised() != job.class)?;
            Some((id, since.checked_add(max)?))
        })
    }

    /// Moves jobs up that were overtaken for too long.
    pub(super) fn raise_overtaken(&mut self) {
        if mutated!(self, NeverRaises) {
            return;
        }
        let now = self.now;
        let due = self.overtaken().filter(|(_, until)| *until <= now);
        let due: Vec<JobId> = due.map(|(id, _)| id).collect();
        let class = |class: Priority| match mutated!(self, RaisesToTheHighest) {
            true => Priority::Critical,
            false => class.raised(),
        };
        for id in due {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.class = class(job.class);
                job.overtaken = None;
            }
        }
    }

    /// A caller wants a job sooner.
    pub(super) fn raise(&mut self, id: JobId, priority: Priority) {
        if let Some(job) = self.jobs.get_mut(&id)
            && (priority > job.class || mutated!(self, LowersPriorities))
            && !mutated!(self, ForgetsRaises)
        {
            job.class = priority;
            job.overtaken = None;
        }
    }

    /// Parts that wait for memory or threads go on with the class of their job.
    pub(super) fn urge(&mut self, actions: &mut Vec<Action>) {
        if mutated!(self, NeverUrges) {
            return;
        }
        let running = self.jobs.iter_mut();
        for (&id, job) in running.filter(|(_, job)| job.stage == JobStage::Running) {
            let priority = job.class;
            for (index, part) in job.parts.iter_mut().enumerate() {
                if part.stage.has_synthesis_place() && part.asked < priority {
                    part.asked = priority;
                    let part = PartId { job: id, index };
                    actions.push(Action::Urge { part, priority });
                }
            }
        }
    }
}
