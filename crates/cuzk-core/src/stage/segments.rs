//! Segments: the columns of a part whose circuit repeats, filled by several threads.

use std::time::{Duration, Instant};

use blstrs::Scalar;
use cuzk_budget::Reservation;
use cuzk_gpu::{CColumn, Columns, Key};
use cuzk_synth::SynthError;

use super::survey::{Known, Look, asked};
use super::synthesise::{Unwritten, into_columns};
use super::{Job, Shared};
use crate::crew::Unfinished;
use crate::error::{Failure, ProveError};
use crate::templates::{CutCircuit, Found};
use crate::{Obstacle, Part};

/// How a part is filled: from its circuit as what it repeats, known from an earlier part
/// or found out now, or whole.
pub(super) fn cut_of(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
    circuit: &dyn Part,
    work: &mut Reservation,
) -> Result<Option<Known>, Failure> {
    let Some(cut) = job.circuit.cut() else {
        return Ok(None);
    };
    match asked(shared) {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(obstacle) => return Ok(Some(Err(obstacle))),
    }
    let look = Look {
        shared,
        circuit: job.circuit.as_ref(),
        key,
        part,
        cut,
        job: Some(job),
    };
    let known = match shared.templates.find(&job.circuit.id()) {
        Found::Whole(obstacle) => Err(obstacle),
        Found::Cut(cut) => {
            // The key may be another one than that of the part that found it out.
            key.check_shape(&cut.shape).map_err(Failure::fatal)?;
            Ok(cut)
        }
        Found::Unknown(surveying) => {
            let find_out = || look.find_out(surveying, Some(work));
            job.timeline.time("survey", Some(part), find_out)?
        }
    };
    let (Ok(cut), segments) = (&known, circuit.segments()) else {
        return Ok(Some(known));
    };
    let blocks = cut.template.blocks();
    if segments > 0 && blocks.is_multiple_of(segments) {
        return Ok(Some(known));
    }
    look.refuse(SynthError::UnevenSegments { blocks, segments }.to_string());
    shared.templates.differs(&job.circuit.id());
    Ok(Some(Err(Obstacle::Differs)))
}

/// Fills the columns of a part, and gives its inputs, and the time that threads worked on it.
pub(super) fn fill(
    shared: &Shared,
    job: &Job,
    cut: &CutCircuit,
    part: usize,
    circuit: &dyn Part,
    columns: &mut Columns,
) -> Result<(Vec<Scalar>, Duration), Unwritten> {
    let template = &cut.template;
    let with_c = shared.backends.any().c_column() == CColumn::Synthesised;
    let columns = into_columns(columns, with_c);
    let columns = template
        .cut(columns, circuit.segments())
        .map_err(Unwritten::Synth)?;
    let filled = shared.crew.run(
        || job.standing.priority(),
        columns.segments,
        || job.standing.is_given_up(),
        |segment, columns| {
            let fill = || {
                template.fill(columns, |pass| {
                    job.ends(pass);
                    circuit.synthesize(segment, pass)
                })
            };
            let begun = Instant::now();
            let filled = job.timeline.time_on_core("segment", part, fill)?;
            Ok((filled, begun.elapsed()))
        },
    );
    let filled = filled.map_err(|unfinished| match unfinished {
        Unfinished::Stopped => Unwritten::Other(ProveError::Cancelled),
        Unfinished::Failed(error) => Unwritten::Synth(error),
    })?;
    shared.metrics.syntheses_cut.add(1);
    let (filled, times): (Vec<_>, Vec<Duration>) = filled.into_iter().unzip();
    let inputs = template
        .finish(columns.rest, filled)
        .map_err(Unwritten::Synth)?;
    Ok((inputs, times.into_iter().sum()))
}

/// Columns that were made with a template may have been wrong although the witness is
/// not, or the device was: the next part is synthesised whole, what was found is forgotten,
/// and the circuit is surveyed anew, all of it. If that finds other rows, it stays whole after the
/// next doubt.
pub(super) fn distrust(shared: &Shared, job: &Job) {
    let circuit = job.circuit.id();
    if let Some(doubts) = shared.templates.doubt(&circuit) {
        tracing::warn!(%circuit, doubts, "its stored rows are not trusted any more");
        shared.shapes.keep_cut(&circuit, None);
    }
}
