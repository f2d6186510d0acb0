//! Synthesise: the witness is written into the part's columns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use blstrs::Scalar;
use cuzk_gpu::{CColumn, CircuitShape, Columns, Key};
use cuzk_pinned::AcquireError;
use cuzk_synth::{
    AssignColumns, Assigned, ColumnName, GrownColumns, Pass, Sizes, SynthError, assign,
    assign_growing,
};
use ff::Field;

use super::survey::tell_no_memory;
use super::{Job, Reserved, Shared, Synthesised, refused, segments};
use crate::config::Sizing;
use crate::error::{Failure, ProveError};
use crate::placement::{Placed, Way};
use crate::shapes::to_circuit_sizes;
use crate::{Filling, Obstacle, Part};

/// What a synthesis ended with.
pub(crate) enum Filled {
    /// The columns hold the part.
    Whole(Box<Synthesised>),
    /// The circuit is larger than its columns, and fits its key: it is to be
    /// synthesised once more, into columns of these sizes. The memory is given back
    /// first, so that nobody waits for a place here and holds memory meanwhile.
    Outgrown(Sizes),
}

/// Fills the columns.
pub(crate) fn synthesise(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
    mut reserved: Reserved,
) -> Result<Filled, Failure> {
    let circuit = job.workload.part(part).map_err(Failure::fatal)?;
    let Reserved { columns, work, .. } = &mut reserved;
    let known = segments::cut_of(shared, job, key, part, circuit.as_ref(), work)?;
    let known = known.map(|known| {
        let cut = known?;
        // The proof, for which the part holds them, comes later.
        let bytes = cut.beside_bytes(shared.crew.threads());
        let bytes = bytes.saturating_sub(work.bytes());
        // At once or not at all: a part that holds its columns waits for nothing.
        let grown = if bytes > 0 { work.grow(bytes) } else { Ok(()) };
        grown.map(|()| (cut, bytes)).map_err(|error| {
            tell_no_memory(&job.circuit.id(), &error);
            Obstacle::NoMemory
        })
    });
    let (synthesis, written) = match known {
        Some(Ok((cut, beside_bytes))) => {
            let filled = segments::fill(shared, job, &cut, part, circuit.as_ref(), columns);
            let written = filled.map(|(inputs, worked)| Written {
                inputs,
                shape: Arc::clone(&cut.shape),
                worked,
            });
            work.shrink(beside_bytes).expect("it grew by as much");
            (Filling::Segments, written)
        }
        None => (
            Filling::Whole,
            fill_whole(shared, job, key, part, circuit.as_ref(), columns),
        ),
        Some(Err(obstacle)) => {
            tell_whole(shared, job, part, obstacle);
            (
                Filling::Instead(obstacle),
                fill_whole(shared, job, key, part, circuit.as_ref(), columns),
            )
        }
    };
    let Written {
        inputs,
        shape,
        worked,
    } = match written {
        Err(Unwritten::Synth(SynthError::HintTooSmall { want, .. })) if !reserved.is_resized => {
            key.check_sizes(&to_circuit_sizes(&want))
                .map_err(Failure::fatal)?;
            shared.metrics.hint_misses.add(1);
            tracing::warn!(circuit = %job.circuit.id(), ?want, "a capacity hint was too small");
            return Ok(Filled::Outgrown(want));
        }
        Err(Unwritten::Synth(
            source @ (SynthError::OtherSegment { .. } | SynthError::OtherShared { .. }),
        )) => {
            // Whether the part or the template is of another circuit, the whole tells.
            segments::distrust(shared, job);
            return Err(Failure::ours(ProveError::Synthesis { part, source }));
        }
        Err(Unwritten::Synth(source)) => return Err(refused(part, source)),
        Err(Unwritten::Other(error)) => return Err(Failure::fatal(error)),
        Ok(written) => written,
    };
    let Reserved {
        mut columns,
        work,
        lease,
        way,
        ..
    } = reserved;
    columns.shorten(&shared.backends.any().layout(&shape.sizes));
    let placed = place(shared, job, part, way, &mut columns)?;
    Ok(Filled::Whole(Box::new(Synthesised {
        columns,
        work,
        lease,
        inputs,
        shape,
        placed,
        synthesis,
        worked,
        since: Instant::now(),
    })))
}

/// What else a synthesis gives.
struct Written {
    inputs: Vec<Scalar>,
    shape: Arc<CircuitShape>,
    /// The time that threads worked on it, all together.
    worked: Duration,
}

/// Why columns were not written.
pub(super) enum Unwritten {
    /// The circuit said so, or does not fit them.
    Synth(SynthError),
    /// The job is given up, or the part is of another shape.
    Other(ProveError),
}

