//! Jobs and parts as the scheduler keeps them.

use std::time::Duration;

use super::{Circuit, DeviceIndex, DeviceSet, Priority};

/// Where a part is. Those in the right column are being worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Reserving,
    Reserved,
    Synthesising,
    Synthesised,
    Proving,
    Proved,
    Verifying,
    Rejected,
    Explaining,
    Verified,
}

impl Stage {
    pub(super) fn runs(self) -> bool {
        use Stage::*;
        matches!(
            self,
            Reserving | Synthesising | Proving | Verifying | Explaining
        )
    }

    /// From the start of its reservation to the end of its proof.
    pub(super) fn in_flight(self) -> bool {
        self.is_between() || self == Stage::Proving
    }

    /// From the start of its reservation to its start on a device.
    pub(super) fn is_between(self) -> bool {
        self.has_synthesis_place() || self == Stage::Synthesised
    }

    /// Whether it is synthesised, or will be as soon as it has its memory.
    pub(super) fn has_synthesis_place(self) -> bool {
        use Stage::*;
        matches!(self, Reserving | Reserved | Synthesising)
    }

    /// How spans and errors call the work on it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Stage::Reserving => "reserve",
            Stage::Synthesising => "synthesis",
            Stage::Proving => "prove",
            Stage::Verifying => "verify",
            Stage::Explaining => "explain",
            _ => "rest",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) stage: Stage,
    /// When its stage began.
    pub(super) since: Duration,
    /// Times it was tried again.
    pub(super) retries: usize,
    /// With which priority it was told to wait for memory and threads.
    pub(super) asked: Priority,
    /// The device that proves it.
    pub(super) device: Option<DeviceIndex>,
    /// The devices that it was started for: those that nobody before it waits for.
    pub(super) bound: DeviceSet,
    /// The device that failed it last.
    pub(super) avoids: Option<DeviceIndex>,
}

impl Part {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            stage: Stage::Waiting,
            since: now,
            retries: 0,
            asked: Priority::Low,
            device: None,
            bound: DeviceSet::ALL,
            avoids: None,
        }
    }

    pub(super) fn enter(&mut self, stage: Stage, now: Duration) {
        self.stage = stage;
        self.since = now;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobStage {
    Loading,
    Running,
    Completing,
    /// Cancelled or failed: nothing new starts.
    Ending,
}

#[derive(Debug)]
pub(super) struct Job {
    /// Its priority, and one class more for each time that it was overtaken too long.
    pub(super) class: Priority,
    pub(super) circuit: Circuit,
    pub(super) stage: JobStage,
    /// Whether a stage of the job as a whole runs.
    pub(super) busy: bool,
    /// When its stage as a whole began.
    pub(super) since: Duration,
    /// Since when parts of later jobs have started while its own wait.
    pub(super) overtaken: Option<Duration>,
    pub(super) parts: Vec<Part>,
}

impl Job {
    /// Whether nothing of it is being worked on.
    pub(super) fn idle(&self) -> bool {
        !self.busy && !self.parts.iter().any(|part| part.stage.runs())
    }

    pub(super) fn is_verified(&self) -> bool {
        let mut parts = self.parts.iter();
        self.stage == JobStage::Running && parts.all(|part| part.stage == Stage::Verified)
    }

    /// Whether a part of it waits for something that others may be given first: a start,
    /// memory, a slot.
    pub(super) fn waits(&self, mutated_to_starts_alone: bool) -> bool {
        let waits = |part: &Part| match part.stage {
            Stage::Waiting => true,
            Stage::Reserving | Stage::Synthesised => !mutated_to_starts_alone,
            _ => false,
        };
        self.stage == JobStage::Running && self.parts.iter().any(waits)
    }

    /// How errors call its stage as a whole.
    pub(super) fn stage_name(&self) -> &'static str {
        match self.stage {
            JobStage::Completing => "complete",
            _ => "key",
        }
    }
}
