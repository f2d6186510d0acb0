//! The jobs that clients know: by the server's own id and by the name they gave.
//!
//! A job is *live* from the moment its request is taken until the engine answers.
//! Finished jobs are kept for a while, so that late waiters and repeated requests get the
//! result: so many proofs, and as many ends without one, neither of which makes the other
//! go. Everything here is quick and holds one lock;
//! waiting happens on channels.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cuzk_core::Timeline;
use cuzk_filecoin::{Priority, ProofKind};
use tokio::sync::watch;
use tonic::Status;

use super::content::Content;
use super::durations::Durations;
use super::status;
use crate::wire::AwaitProofResponse;
use crate::wire::await_proof_response::Status as End;

/// How long and how many finished jobs are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Proofs, and as many jobs that ended without one.
    pub(super) count_max: usize,
    /// Nothing is kept for no time: those who wait at the end have it, and nobody later.
    pub(super) age_max: Duration,
}

/// One job.
pub(super) struct Job {
    pub(super) id: String,
    pub(super) kind: ProofKind,
    pub(super) accepted: Instant,
    /// Live jobs that waited when this one came.
    pub(super) position: usize,
    name: String,
    content: Content,
    cancelled: AtomicBool,
    /// Only goes up.
    priority: watch::Sender<Priority>,
    /// The engine's side of it, while the engine has it: its spans are many, and only the
    /// answer is asked for later.
    engine: Mutex<Option<InEngine>>,
    admission: watch::Sender<Option<Result<(), Status>>>,
    end: watch::Sender<Option<Arc<AwaitProofResponse>>>,
}

/// What a job is known by in the engine.
struct InEngine {
    give_up: Box<dyn Fn() + Send + Sync>,
    raise: Box<dyn Fn(Priority) + Send + Sync>,
    timeline: Timeline,
}

impl Job {
    /// Waits until the engine has the job.
    ///
    /// # Errors
    /// Why the job was refused.
    pub(super) async fn admitted(&self) -> Result<(), Status> {
        let mut admission = self.admission.subscribe();
        let known = admission.wait_for(Option::is_some).await;
        match known.as_deref() {
            Ok(Some(result)) => result.clone(),
            _ => Err(status::internal("the job was lost")),
        }
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) -> Result<Arc<AwaitProofResponse>, Status> {
        let mut end = self.end.subscribe();
        let known = end.wait_for(Option::is_some).await;
        match known.as_deref() {
            Ok(Some(answer)) => Ok(Arc::clone(answer)),
            _ => Err(status::internal("the job was lost")),
        }
    }

    /// The highest priority that it was asked for with.
    pub(super) fn priority(&self) -> Priority {
        *self.priority.borrow()
    }

    /// Waits until it has so high a priority.
    pub(super) async fn has_priority(&self, wanted: Priority) {
        // The sender is in `self`, so the channel stays open.
        let mut priority = self.priority.subscribe();
        let _ = priority.wait_for(|priority| *priority >= wanted).await;
    }

    /// Raises its priority, here and in the engine if that has it.
    fn raise(&self, wanted: Priority) {
        let in_engine = self.in_engine();
        let is_higher = self.priority.send_if_modified(|priority| {
            let is_higher = wanted > *priority;
            *priority = wanted.max(*priority);
            is_higher
        });
        if !is_higher {
            return;
        }
        tracing::info!(job = self.id, priority = ?wanted, "asked for again with a higher priority");
        if let Some(in_engine) = &*in_engine {
            (in_engine.raise)(wanted);
        }
    }

    /// Whether somebody gave it up.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn end(&self) -> Option<End> {
        self.end.borrow().as_ref().map(|answer| answer.status())
    }

    /// Whether work on it has begun and not ended.
    fn is_running(&self) -> bool {
        let in_engine = self.in_engine();
        let begun = |job: &InEngine| job.timeline.has("queue");
        self.end().is_none() && in_engine.as_ref().is_some_and(begun)
    }

    fn in_engine(&self) -> MutexGuard<'_, Option<InEngine>> {
        // Nothing under the lock panics half way.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody may still want what it is doing.
    fn is_live(&self) -> bool {
        self.end().is_none() && !self.is_cancelled()
    }

    /// Whether a repeated request is answered by it. What failed or was given up is
    /// tried again.
    fn answers_again(&self) -> bool {
        self.is_live() || self.end() == Some(End::Completed)
    }
}

