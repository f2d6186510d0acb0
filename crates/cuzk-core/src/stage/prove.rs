//! Prove: the columns go to the backend, come back, and the proof follows.

use std::sync::Arc;
use std::time::Instant;

use cuzk_gpu::{Key, KeyTier, ProveRequest};

use super::{Job, Made, Proved, Shared, Synthesised};
use crate::error::{Failure, ProveError};
use crate::log;

/// Proves a part. Its columns are released as soon as the backend has read them.
pub(crate) fn prove(
    shared: &Shared,
    job: &Job,
    key: Arc<Key>,
    part: usize,
    synthesised: Synthesised,
) -> Result<Proved, Failure> {
    let Synthesised {
        columns,
        work,
        lease,
        inputs,
        shape,
        placed,
    } = synthesised;
    let (r, s) = job.blinding.scalars(part);
    let abc_bytes_each = size_of_val(columns.a.scalars());
    let request = ProveRequest {
        columns,
        inputs: inputs.clone(),
        shape,
        key,
        r,
        s,
        watch: None,
    };
    let mut pending = shared.backend.submit(request);
    drop(pending.columns_read());
    let proved = pending
        .done()
        .map_err(|source| Failure::ours(ProveError::Backend { part, source }))?;
    let in_host_memory = match lease {
        Some(_) => KeyTier::Resident,
        None => KeyTier::File,
    };
    let tier = proved.tier.unwrap_or(in_host_memory);
    drop((work, lease));
    shared.metrics.placements.add(placed);
    let phases = &proved.phases.0;
    job.timeline.add_phases(part, phases, Instant::now());
    log::proved(&job.label, part, placed.is_pinned, abc_bytes_each, phases);
    Ok(Proved {
        proof: proved.proof,
        inputs,
        made: Made { placed, tier },
    })
}
