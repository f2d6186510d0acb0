//! Jobs as their callers see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use blstrs::Scalar;
use cuzk_gpu::KeyTier;
use ff::Field;
use rand_chacha::ChaCha20Rng;
use rand_core::{OsRng, SeedableRng};

use super::table::Message;
use crate::Filling;
use crate::error::ProveError;
use crate::placement::Placed;
use crate::schedule::{JobId, Priority};
use crate::standing::Standing;
use crate::timeline::Timeline;

/// Where Groth16's blinding scalars come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Blinding {
    /// From the operating system, new for every attempt.
    #[default]
    Fresh,
    /// From a seed and the part's index: the same proof every time. For tests.
    Seeded(u64),
}

impl Blinding {
    /// `r` and `s` of a part.
    pub fn scalars(&self, part: usize) -> (Scalar, Scalar) {
        match self {
            Self::Fresh => (Scalar::random(OsRng), Scalar::random(OsRng)),
            Self::Seeded(seed) => {
                let mut rng = ChaCha20Rng::seed_from_u64(*seed);
                rng.set_stream(part as u64);
                (Scalar::random(&mut rng), Scalar::random(&mut rng))
            }
        }
    }
}

/// How a job is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOptions {
    /// Who goes first.
    pub priority: Priority,
    /// Where the blinding scalars come from.
    pub blinding: Blinding,
}

/// How a part was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartReport {
    /// How its columns came to be where they were.
    pub placed: Placed,
    /// How they were filled.
    pub synthesis: Filling,
    /// Where the points of the key were.
    pub tier: KeyTier,
    /// Number of the device that proved it, if one did.
    pub device: Option<usize>,
    /// Times it was tried again.
    pub retries: usize,
}

/// A finished job.
#[derive(Clone, Debug)]
pub struct ProofReply {
    /// The proof, verified.
    pub proof: Vec<u8>,
    /// The backend that made it.
    pub backend: &'static str,
    /// Where the points of the key were: `file` or `resident`.
    pub tier: String,
    /// How each part was made.
    pub parts: Vec<PartReport>,
    /// Where the time went.
    pub timeline: Timeline,
}

impl ProofReply {
    /// The placement of its parts; `mixed` if they differ.
    pub fn placement(&self) -> &'static str {
        let mut names = self.parts.iter().map(|part| part.placed.name);
        let first = names.next().unwrap_or_default();
        if names.all(|name| name == first) {
            first
        } else {
            "mixed"
        }
    }

    /// How the columns of the parts were filled, by [name](Filling::name), each once:
    /// `segments`, or `segments, whole-surveyed`.
    pub fn synthesis(&self) -> String {
        let mut ways: Vec<Filling> = self.parts.iter().map(|part| part.synthesis).collect();
        ways.sort_unstable();
        ways.dedup();
        let names: Vec<_> = ways.into_iter().map(Filling::name).collect();
        names.join(", ")
    }

    /// Whether every column of every part lay in page-locked memory when it was read.
    pub fn is_pinned(&self) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(|part| part.placed.is_pinned)
    }

    /// Times that parts were tried again.
    pub fn retries(&self) -> usize {
        self.parts.iter().map(|part| part.retries).sum()
    }
}

/// A job in the engine's hands. Dropping the handle lets the job go on.
#[derive(Debug)]
pub struct JobHandle {
    id: JobId,
    timeline: Timeline,
    standing: Arc<Standing>,
    outbox: Sender<Message>,
    result: Receiver<Result<ProofReply, ProveError>>,
}

impl JobHandle {
    pub(super) fn new(
        id: JobId,
        timeline: Timeline,
        standing: Arc<Standing>,
        outbox: Sender<Message>,
        result: Receiver<Result<ProofReply, ProveError>>,
    ) -> Self {
        Self {
            id,
            timeline,
            standing,
            outbox,
            result,
        }
    }

    /// The job's number.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Where the time has gone so far.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Gives the job up. Its waits for memory end at once, it ends when the stages that
    /// run now have ended. A job whose proof is being handed over is not stopped.
    pub fn cancel(&self) {
        self.canceller().cancel();
    }

    /// Gives the job up for those who do not wait for it.
    pub fn canceller(&self) -> Canceller {
        Canceller {
            id: self.id,
            standing: Arc::clone(&self.standing),
            outbox: self.outbox.clone(),
        }
    }

    /// Raises the job's priority for those who do not wait for it.
    pub fn raiser(&self) -> Raiser {
        Raiser {
            id: self.id,
            outbox: self.outbox.clone(),
        }
    }

    /// Waits for the job's end, which is told once.
    ///
    /// # Errors
    /// Why there is no proof; [`ProveError::Stopped`] if the end was told already.
    pub fn wait(&self) -> Result<ProofReply, ProveError> {
        self.result.recv().unwrap_or(Err(ProveError::Stopped))
    }

    /// Waits for the job's end, `wait_max` at the longest; `None` if that passed.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&self, wait_max: Duration) -> Option<Result<ProofReply, ProveError>> {
        match self.result.recv_timeout(wait_max) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(ProveError::Stopped)),
        }
    }
}

/// Gives one job up, from any thread.
#[derive(Clone)]
pub struct Canceller {
    id: JobId,
    standing: Arc<Standing>,
    outbox: Sender<Message>,
}

impl Canceller {
    /// As [`JobHandle::cancel`]; nothing happens if the job has ended.
    pub fn cancel(&self) {
        self.standing.give_up();
        // Fails only if the engine has stopped, and then the job has ended too.
        let _ = self.outbox.send(Message::Cancel(self.id));
    }
}

/// Raises the priority of one job, from any thread.
#[derive(Clone)]
pub struct Raiser {
    id: JobId,
    outbox: Sender<Message>,
}

impl Raiser {
    /// From now on the job has this priority, if it is a higher one: what of it has not
    /// started, or waits for memory, threads or a device, goes before others as if the job had been
    /// submitted with it. Nothing happens if the job has ended.
    pub fn raise(&self, priority: Priority) {
        // Fails only if the engine has stopped, and then the job has ended too.
        let _ = self.outbox.send(Message::Raise(self.id, priority));
    }
}

/// A job's place among those that may wait or run, until dropped.
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes a place, if fewer than `max` are taken.
    pub(super) fn take(jobs: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let add = |taken: usize| (taken < max).then_some(taken + 1);
        jobs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        Some(Self(Arc::clone(jobs)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
