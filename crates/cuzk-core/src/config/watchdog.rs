//! How long stages may take before they are given up.

use std::time::Duration;

/// How long a stage may take before it is given up; `None` is for ever. Generous: a stage
/// that is slow ends by itself, one that hangs never does. A wait for memory has no limit of
/// its own, since it ends when the stages do that hold what it waits for, and these have
/// limits: it is told instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// A synthesis, with its wait for threads that older parts have.
    pub synthesis_max: Option<Duration>,
    /// A proof, from when a device has it. The device is out of service after it.
    pub prove_max: Option<Duration>,
    /// Loading a key, verifying, explaining with its wait for memory, and completing a job.
    pub other_max: Option<Duration>,
    /// After how long a warning says who waits for memory, and what an engine that is to end
    /// waits for; again after twice as long each time. `None` is never.
    pub told_after: Option<Duration>,
}

impl Watchdog {
    pub(super) fn new() -> Self {
        let minutes = |count: u64| Some(Duration::from_secs(60 * count));
        Self {
            // A part of 2^27 constraints takes two minutes on one core, and shares it.
            synthesis_max: minutes(30),
            // The processor may take most of an hour for one of them.
            prove_max: minutes(120),
            // The digest of 60 GB from a slow disk.
            other_max: minutes(60),
            told_after: minutes(1),
        }
    }
}
