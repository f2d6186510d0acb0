//! The one thread that owns all jobs: it turns what happened into events for the
//! scheduler, and the scheduler's answers into threads that each run one stage.
//!
//! What a stage leaves travels with its message, so no lock guards it: it is either
//! with the stage that works on it or in the table here. A stage that panics fails
//! its part alone.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use cuzk_gpu::{Key, KeyTier};
use cuzk_synth::Sizes;

use super::RETRIES_MAX;
use super::job::{PartReport, Place, ProofReply};
use crate::Filling;
use crate::error::{Failure, ProveError};
use crate::log;
use crate::schedule::{Action, Event, JobId, Limits, PartId, Scheduler};
use crate::stage::{self, Filled, Job, Proved, Reserved, Shared, Synthesised, Verified};

/// What the dispatcher hears.
pub(super) enum Message {
    /// A new job.
    Submit {
        /// Its number.
        id: JobId,
        /// The job.
        job: Arc<Job>,
        /// Where its end is told.
        reply: Sender<Result<ProofReply, ProveError>>,
        /// Its place in the queue.
        place: Place,
    },
    /// A key was loaded, or not.
    Key(JobId, Result<Arc<Key>, Failure>),
    /// A stage of a part has ended.
    Part(PartId, Box<Result<PartData, Failure>>),
    /// A job's proof is encoded, or not.
    Encoded(JobId, Result<Vec<u8>, Failure>),
    /// A caller gave a job up.
    Cancel(JobId),
    /// The engine is being dropped.
    Stop,
}

/// What a stage leaves of a part for the next one.
pub(super) enum PartData {
    Reserved(Reserved),
    /// Its circuit is larger than its columns were: the true sizes.
    Outgrown(Sizes),
    Synthesised(Synthesised),
    Proved(Proved),
    /// Its proof does not verify.
    Rejected(Filling),
    Verified(Verified),
}

/// A part of a job in the table.
#[derive(Default)]
struct PartEntry {
    /// `None` before its first stage has ended, and while a stage has it.
    data: Option<PartData>,
    /// Times it was started.
    attempts: usize,
    /// Why its last attempt failed, until the next begins.
    error: Option<ProveError>,
}

struct Entry {
    job: Arc<Job>,
    key: Option<Arc<Key>>,
    parts: Vec<PartEntry>,
    /// Why the job ends, once it does for a reason that no retry changes: the first.
    error: Option<ProveError>,
    proof: Option<Vec<u8>>,
    reply: Sender<Result<ProofReply, ProveError>>,
    queued: Instant,
    place: Place,
}

impl Entry {
    /// The job ends with `error`, if it does not end already, and no part of it waits
    /// for memory any longer.
    fn end(&mut self, error: ProveError) {
        self.error.get_or_insert(error);
        self.job.cancel.cancel();
    }
}

pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    scheduler: Scheduler,
    jobs: HashMap<JobId, Entry>,
    outbox: Sender<Message>,
    inbox: Receiver<Message>,
    stopping: bool,
}

impl Dispatcher {
    pub(super) fn new(
        shared: Arc<Shared>,
        limits: Limits,
        outbox: Sender<Message>,
        inbox: Receiver<Message>,
    ) -> Self {
        let scheduler = Scheduler::new(limits);
        Self {
            shared,
            scheduler,
            jobs: HashMap::new(),
            outbox,
            inbox,
            stopping: false,
        }
    }

    pub(super) fn run(mut self) {
        while !(self.stopping && self.jobs.is_empty()) {
            // The dispatcher holds a sender itself, so the channel stays open.
            let Ok(message) = self.inbox.recv() else {
                return;
            };
            for event in self.hear(message) {
                for action in self.scheduler.step(event) {
                    self.start(action);
                }
                if let Event::Completed(id) = event {
                    self.finish(id);
                }
            }
        }
    }

    /// Keeps what a message brings and says what happened.
    fn hear(&mut self, message: Message) -> Vec<Event> {
        match message {
            Message::Submit {
                id,
                job,
                reply,
                place,
            } => self.admit(id, job, reply, place),
            Message::Key(id, result) => self.of_job(id, result, |entry, key| {
                entry.key = Some(key);
                Event::KeyReady(id)
            }),
            Message::Encoded(id, result) => self.of_job(id, result, |entry, proof| {
                entry.proof = Some(proof);
                Event::Completed(id)
            }),
            Message::Part(part, result) => self.of_part(part, *result),
            Message::Cancel(id) => self.cancel(id),
            Message::Stop => {
                self.stopping = true;
                let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
                jobs.into_iter().flat_map(|id| self.cancel(id)).collect()
            }
        }
    }

    fn admit(
        &mut self,
        id: JobId,
        job: Arc<Job>,
        reply: Sender<Result<ProofReply, ProveError>>,
        place: Place,
    ) -> Vec<Event> {
        if self.stopping {
            // Its caller may be gone; then nobody needs the answer.
            let _ = reply.send(Err(ProveError::Stopped));
            return Vec::new();
        }
        let parts = job.part_count;
        let priority = job.priority;
        let entry = Entry {
            job,
            key: None,
            parts: (0..parts).map(|_| PartEntry::default()).collect(),
            error: None,
            proof: None,
            reply,
            queued: Instant::now(),
            place,
        };
        self.jobs.insert(id, entry);
        vec![Event::Submit {
            job: id,
            priority,
            parts,
        }]
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
        vec![match result {
            Ok(value) => keep(entry, value),
            Err(failure) => {
                entry.end(failure.error);
                Event::JobFailed(id)
            }
        }]
    }

