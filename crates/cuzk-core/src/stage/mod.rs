//! The stages of a part, in the order it passes them, one file each. A stage takes
//! what the one before left and never calls back.

mod complete;
mod explain;
mod prove;
mod reserve;
mod segments;
mod survey;
mod synthesise;
mod verify;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bellperson::groth16::Proof;
use blstrs::{Bls12, Scalar};
use cuzk_budget::Reservation;
use cuzk_gpu::{CircuitShape, Columns};
use cuzk_synth::{Pass, SynthError};

pub(crate) use complete::complete;
pub(crate) use explain::explain;
pub(crate) use prove::prove;
#[cfg(test)]
pub(crate) use reserve::budget_priority;
pub(crate) use reserve::{check_fits, need, reserve, sizes_from_key};
pub(crate) use survey::{asked, store};
pub(crate) use synthesise::{Filled, synthesise};
pub(crate) use verify::verify;

use crate::backends::Backends;
use crate::config::Tuning;
use crate::crew::Crew;
use crate::engine::Blinding;
use crate::error::{Failure, ProveError};
use crate::keystore::{KeyLease, KeyStore};
use crate::metrics::Metrics;
use crate::placement::{ColumnMemory, Placed, Placing, Way};
use crate::shapes::Shapes;
use crate::standing::Standing;
use crate::templates::Templates;
use crate::timeline::{Recorder, Timeline};
use crate::waits::Waits;
use crate::{CircuitSpec, Filling, Workload};

/// What all stages of all jobs share.
pub(crate) struct Shared {
    pub(crate) backends: Backends,
    pub(crate) memory: ColumnMemory,
    pub(crate) placing: Placing,
    pub(crate) keys: Arc<KeyStore>,
    pub(crate) shapes: Shapes,
    pub(crate) templates: Arc<Templates>,
    pub(crate) crew: Crew,
    pub(crate) tuning: Tuning,
    pub(crate) metrics: Metrics,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) waits: Waits,
}

impl Shared {
    /// Says that a part has ordinary memory although it was to have another kind.
    pub(crate) fn tell_refused(&self, job: &Job, part: usize, reason: &str) {
        self.metrics.placements_refused.add(1);
        tracing::warn!(
            job = job.label,
            part,
            placement = %self.tuning.placement,
            reason,
            "page-locked memory was refused: the columns lie on the heap"
        );
    }
}

/// A job as its stages see it.
pub(crate) struct Job {
    pub(crate) workload: Arc<dyn Workload>,
    /// For log lines.
    pub(crate) label: String,
    pub(crate) part_count: usize,
    pub(crate) circuit: Arc<dyn CircuitSpec>,
    pub(crate) blinding: Blinding,
    pub(crate) timeline: Timeline,
    pub(crate) standing: Arc<Standing>,
}

impl Job {
    /// The pass is given up once the job is.
    pub(crate) fn ends(&self, pass: &mut Pass<'_>) {
        let standing = Arc::clone(&self.standing);
        pass.give_up_when(move || standing.is_given_up());
    }
}

/// Columns and bytes of a part, its columns not yet filled.
pub(crate) struct Reserved {
    pub(crate) columns: Columns,
    /// Working memory of the backend, counted until the proof is made.
    pub(crate) work: Reservation,
    /// The key's points in memory, if they are.
    pub(crate) lease: Option<KeyLease>,
    /// How its columns are placed.
    pub(crate) way: Way,
    /// Whether the columns have the sizes of a synthesis that outgrew others.
    pub(crate) is_resized: bool,
}

/// A part whose columns are filled. At 2^27 constraints each column is 4 GiB; what is
/// beside them is small.
pub(crate) struct Synthesised {
    pub(crate) columns: Columns,
    pub(crate) work: Reservation,
    pub(crate) lease: Option<KeyLease>,
    pub(crate) inputs: Vec<Scalar>,
    pub(crate) shape: Arc<CircuitShape>,
    pub(crate) placed: Placed,
    pub(crate) synthesis: Filling,
    /// The time that threads worked on it, all together.
    pub(crate) worked: Duration,
    /// Since when it could be proved.
    pub(crate) since: Instant,
}

/// A part with its proof.
pub(crate) struct Proved {
    pub(crate) proof: Proof<Bls12>,
    pub(crate) inputs: Vec<Scalar>,
    pub(crate) made: Made,
}

/// How a proof was made.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) placed: Placed,
    /// How its columns were filled.
    pub(crate) synthesis: Filling,
    /// Where the points of the key were.
    pub(crate) tier: cuzk_gpu::KeyTier,
    /// The device, if one made it.
    pub(crate) device: Option<usize>,
}

/// A part whose proof verifies.
#[derive(Clone)]
pub(crate) struct Verified {
    pub(crate) proof: Proof<Bls12>,
    pub(crate) made: Made,
}

/// Why a pass over the circuit of a part gave nothing.
pub(crate) fn refused(part: usize, source: SynthError) -> Failure {
    Failure::fatal(match source {
        SynthError::GivenUp => ProveError::Cancelled,
        source => ProveError::Synthesis { part, source },
    })
}
