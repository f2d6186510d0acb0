//! The one thread that owns all jobs: it turns what happened into events for the
//! scheduler, and the scheduler's answers into threads that each run one stage.
//!
//! What a stage leaves travels with its message, so no lock guards it: it is either
//! with the stage that works on it or in the table here. A stage that panics fails
//! its part alone.

mod telling;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use cuzk_gpu::{Key, KeyTier};

use super::job::{PartReport, Place, ProofReply};
use super::table::{Entry, Message, PartData, PartEntry};
use super::thread::spawn;
use crate::error::{Failure, ProveError};
use crate::log;
use crate::schedule::{
    Action, Aim, Circuit, DeviceIndex, Event, JobId, Limits, PartId, Priority, Scheduler,
    StageLimits, Work,
};
use crate::stage::{self, Filled, Job, Shared, Synthesised};
use crate::{CircuitId, CircuitSpec, Filling, Obstacle};

pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    scheduler: Scheduler,
    stages: StageLimits,
    /// The scheduler's clock counts from here.
    start: Instant,
    jobs: HashMap<JobId, Entry>,
    /// Every circuit that there was a job of, by the scheduler's number, and what was
    /// aimed at for it last.
    circuits: HashMap<CircuitId, (Circuit, Option<Aim>)>,
    outbox: Sender<Message>,
    inbox: Receiver<Message>,
    stopping: bool,
    /// When those who wait for the end are told next what it waits for, if they are, and after
    /// how long again.
    stop_told: Option<(Instant, Duration)>,
    /// Devices that the scheduler was told as lost.
    lost: Vec<bool>,
}

