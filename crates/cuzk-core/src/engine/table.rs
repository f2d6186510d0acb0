//! What the dispatcher hears, and what it keeps of jobs and parts meanwhile.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use cuzk_gpu::Key;
use cuzk_synth::Sizes;

use super::RETRIES_MAX;
use super::job::{Place, ProofReply};
use crate::error::{Failure, ProveError};
use crate::schedule::{DeviceIndex, DeviceSet, JobId, PartId, Priority};
use crate::stage::{Job, Proved, Reserved, Synthesised, Verified};
use crate::{CircuitId, Filling};

/// What the dispatcher hears.
pub(super) enum Message {
    /// A new job.
    Submit {
        /// Its number.
        id: JobId,
        /// The job.
        job: Arc<Job>,
        /// Its circuit.
        circuit: CircuitId,
        /// Who goes first.
        priority: Priority,
        /// Whether its synthesis is likely to take all threads.
        width: usize,
        /// Where its end is told.
        reply: Sender<Result<ProofReply, ProveError>>,
        /// Its place in the queue.
        place: Place,
    },
    /// A key was loaded, or not.
    Key(JobId, Result<Arc<Key>, Failure>),
    /// A stage of a part has ended, by the number that it was started with.
    Part(PartId, u64, Box<Result<PartData, Failure>>),
    /// A job's proof is encoded, or not.
    Encoded(JobId, Result<Vec<u8>, Failure>),
    /// A caller wants a job sooner.
    Raise(JobId, Priority),
    /// A caller gave a job up.
    Cancel(JobId),
    /// Devices may have been lost outside of a proof.
    Devices,
    /// The engine is being dropped.
    Stop,
}

/// What a stage leaves of a part for the next one.
pub(super) enum PartData {
    Reserved(Reserved),
    /// Its circuit is larger than its columns were: the true sizes.
    Outgrown(Sizes),
    /// And the devices that can prove it.
    Synthesised(Synthesised, DeviceSet),
    Proved(Proved),
    /// Its proof does not verify.
    Rejected(Filling),
    Verified(Verified),
}

/// A part of a job in the table.
#[derive(Default)]
pub(super) struct PartEntry {
    /// `None` before its first stage has ended, and while a stage has it.
    pub(super) data: Option<PartData>,
    /// Number of the stage that runs or ran last. What a stage that was given up ends
    /// with carries an older one.
    pub(super) stage: u64,
    /// What it is called, while it runs, and since when.
    pub(super) running: Option<(&'static str, Instant)>,
    /// The device that proves it.
    pub(super) device: Option<DeviceIndex>,
    /// Times it was started.
    pub(super) attempts: usize,
    /// Why its last attempt failed, until the next begins.
    pub(super) error: Option<ProveError>,
}

pub(super) struct Entry {
    pub(super) job: Arc<Job>,
    pub(super) key: Option<Arc<Key>>,
    pub(super) parts: Vec<PartEntry>,
    /// Why the job ends, once it does for a reason that no retry changes: the first.
    pub(super) error: Option<ProveError>,
    pub(super) proof: Option<Vec<u8>>,
    pub(super) reply: Sender<Result<ProofReply, ProveError>>,
    pub(super) queued: Instant,
    /// The stage of the job as a whole that runs, and since when.
    pub(super) running: Option<(&'static str, Instant)>,
    pub(super) place: Place,
}

impl Entry {
    /// The job ends with `error`, if it does not end already: no part of it waits for
    /// memory any longer, and what no stage works on is given back.
    pub(super) fn end(&mut self, error: ProveError) {
        self.error.get_or_insert(error);
        self.job.standing.give_up();
        for part in &mut self.parts {
            part.data = None;
        }
    }

    /// Keeps what a stage left of a part for the next one, if there is to be one.
    pub(super) fn keep(&mut self, part: usize, data: PartData) {
        self.parts[part].data = match self.error {
            None => Some(data),
            Some(_) => None,
        };
    }

    /// Keeps why a part failed.
    pub(super) fn part_failed(&mut self, part: usize, Failure { error, retry }: Failure) {
        // A part that has used up its attempts ends the job: nothing else of it is to
        // wait for memory any longer.
        if retry && self.parts[part].attempts <= RETRIES_MAX {
            let job = &self.job.label;
            tracing::warn!(job, part, %error, "a part failed");
            self.parts[part].error = Some(error);
        } else {
            self.end(error);
        }
    }
}
