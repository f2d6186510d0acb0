//! Segments: the columns of a part whose circuit repeats, filled by several threads.

use std::sync::Arc;

use blstrs::Scalar;
use cuzk_gpu::{CColumn, Columns, Key};
use cuzk_synth::{Cut, CutHint, Extend, SynthError, Template, Uncut, survey};

use super::synthesise::{Unwritten, into_columns};
use super::{Job, Shared, sizes_from_key};
use crate::Part;
use crate::config::{Sizing, Synthesis};
use crate::crew::Unfinished;
use crate::error::{Failure, ProveError};
use crate::shapes::hex;
use crate::templates::{CutCircuit, Found, Surveying};

/// The circuit of a part as what it repeats, if it is to be filled in segments: known
/// from an earlier part, or found out now.
pub(super) fn cut_of(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
    circuit: &dyn Part,
) -> Result<Option<Arc<CutCircuit>>, Failure> {
    let tuning = &shared.tuning;
    if tuning.synthesis == Synthesis::Whole || tuning.sizing == Sizing::Growing {
        return Ok(None);
    }
    let Some(cut) = job.circuit.cut() else {
        return Ok(None);
    };
    match shared.templates.find(&job.circuit.id()) {
        Found::Whole => Ok(None),
        Found::Surveyed => {
            let job = &job.label;
            tracing::info!(
                job,
                part,
                "synthesised whole while another part surveys the circuit"
            );
            Ok(None)
        }
        Found::Cut(cut) => {
            // The key may be another one than that of the part that found it out.
            key.check_shape(&cut.shape).map_err(Failure::fatal)?;
            Ok(Some(cut))
        }
        Found::Unknown(surveying) => job.timeline.time("survey", Some(part), || {
            find_out(shared, job, key, part, circuit, cut, surveying)
        }),
    }
}

/// Surveys a circuit, and keeps what was found.
fn find_out(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
    circuit: &dyn Part,
    cut: Cut,
    surveying: Surveying<'_>,
) -> Result<Option<Arc<CutCircuit>>, Failure> {
    let id = job.circuit.id();
    if let Some(CutHint::Uncut(reason)) = shared.shapes.cut(&id) {
        tracing::info!(circuit = %id, reason, "synthesised whole, as an earlier survey found");
        surveying.whole();
        return Ok(None);
    }
    let rows = sizes_from_key(key).constraints / circuit.segments();
    let Some(memory) = surveying.memory(rows) else {
        tracing::info!(circuit = %id, "synthesised whole: no memory to store what it repeats");
        return Ok(None);
    };
    let limit_bytes = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
    let look = |extend| look(shared, job, part, cut, extend, limit_bytes);
    let found = shared.templates.found(&id);
    let template = match again(found.as_ref(), look)? {
        Some(template) => Ok(template),
        None => look(Extend::Whole)?,
    };
    let template = template.and_then(|template| fits(template, circuit.segments()));
    let template = match template {
        Ok(template) => template,
        Err(reason) => {
            shared.metrics.cuts_refused.add(1);
            tracing::warn!(circuit = %id, reason, "synthesised whole: the circuit is not cut");
            shared.shapes.keep_cut(&id, Some(CutHint::Uncut(reason)));
            surveying.whole();
            return Ok(None);
        }
    };
    let (sizes, densities) = (template.sizes(), template.densities());
    let shape = shared
        .shapes
        .learn(&id, part, &sizes, &densities, key)
        .map_err(Failure::fatal)?;
    let found = CutHint::Blocks {
        count: template.blocks(),
        is_uniform: template.is_uniform(),
        digest: hex(&template.digest()),
    };
    let (blocks, bytes) = (template.blocks(), template.bytes());
    tracing::info!(circuit = %id, blocks, bytes, "the circuit repeats, and is stored once");
    shared.templates.keep_found(&id, found.clone());
    shared.shapes.keep_cut(&id, Some(found));
    Ok(Some(surveying.cut(template, shape, memory)))
}

type Looked = Result<Result<Template, String>, Failure>;

fn look(
    shared: &Shared,
    job: &Job,
    part: usize,
    cut: Cut,
    extend: Extend,
    limit_bytes: usize,
) -> Looked {
    let with_c = shared.backends.any().c_column() == CColumn::Synthesised;
    let found = survey(cut, extend, with_c, limit_bytes, |pass| {
        job.circuit.synthesize_blank(pass)
    });
    let found = found.map_err(|source| Failure::fatal(ProveError::Synthesis { part, source }))?;
    Ok(found.map_err(|uncut: Uncut| uncut.to_string()))
}

/// The template by its first block, if an earlier survey of the whole found that the block
/// tells the rest, and the block is the one that it saw.
fn again(
    found: Option<&CutHint>,
    look: impl Fn(Extend) -> Looked,
) -> Result<Option<Template>, Failure> {
    let Some(CutHint::Blocks {
        count,
        is_uniform: true,
        digest,
    }) = found
    else {
        return Ok(None);
    };
    let found = look(Extend::FirstBlock { blocks: *count })?;
    let is_it = |template: &Template| hex(&template.digest()) == *digest;
    Ok(found.ok().filter(is_it))
}

/// The template, if segments divide its blocks.
fn fits(template: Template, segments: usize) -> Result<Template, String> {
    let blocks = template.blocks();
    if blocks.is_multiple_of(segments) {
        return Ok(template);
    }
    Err(SynthError::UnevenSegments { blocks, segments }.to_string())
}

/// Fills the columns of a part, and gives its inputs.
pub(super) fn fill(
    shared: &Shared,
    job: &Job,
    cut: &CutCircuit,
    circuit: &dyn Part,
    columns: &mut Columns,
) -> Result<Vec<Scalar>, Unwritten> {
    let template = &cut.template;
    let with_c = shared.backends.any().c_column() == CColumn::Synthesised;
    let columns = into_columns(columns, with_c);
    let columns = template
        .cut(columns, circuit.segments())
        .map_err(Unwritten::Synth)?;
    let filled = shared.crew.run(
        job.priority,
        columns.segments,
        || job.cancel.is_cancelled(),
        |segment, columns| template.fill(columns, |pass| circuit.synthesize(segment, pass)),
    );
    let filled = filled.map_err(|unfinished| match unfinished {
        Unfinished::Stopped => Unwritten::Other(ProveError::Cancelled),
        Unfinished::Failed(error) => Unwritten::Synth(error),
    })?;
    shared.metrics.syntheses_cut.add(1);
    Ok(template.finish(columns.rest, filled))
}

/// Columns that were made with a template may have been wrong although the witness is
/// not, or the device was: the next part is synthesised whole, what was found is forgotten,
/// and the circuit is surveyed anew. The second time it stays whole.
pub(super) fn distrust(shared: &Shared, job: &Job) {
    let circuit = job.circuit.id();
    if let Some(doubts) = shared.templates.doubt(&circuit) {
        tracing::warn!(%circuit, doubts, "its stored rows are not trusted any more");
        shared.shapes.keep_cut(&circuit, None);
    }
}