/// Says that the dispatcher has ended, in whatever way.
pub(super) struct Ended(pub(super) Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Dispatcher {
    pub(super) fn new(
        shared: Arc<Shared>,
        limits: Limits,
        outbox: Sender<Message>,
        inbox: Receiver<Message>,
    ) -> Self {
        let stages = limits.stages;
        let lost = vec![false; limits.device_slots.len()];
        let scheduler = Scheduler::new(limits);
        Self {
            shared,
            scheduler,
            stages,
            start: Instant::now(),
            circuits: HashMap::new(),
            lost,
            jobs: HashMap::new(),
            outbox,
            inbox,
            stopping: false,
            stop_told: None,
        }
    }

    pub(super) fn run(mut self, ended: Ended) {
        // Dropped before the inbox is: whoever is told that the engine has stopped sees it
        // out of service.
        let _ended = ended;
        while !(self.stopping && self.jobs.is_empty()) {
            let heard = match self.next_message() {
                Ok(message) => self.hear(message),
                Err(RecvTimeoutError::Timeout) => vec![Event::Tick],
                // The dispatcher holds a sender itself, so the channel stays open.
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // Told first, so that no part goes there, and one that failed there elsewhere.
            for event in self.newly_lost().into_iter().chain(heard) {
                for action in self.scheduler.step(event, self.start.elapsed()) {
                    self.start(action);
                }
                if let Event::Completed(id) = event {
                    self.finish(id);
                }
            }
            // Jobs that wait for threads may have been given up or raised by it.
            self.shared.crew.look_again();
            self.log_aims();
            self.tell_waits();
            self.tell_stop();
        }
    }

    fn newly_lost(&mut self) -> Vec<Event> {
        let devices = self.lost.iter_mut().enumerate();
        let newly = devices.filter_map(|(index, was_lost)| {
            let device = DeviceIndex(index);
            let is_new = !*was_lost && self.shared.backends.is_lost(device);
            *was_lost |= is_new;
            is_new.then_some(Event::DeviceLost(device))
        });
        newly.collect()
    }

    /// The next message, or that time alone changes something.
    fn next_message(&self) -> Result<Message, RecvTimeoutError> {
        let deadline = self.scheduler.next_deadline();
        let until_late = deadline.map(|deadline| deadline.saturating_sub(self.start.elapsed()));
        // Stages wait for memory by themselves, and are looked at as long as any may.
        let told_after = self.shared.waits.told_after();
        let until_told = told_after.filter(|_| !self.jobs.is_empty());
        match until_late.into_iter().chain(until_told).min() {
            None => Ok(self.inbox.recv()?),
            Some(wait_max) => self.inbox.recv_timeout(wait_max),
        }
    }

    /// Keeps what a message brings and says what happened.
    fn hear(&mut self, message: Message) -> Vec<Event> {
        match message {
            Message::Submit {
                id,
                job,
                circuit,
                priority,
                width,
                reply,
                place,
            } => {
                let count = self.circuits.len();
                let number = || (Circuit(count), None);
                let (circuit, _) = *self.circuits.entry(circuit).or_insert_with(number);
                let event = Event::Submit {
                    job: id,
                    priority,
                    parts: job.part_count,
                    circuit,
                    width,
                };
                self.admit(id, job, reply, place)
                    .then_some(event)
                    .into_iter()
                    .collect()
            }
            Message::Key(id, result) => self.of_job(id, result, |entry, key| {
                entry.key = Some(key);
                Event::KeyReady(id)
            }),
            Message::Encoded(id, result) => self.of_job(id, result, |entry, proof| {
                entry.proof = Some(proof);
                Event::Completed(id)
            }),
            Message::Part(part, stage, result) => self.of_part(part, stage, *result),
            Message::Raise(job, priority) => {
                // Also what begins no reservation any more asks with it: threads, an explain.
                if let Some(entry) = self.jobs.get(&job) {
                    entry.job.standing.raise(priority);
                }
                vec![Event::Raise { job, priority }]
            }
            Message::Cancel(id) => self.cancel(id),
            // Those that are lost are told whatever was heard.
            Message::Devices => Vec::new(),
            Message::Stop => {
                self.stopping = true;
                let told_after = self.shared.waits.told_after();
                self.stop_told =
                    told_after.and_then(|after| Some((Instant::now().checked_add(after)?, after)));
                let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
                jobs.into_iter().flat_map(|id| self.cancel(id)).collect()
            }
        }
    }

    /// Takes a job in, unless the engine stops.
    fn admit(
        &mut self,
        id: JobId,
        job: Arc<Job>,
        reply: Sender<Result<ProofReply, ProveError>>,
        place: Place,
    ) -> bool {
        if self.stopping {
            // Its caller may be gone; then nobody needs the answer.
            let _ = reply.send(Err(ProveError::Stopped));
            return false;
        }
        let entry = Entry {
            key: None,
            parts: (0..job.part_count).map(|_| PartEntry::default()).collect(),
            job,
            error: None,
            proof: None,
            reply,
            queued: Instant::now(),
            running: None,
            place,
        };
        self.jobs.insert(id, entry);
        true
    }

    fn of_job<T>(
        &mut self,
        id: JobId,
        result: Result<T, Failure>,
        keep: impl FnOnce(&mut Entry, T) -> Event,
    ) -> Vec<Event> {
        let Some(entry) = self.jobs.get_mut(&id) else {
            return Vec::new();
        };
        entry.running = None;
        vec![match result {
            Ok(value) => keep(entry, value),
            Err(failure) => {
                entry.end(failure.error);
                Event::JobFailed(id)
            }
        }]
    }

    fn of_part(
        &mut self,
        part: PartId,
        stage: u64,
        result: Result<PartData, Failure>,
    ) -> Vec<Event> {
        let Some(entry) = self.jobs.get_mut(&part.job) else {
            return Vec::new();
        };
        let attempt = &mut entry.parts[part.index];
        // What was given up holds memory until here.
        if attempt.stage != stage {
            return Vec::new();
        }
        attempt.device = None;
        attempt.running = None;
        match result {
            Ok(data) => {
                let event = match &data {
                    PartData::Reserved(_) => Event::Reserved(part),
                    PartData::Outgrown(_) => Event::Outgrown(part),
                    PartData::Synthesised(synthesised, devices) => Event::Synthesised {
                        part,
                        work: work(synthesised, entry.job.circuit.as_ref()),
                        devices: *devices,
                    },
                    PartData::Proved(_) => Event::Proved(part),
                    PartData::Rejected(_) => Event::Rejected(part),
                    PartData::Verified(_) => Event::Verified(part),
                };
                entry.keep(part.index, data);
                vec![event]
            }
            Err(failure) => {
                let retry = failure.retry;
                entry.part_failed(part.index, failure);
                vec![Event::PartFailed { part, retry }]
            }
        }
    }

    fn cancel(&mut self, id: JobId) -> Vec<Event> {
        let Some(entry) = self.jobs.get_mut(&id) else {
            return Vec::new();
        };
        // A proof that is being handed over is checked and told as what it is.
        if !self.scheduler.can_cancel(id) {
            return Vec::new();
        }
        entry.end(ProveError::Cancelled);
        vec![Event::Cancel(id)]
    }

    fn start(&mut self, action: Action) {
        match action {
            Action::LoadKey(id) => self.load_key(id),
            Action::Reserve { part, priority } => self.reserve(part, priority),
            Action::Urge { part, priority } => self.entry(part.job).job.standing.raise(priority),
            Action::Synthesise(part) => {
                self.start_part("synthesis", part, |shared, job, key, index, data| {
                    let Some(PartData::Reserved(reserved)) = data else {
                        unreachable!("was reserved")
                    };
                    match stage::synthesise(shared, job, &key, index, reserved)? {
                        Filled::Outgrown(sizes) => Ok(PartData::Outgrown(sizes)),
                        Filled::Whole(part) => {
                            let able = shared.backends.able(&part.shape.sizes, &key);
                            let able = able.map_err(Failure::fatal)?;
                            Ok(PartData::Synthesised(*part, able))
                        }
                    }
                });
            }
            Action::Prove { part, device } => {
                self.entry(part.job).parts[part.index].device = Some(device);
                self.start_part("prove", part, move |shared, job, key, index, data| {
                    let Some(PartData::Synthesised(synthesised, _)) = data else {
                        unreachable!("was filled")
                    };
                    stage::prove(shared, job, key, index, device, synthesised).map(PartData::Proved)
                });
            }
            Action::Verify(part) => {
                self.start_part("verify", part, |shared, _, key, _, data| {
                    let Some(PartData::Proved(proved)) = data else {
                        unreachable!("was proved")
                    };
                    let verified = stage::verify(shared, &key, proved);
                    Ok(verified.map_or_else(PartData::Rejected, PartData::Verified))
                });
            }
            Action::Explain(part) => {
                self.start_part("explain", part, |shared, job, key, index, data| {
                    let Some(PartData::Rejected(synthesis)) = data else {
                        unreachable!("was rejected")
                    };
                    Err(stage::explain(shared, job, &key, index, synthesis))
                });
            }
            Action::Complete(id) => self.complete(id),
            Action::Refuse(part) => self.refuse(part),
            Action::GiveUp {
                job,
                part,
                stage,
                device,
            } => self.give_up(job, part, stage, device),
            Action::Abort(id) => self.abort(id),
        }
    }

    fn entry(&mut self, id: JobId) -> &mut Entry {
        let entry = self.jobs.get_mut(&id);
        entry.expect("the scheduler knows only jobs of ours")
    }

    /// No device is left that can prove a part.
    fn refuse(&mut self, part: PartId) {
        let shared = Arc::clone(&self.shared);
        let entry = self.entry(part.job);
        let able = match (&entry.parts[part.index].data, &entry.key) {
            (Some(PartData::Synthesised(made, _)), Some(key)) => {
                shared.backends.able(&made.shape.sizes, key)
            }
            _ => unreachable!("was filled"),
        };
        let error = able.err();
        entry.end(error.unwrap_or_else(|| shared.backends.out_of_service()));
    }

    /// A stage takes too long: nobody waits for it any more. Its memory stays counted
    /// until its thread returns.
    fn give_up(
        &mut self,
        id: JobId,
        part: Option<usize>,
        stage: &'static str,
        device: Option<DeviceIndex>,
    ) {
        let limit = match stage {
            "synthesis" => self.stages.synthesis_max,
            "prove" => self.stages.prove_max,
            _ => self.stages.other_max,
        };
        let limit = limit.unwrap_or(Duration::MAX);
        let error = ProveError::Stalled { stage, part, limit };
        let shared = Arc::clone(&self.shared);
        shared.metrics.stages_given_up.add(1);
        let entry = self.entry(id);
        let job = &entry.job.label;
        tracing::error!(job, %error, "nobody waits for it any more");
        if let Some(device) = device {
            shared.backends.lose(device, format!("{job}: {error}"));
        }
        match part {
            Some(part) => {
                entry.parts[part].stage += 1;
                entry.parts[part].running = None;
                entry.parts[part].device = None;
                let retry = device.is_some();
                entry.part_failed(part, Failure { error, retry });
            }
            None => {
                entry.running = None;
                entry.end(error);
            }
        }
    }

    fn load_key(&mut self, id: JobId) {
        let shared = Arc::clone(&self.shared);
        let entry = self.entry(id);
        entry.running = Some(("key", Instant::now()));
        let (shared, job) = (shared, Arc::clone(&entry.job));
        spawn(
            self.outbox.clone(),
            "key",
            move |result| Message::Key(id, result),
            move || {
                job.timeline
                    .time("key", None, || shared.keys.load(job.circuit.as_ref()))
                    .map_err(Failure::fatal)
            },
        );
    }

    fn reserve(&mut self, part: PartId, priority: Priority) {
        let shared = Arc::clone(&self.shared);
        let entry = self.entry(part.job);
        entry.job.standing.raise(priority);
        let attempt = &mut entry.parts[part.index];
        let is_outgrown = matches!(attempt.data, Some(PartData::Outgrown(_)));
        if !is_outgrown {
            attempt.attempts += 1;
            attempt.error = None;
            if attempt.attempts > 1 {
                shared.metrics.parts_retried.add(1);
            } else {
                let timeline = &entry.job.timeline;
                timeline.add("queue", Some(part.index), entry.queued, Instant::now());
            }
        }
        self.start_part("reserve", part, move |shared, job, key, index, data| {
            let outgrown = match data {
                Some(PartData::Outgrown(sizes)) => Some(sizes),
                _ => None,
            };
            stage::reserve(shared, job, &key, index, outgrown).map(PartData::Reserved)
        });
    }

    fn start_part(
        &mut self,
        stage: &'static str,
        part: PartId,
        run: impl FnOnce(&Shared, &Job, Arc<Key>, usize, Option<PartData>) -> Result<PartData, Failure>
        + Send
        + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let entry = self.entry(part.job);
        let attempt = &mut entry.parts[part.index];
        attempt.stage += 1;
        attempt.running = Some((stage, Instant::now()));
        let number = attempt.stage;
        let data = attempt.data.take();
        let key = Arc::clone(
            entry
                .key
                .as_ref()
                .expect("parts start when the key is there"),
        );
        let job = Arc::clone(&entry.job);
        spawn(
            self.outbox.clone(),
            stage,
            move |result| Message::Part(part, number, Box::new(result)),
            move || {
                if job.standing.is_given_up() {
                    return Err(Failure::fatal(ProveError::Cancelled));
                }
                let index = part.index;
                let from = Instant::now();
                let result = run(&shared, &job, key, index, data);
                // The backend's phases stand for the proof's span.
                let until = Instant::now();
                if stage != "prove" || result.is_err() {
                    job.timeline.add(stage, Some(index), from, until);
                }
                log::stage_ended(
                    stage,
                    &job.label,
                    index,
                    until - from,
                    result.as_ref().err(),
                );
                result
            },
        );
    }

    fn complete(&mut self, id: JobId) {
        let entry = self.entry(id);
        entry.running = Some(("complete", Instant::now()));
        let proofs: Vec<_> = entry
            .parts
            .iter()
            .map(|part| match &part.data {
                Some(PartData::Verified(verified)) => verified.proof.clone(),
                _ => unreachable!("a job completes when all its parts are verified"),
            })
            .collect();
        let key = Arc::clone(entry.key.as_ref().expect("its parts were proved with it"));
        let job = Arc::clone(&entry.job);
        spawn(
            self.outbox.clone(),
            "complete",
            move |result| Message::Encoded(id, result),
            move || stage::complete(&job, &key, &proofs),
        );
    }

    /// Answers a job whose proof is there.
    fn finish(&mut self, id: JobId) {
        let Some(entry) = self.jobs.remove(&id) else {
            return;
        };
        let parts = entry.parts.iter().filter_map(|part| match &part.data {
            Some(PartData::Verified(verified)) => Some(PartReport {
                placed: verified.made.placed,
                synthesis: verified.made.synthesis,
                tier: verified.made.tier,
                device: verified.made.device,
                retries: part.attempts - 1,
            }),
            _ => None,
        });
        let parts: Vec<PartReport> = parts.collect();
        // The job's tier is the lowest of its parts'.
        let lowest = parts.iter().map(|part| part.tier).min();
        let reply = ProofReply {
            backend: self.shared.backends.any().name(),
            tier: lowest.unwrap_or(KeyTier::Resident).to_string(),
            parts,
            timeline: entry.job.timeline.clone(),
            proof: entry.proof.expect("completed means encoded"),
        };
        self.shared.metrics.jobs_completed.add(1);
        // What the job held goes back before its caller hears of the end: its place,
        // and the key, which then may be dropped.
        drop((entry.parts, entry.key, entry.place));
        // A caller that dropped its handle does not want the proof.
        let _ = entry.reply.send(Ok(reply));
    }

    /// Answers a job that ends without a proof.
    fn abort(&mut self, id: JobId) {
        let Some(mut entry) = self.jobs.remove(&id) else {
            return;
        };
        // Without an error of the job, a part has used up its attempts.
        let of_part = entry.parts.iter_mut().find_map(|part| part.error.take());
        let error = entry.error.or(of_part).unwrap_or(ProveError::Cancelled);
        let metrics = &self.shared.metrics;
        match error {
            ProveError::Cancelled => metrics.jobs_cancelled.add(1),
            _ => metrics.jobs_failed.add(1),
        }
        // What the job held goes back before its caller hears of the end.
        drop((entry.parts, entry.key, entry.place));
        let _ = entry.reply.send(Err(error));
    }
}

/// What a synthesis took, if others of the circuit will be made in its way.
fn work(synthesised: &Synthesised, circuit: &dyn CircuitSpec) -> Option<Work> {
    let width = match synthesised.synthesis {
        Filling::Segments => circuit.segments(),
        Filling::Whole | Filling::Instead(Obstacle::Differs | Obstacle::Growing) => 1,
        Filling::Instead(Obstacle::Surveyed | Obstacle::Doubted | Obstacle::NoMemory) => {
            return None;
        }
    };
    let time = synthesised.worked;
    Some(Work { width, time })
}
