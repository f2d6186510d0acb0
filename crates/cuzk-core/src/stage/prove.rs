//! Prove: the columns go to the backend, come back, and the proof follows.

use std::sync::Arc;
use std::time::Instant;

use cuzk_gpu::{Key, KeyTier, Phase, PhaseLane, ProveRequest};

use super::{Job, Made, Proved, Shared, Synthesised};
use crate::error::{Failure, ProveError};
use crate::log;
use crate::schedule::DeviceIndex;
use crate::timeline::{Lane, Timeline, Unit, Work};

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
        since,
        worked: _,
    } = synthesised;
    let taken = Instant::now();
    job.timeline.add("ready", Some(part), since, taken);
    if let Some(lease) = &lease
        && lease.decode(&key).map_err(Failure::fatal)?
    {
        let decoded = Instant::now();
        job.timeline.add("points", Some(part), taken, decoded);
    }
    let begun = Instant::now();
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
    let unit = device.map_or(Unit::Cpu, Unit::Device);
    record(&job.timeline, part, unit, begun, phases);
    let uploads = phases.iter();
    let uploads = uploads.filter(|phase| phase.lane == PhaseLane::Upload);
    uploads.for_each(|phase| log::uploaded(&job.label, part, phase));
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

/// Records what a backend did for a part, and when it had the part and did nothing: until
/// something was done (`slot`), and from its columns to its first kernel (`turn`).
fn record(timeline: &Timeline, part: usize, unit: Unit, begun: Instant, phases: &[Phase]) {
    let add = |work, name, bytes, from, until| {
        timeline.add_in(Lane::Unit(unit, work), name, Some(part), bytes, from, until);
    };
    let starts_of = |wanted: PhaseLane| {
        let those = phases.iter().filter(move |phase| phase.lane == wanted);
        those.map(|phase| phase.start)
    };
    let first = phases.iter().map(|phase| phase.start).min();
    if let Some(first) = first.filter(|first| *first > begun) {
        add(Work::Wait, "slot", None, begun, first);
    }
    let computes = starts_of(PhaseLane::Compute).min();
    let brings = |phase: &&Phase| matches!(phase.lane, PhaseLane::Upload | PhaseLane::Key);
    let brought = phases.iter().filter(brings).map(|phase| phase.end);
    // A key that is streamed is brought beside the kernels, too.
    let brought = brought.filter(|end| Some(*end) <= computes).max();
    if let Some((brought, computes)) = brought.zip(computes)
        && brought < computes
    {
        add(Work::Wait, "turn", None, brought, computes);
    }
    for phase in phases {
        let work = match phase.lane {
            PhaseLane::Upload => Work::Upload,
            PhaseLane::Compute => Work::Compute,
            PhaseLane::Key => Work::Key,
            PhaseLane::Host => Work::Host,
        };
        add(work, phase.name, phase.bytes, phase.start, phase.end);
    }
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