/// What a request becomes.
pub(super) enum Claim {
    /// A new job, which must be [admitted](Jobs::admit) or [refused](Jobs::refuse).
    New(Arc<Job>),
    /// The job that has this name already.
    Same(Arc<Job>),
}

/// How many jobs of a kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) pending: usize,
    pub(super) running: usize,
}

/// All jobs of a server.
pub(super) struct Jobs {
    jobs_max: usize,
    kept: Kept,
    /// Sets ids apart from those of servers before this one.
    series: String,
    live: watch::Sender<usize>,
    table: Mutex<Table>,
}

/// Jobs with when they ended, the first one first.
type Finished = VecDeque<(Instant, Arc<Job>)>;

#[derive(Default)]
struct Table {
    count: u64,
    by_id: HashMap<String, Arc<Job>>,
    by_name: HashMap<String, Arc<Job>>,
    live: Vec<Arc<Job>>,
    proofs: Finished,
    without_proof: Finished,
    durations: Durations,
    draining: bool,
}

impl Jobs {
    pub(super) fn new(jobs_max: usize, kept: Kept) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanoseconds = since_epoch.map_or(0, |age| age.as_nanos());
        Self {
            jobs_max,
            kept,
            series: format!("{nanoseconds:x}"),
            live: watch::Sender::new(0),
            table: Mutex::default(),
        }
    }

    /// The job of a request: the one of the same name and content, or a new one. A known one
    /// that is asked for with a higher priority has that from now on; a lower one changes
    /// nothing, since somebody waits who asked for more.
    ///
    /// # Errors
    /// If the name is another live job's, if there are as many live jobs as may be,
    /// or if the server is ending.
    pub(super) fn claim(
        &self,
        name: String,
        content: Content,
        kind: ProofKind,
        priority: Priority,
        now: Instant,
    ) -> Result<Claim, Status> {
        let mut table = self.table();
        table.forget(self.kept, now);
        if let Some(job) = table.by_name.get(&name) {
            if job.content == content && job.answers_again() {
                if job.is_live() {
                    job.raise(priority);
                }
                return Ok(Claim::Same(Arc::clone(job)));
            }
            if job.is_live() {
                return Err(status::conflict(&name));
            }
        }
        if table.draining {
            return Err(status::draining());
        }
        if table.live.len() >= self.jobs_max {
            return Err(status::full(self.jobs_max));
        }
        table.count += 1;
        let job = Arc::new(Job {
            id: format!("{}-{}-{}", kind.short_name(), self.series, table.count),
            kind,
            accepted: now,
            position: table.live.iter().filter(|job| !job.is_running()).count(),
            name,
            content,
            cancelled: AtomicBool::new(false),
            priority: watch::Sender::new(priority),
            engine: Mutex::default(),
            admission: watch::Sender::new(None),
            end: watch::Sender::new(None),
        });
        if !job.name.is_empty() {
            table.by_name.insert(job.name.clone(), Arc::clone(&job));
        }
        table.live.push(Arc::clone(&job));
        self.live.send_replace(table.live.len());
        Ok(Claim::New(job))
    }

    /// The engine has the job now, and is told by `give_up` that nobody wants it and by
    /// `raise` that somebody wants it sooner: at once, if its priority was raised after it was
    /// `submitted` with another. Both are kept until the job is [finished](Jobs::finish).
    pub(super) fn admit(
        &self,
        job: &Arc<Job>,
        submitted: Priority,
        give_up: impl Fn() + Send + Sync + 'static,
        raise: impl Fn(Priority) + Send + Sync + 'static,
        timeline: Timeline,
    ) {
        let mut table = self.table();
        let mut in_engine = job.in_engine();
        // Under the lock that it is raised under: once, by this or by whoever comes next.
        if job.priority() > submitted {
            raise(job.priority());
        }
        *in_engine = Some(InEngine {
            give_up: Box::new(give_up),
            raise: Box::new(raise),
            timeline,
        });
        drop(in_engine);
        table.by_id.insert(job.id.clone(), Arc::clone(job));
        job.admission.send_replace(Some(Ok(())));
    }

    /// The job is none: nothing is kept of it.
    pub(super) fn refuse(&self, job: &Arc<Job>, why: Status) {
        let mut table = self.table();
        table.drop_name(job);
        self.drop_live(&mut table, job);
        job.admission.send_replace(Some(Err(why)));
    }

    /// The engine has answered.
    pub(super) fn finish(&self, job: &Arc<Job>, answer: AwaitProofResponse, now: Instant) {
        let mut table = self.table();
        self.drop_live(&mut table, job);
        let finished = if answer.status() == End::Completed {
            let seconds = now.saturating_duration_since(job.accepted).as_secs_f64();
            table.durations.add(job.kind, seconds);
            &mut table.proofs
        } else {
            &mut table.without_proof
        };
        finished.push_back((now, Arc::clone(job)));
        job.end.send_replace(Some(Arc::new(answer)));
        *job.in_engine() = None;
        table.forget(self.kept, now);
    }

    /// The job with an id.
    ///
    /// # Errors
    /// If there is none, or nothing is kept of it any more.
    pub(super) fn job(&self, id: &str, now: Instant) -> Result<Arc<Job>, Status> {
        let mut table = self.table();
        table.forget(self.kept, now);
        let job = table.by_id.get(id);
        job.cloned().ok_or_else(|| status::unknown_job(id))
    }

    /// Gives a job up; whether work on it had begun and not ended.
    ///
    /// # Errors
    /// As [`job`](Self::job).
    pub(super) fn cancel(&self, id: &str, now: Instant) -> Result<bool, Status> {
        let job = self.job(id, now)?;
        let was_running = job.is_running();
        Self::give_up(&job);
        Ok(was_running)
    }

    /// Gives up all that is live.
    pub(super) fn cancel_all(&self) {
        let live = self.table().live.clone();
        live.iter().for_each(Self::give_up);
    }

    fn give_up(job: &Arc<Job>) {
        if job.end().is_some() {
            return;
        }
        job.cancelled.store(true, Ordering::Relaxed);
        if let Some(in_engine) = &*job.in_engine() {
            (in_engine.give_up)();
        }
    }

    /// From now on no new jobs are taken.
    pub(super) fn drain(&self) {
        self.table().draining = true;
    }

    /// Returns when no job is live.
    pub(super) async fn idle(&self) {
        // The sender is in `self`, so the channel stays open.
        let _ = self.live.subscribe().wait_for(|live| *live == 0).await;
    }

    /// Live jobs.
    pub(super) fn live(&self) -> usize {
        *self.live.borrow()
    }

    /// Jobs that wait and run, by kind, in the order of [`ProofKind::ALL`].
    pub(super) fn load(&self) -> [(ProofKind, Load); 4] {
        let live = self.table().live.clone();
        ProofKind::ALL.map(|kind| {
            let mut load = Load::default();
            for job in live.iter().filter(|job| job.kind == kind) {
                if job.is_running() {
                    load.running += 1;
                } else {
                    load.pending += 1;
                }
            }
            (kind, load)
        })
    }

    /// How long proofs took.
    pub(super) fn durations(&self) -> Durations {
        self.table().durations.clone()
    }

    fn drop_live(&self, table: &mut Table, job: &Arc<Job>) {
        table.live.retain(|live| !Arc::ptr_eq(live, job));
        self.live.send_replace(table.live.len());
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table
            .lock()
            .expect("no code panics while it holds the job table")
    }
}

impl Table {
    /// Drops finished jobs that are too many or too old.
    fn forget(&mut self, kept: Kept, now: Instant) {
        let mut gone = Vec::new();
        for finished in [&mut self.proofs, &mut self.without_proof] {
            let too_many = finished.len().saturating_sub(kept.count_max);
            let ages = finished.iter();
            let ages = ages.map(|(ended, _)| now.saturating_duration_since(*ended));
            let too_old = ages.take_while(|age| *age >= kept.age_max).count();
            gone.extend(finished.drain(..too_many.max(too_old)));
        }
        for (_, job) in gone {
            self.by_id.remove(&job.id);
            self.drop_name(&job);
        }
    }

    /// Frees a job's name, unless a later job has it.
    fn drop_name(&mut self, job: &Arc<Job>) {
        let named = self.by_name.get(&job.name);
        if named.is_some_and(|named| Arc::ptr_eq(named, job)) {
            self.by_name.remove(&job.name);
        }
    }
}