    fn of_part(&mut self, part: PartId, result: Result<PartData, Failure>) -> Vec<Event> {
        let Some(entry) = self.jobs.get_mut(&part.job) else {
            return Vec::new();
        };
        vec![match result {
            Ok(data) => {
                let event = match &data {
                    PartData::Reserved(_) => Event::Reserved(part),
                    PartData::Outgrown(_) => Event::Outgrown(part),
                    PartData::Synthesised(_) => Event::Synthesised(part),
                    PartData::Proved(_) => Event::Proved(part),
                    PartData::Rejected(_) => Event::Rejected(part),
                    PartData::Verified(_) => Event::Verified(part),
                };
                entry.parts[part.index].data = Some(data);
                event
            }
            Err(Failure { error, retry }) => {
                // A part that has used up its attempts ends the job: nothing else of it
                // is to wait for memory any longer.
                if retry && entry.parts[part.index].attempts <= RETRIES_MAX {
                    let job = &entry.job.label;
                    tracing::warn!(job, part = part.index, %error, "a part failed");
                    entry.parts[part.index].error = Some(error);
                } else {
                    entry.end(error);
                }
                Event::PartFailed { part, retry }
            }
        }]
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
            Action::Reserve(part) => self.reserve(part),
            Action::Synthesise(part) => {
                self.start_part("synthesis", part, |shared, job, key, index, data| {
                    let Some(PartData::Reserved(reserved)) = data else {
                        unreachable!("was reserved")
                    };
                    Ok(
                        match stage::synthesise(shared, job, &key, index, reserved)? {
                            Filled::Whole(part) => PartData::Synthesised(*part),
                            Filled::Outgrown(sizes) => PartData::Outgrown(sizes),
                        },
                    )
                });
            }
            Action::Prove(part) => {
                self.start_part("prove", part, |shared, job, key, index, data| {
                    let Some(PartData::Synthesised(synthesised)) = data else {
                        unreachable!("was filled")
                    };
                    stage::prove(shared, job, key, index, synthesised).map(PartData::Proved)
                })
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
            Action::Abort(id) => self.abort(id),
        }
    }

    fn load_key(&mut self, id: JobId) {
        let entry = &self.jobs[&id];
        let (shared, job) = (Arc::clone(&self.shared), Arc::clone(&entry.job));
        self.spawn(
            "key",
            move |result| Message::Key(id, result),
            move || {
                job.timeline
                    .time("key", None, || shared.keys.load(job.circuit.as_ref()))
                    .map_err(Failure::fatal)
            },
        );
    }

    fn reserve(&mut self, part: PartId) {
        let entry = self
            .jobs
            .get_mut(&part.job)
            .expect("the scheduler knows only jobs of ours");
        let attempt = &mut entry.parts[part.index];
        let is_outgrown = matches!(attempt.data, Some(PartData::Outgrown(_)));
        if !is_outgrown {
            attempt.attempts += 1;
            attempt.error = None;
            if attempt.attempts > 1 {
                self.shared.metrics.parts_retried.add(1);
            } else {
                let timeline = &entry.job.timeline;
                timeline.add("queue", Some(part.index), entry.queued, Instant::now());
            }
        }
        self.start_part("reserve", part, |shared, job, key, index, data| {
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
        let entry = self
            .jobs
            .get_mut(&part.job)
            .expect("the scheduler knows only jobs of ours");
        let data = entry.parts[part.index].data.take();
        let key = Arc::clone(
            entry
                .key
                .as_ref()
                .expect("parts start when the key is there"),
        );
        let (shared, job) = (Arc::clone(&self.shared), Arc::clone(&entry.job));
        self.spawn(
            stage,
            move |result| Message::Part(part, Box::new(result)),
            move || {
                if job.cancel.is_cancelled() {
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
        let entry = &self.jobs[&id];
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
        self.spawn(
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

    /// Runs a stage on a thread of its own. The scheduler bounds how many reserve,
    /// synthesise, prove and explain; checks come no faster than proofs, and a job as a
    /// whole has one stage at a time.
    fn spawn<T: Send + 'static>(
        &self,
        stage: &'static str,
        message: impl FnOnce(Result<T, Failure>) -> Message + Send + 'static,
        run: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) {
        let outbox = self.outbox.clone();
        let end = StageEnd {
            stage,
            outbox,
            message: Some(message),
            _result: PhantomData,
        };
        let spawned = std::thread::Builder::new()
            .name(format!("cuzk-{stage}"))
            .spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
                    let message = panic_message(panic.as_ref());
                    Err(Failure::ours(ProveError::Panic { stage, message }))
                });
                end.tell(result);
            });
        if let Err(error) = spawned {
            tracing::error!(stage, %error, "a thread could not be started");
        }
    }
}

/// Tells the dispatcher how a stage ended, also if its thread never ran.
struct StageEnd<T, M: FnOnce(Result<T, Failure>) -> Message> {
    stage: &'static str,
    outbox: Sender<Message>,
    message: Option<M>,
    _result: PhantomData<fn(T)>,
}

impl<T, M: FnOnce(Result<T, Failure>) -> Message> StageEnd<T, M> {
    fn tell(mut self, result: Result<T, Failure>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<T, Failure>) {
        if let Some(message) = self.message.take() {
            // The dispatcher ends only when no stage runs.
            let _ = self.outbox.send(message(result));
        }
    }
}

impl<T, M: FnOnce(Result<T, Failure>) -> Message> Drop for StageEnd<T, M> {
    fn drop(&mut self) {
        let stage = self.stage;
        self.send(Err(Failure::ours(ProveError::Thread { stage })));
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is no text")
        .to_owned()
}