/// Says that a part is synthesised whole although segments were asked for.
fn tell_whole(shared: &Shared, job: &Job, part: usize, obstacle: Obstacle) {
    shared.metrics.syntheses_instead.add(obstacle);
    let (job, reason) = (&job.label, obstacle.to_string());
    match obstacle {
        // Told as a warning once a circuit, by the survey or the doubt.
        Obstacle::Differs | Obstacle::Doubted => {
            tracing::info!(job, part, reason, "synthesised whole");
        }
        Obstacle::Growing | Obstacle::Surveyed | Obstacle::NoMemory => {
            tracing::warn!(job, part, reason, "synthesised whole");
        }
    }
}

/// Synthesises the whole circuit, one constraint after the other.
fn fill_whole(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
    circuit: &dyn Part,
    columns: &mut Columns,
) -> Result<Written, Unwritten> {
    let begun = Instant::now();
    let fill = || fill(shared, job, circuit, columns);
    let assigned = job.timeline.time_on_core("whole", part, fill);
    let worked = begun.elapsed();
    let assigned = assigned.map_err(Unwritten::Synth)?;
    shared.metrics.syntheses_whole.add(1);
    let Assigned {
        inputs,
        sizes,
        densities,
    } = assigned;
    let shape = shared
        .shapes
        .learn(&job.circuit.id(), part, &sizes, &densities, key)
        .map_err(Unwritten::Other)?;
    Ok(Written {
        inputs,
        shape,
        worked,
    })
}

/// Page-locks columns that are to be locked for this proof, and says where all of
/// them lie.
fn place(
    shared: &Shared,
    job: &Job,
    part: usize,
    way: Way,
    columns: &mut Columns,
) -> Result<Placed, Failure> {
    if way == Way::Register {
        let lock = || shared.placing.lock(&shared.memory, way, columns);
        let refused = job.timeline.time("pin", Some(part), lock);
        let refused = refused.map_err(|source| {
            let source = AcquireError::Backing { index: 0, source };
            Failure::fatal(ProveError::PageLocked { part, source })
        })?;
        if let Some(reason) = refused {
            shared.tell_refused(job, part, &reason);
        }
    }
    let placed = shared.placing.placed(way, columns);
    let Placed { name, is_pinned } = placed;
    tracing::debug!(
        job = job.label,
        part,
        placement = name,
        is_pinned,
        "columns are filled"
    );
    Ok(placed)
}

fn fill(
    shared: &Shared,
    job: &Job,
    circuit: &dyn Part,
    columns: &mut Columns,
) -> Result<Assigned, SynthError> {
    let with_c = shared.backends.any().c_column() == CColumn::Synthesised;
    let whole = |pass: &mut Pass<'_>| {
        job.ends(pass);
        circuit.synthesize_whole(pass)
    };
    match shared.tuning.sizing {
        Sizing::Exact => assign(into_columns(columns, with_c), whole),
        Sizing::Growing => {
            let (grown, assigned) = assign_growing(with_c, whole)?;
            stage(grown, columns, &assigned, with_c)?;
            Ok(assigned)
        }
    }
}

/// The columns as a synthesis writes them.
pub(super) fn into_columns(columns: &mut Columns, with_c: bool) -> AssignColumns<'_> {
    let c = columns.c.as_mut().filter(|_| with_c);
    AssignColumns {
        a: columns.a.scalars_mut(),
        b: columns.b.scalars_mut(),
        c: c.map(|column| column.scalars_mut()),
        aux: columns.aux.scalars_mut(),
    }
}

/// Copies grown columns to their place.
fn stage(
    grown: GrownColumns,
    columns: &mut Columns,
    assigned: &Assigned,
    with_c: bool,
) -> Result<(), SynthError> {
    let GrownColumns { a, b, c, aux } = grown;
    let mut copies = vec![
        (ColumnName::A, a, columns.a.scalars_mut()),
        (ColumnName::B, b, columns.b.scalars_mut()),
        (ColumnName::Aux, aux, columns.aux.scalars_mut()),
    ];
    if let Some(column) = columns.c.as_mut().filter(|_| with_c) {
        copies.push((ColumnName::C, c, column.scalars_mut()));
    }
    for (column, from, to) in copies {
        if from.len() > to.len() {
            let (have, want) = (to.len(), assigned.sizes);
            return Err(SynthError::HintTooSmall { column, have, want });
        }
        to[..from.len()].copy_from_slice(&from);
        to[from.len()..].fill(Scalar::ZERO);
    }
    Ok(())
}
