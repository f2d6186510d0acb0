//! Prove: the columns go to the backend, come back, and the proof follows.

use std::sync::Arc;
use std::time::Instant;

use cuzk_gpu::{Key, KeyTier, ProveRequest};

use super::{Job, Made, Proved, Shared, Synthesised};
use crate::error::{Failure, ProveError};
use crate::log;
use crate::schedule::DeviceIndex;

/// Proves a part. Its columns are released as soon as the backend has read them.
pub(crate) fn prove(
    shared: &Shared,
    job: &Job,
    key: Arc<Key>,
    part: usize,
    on: DeviceIndex,
    synthesised: Synthesised,
) -> Result<Proved, Failure> {
    let Synthesised {
        columns,
        work,
        lease,
        inputs,
        shape,
        placed,
        synthesis,
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
    let (proved, device) = on_a_backend(shared, part, on, request)?;
    let in_host_memory = match lease {
        Some(_) => KeyTier::Resident,
        None => KeyTier::File,
    };
    let tier = proved.tier.unwrap_or(in_host_memory);
    drop((work, lease));
    shared.metrics.placements.add(placed);
    let phases = &proved.phases;
    let lengths: Vec<_> = phases
        .iter()
        .map(|phase| (phase.name, phase.length_ms()))
        .collect();
    job.timeline.add_phases(part, &lengths, Instant::now());
    log::proved(&job.label, part, placed.is_pinned, abc_bytes_each, phases);
    Ok(Proved {
        proof: proved.proof,
        inputs,
        made: Made {
            placed,
            synthesis,
            tier,
            device,
        },
    })
}

/// Proves where the scheduler says; also the number of the device, if it is one.
fn on_a_backend(
    shared: &Shared,
    part: usize,
    on: DeviceIndex,
    request: ProveRequest,
) -> Result<(cuzk_gpu::Proved, Option<usize>), Failure> {
    let turn = shared.backends.turn(on);
    if tracing::enabled!(tracing::Level::DEBUG)
        && let Some(plan) = turn.backend().plan(&request.shape, &request.key)
    {
        tracing::debug!("the device's plan, in bytes:\n{plan}");
    }
    let mut pending = turn.backend().submit(request);
    drop(pending.columns_read());
    let proved = pending.done().map_err(|source| {
        turn.failed(&source);
        let is_final = source.is_final();
        let error = ProveError::Backend { part, source };
        match is_final {
            true => Failure::fatal(error),
            false => Failure::ours(error),
        }
    })?;
    let device = turn.backend().device().map(|device| device.ordinal);
    Ok((proved, device))
}
