//! Reserve: one request for the columns of a part and the bytes of its proof.

use cuzk_budget::{Consumer, Priority as BudgetPriority, Wait};
use cuzk_gpu::{Column, Columns, Key, Section};
use cuzk_pinned::{AcquireError, AcquireRequest};
use cuzk_synth::{Sizes, count};

use super::{Job, Reserved, Shared};
use crate::error::{Failure, ProveError};
use crate::schedule::Priority;
use crate::shapes::to_circuit_sizes;

/// On whom the columns and working memory of parts are booked.
const PARTS: Consumer = Consumer("parts");

/// Waits for the part's memory, in the budget's order.
pub(crate) fn reserve(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
) -> Result<Reserved, Failure> {
    let sizes = match shared.shapes.sizes(&job.circuit.id()) {
        Some(hint) if fits(key, &hint) => hint,
        Some(_) => recount(job, key, part)?,
        None => sizes_from_key(key),
    };
    reserve_for(shared, job, key, part, &sizes)
}

/// Whether a hint agrees with the key. It comes from a file, so that its numbers may
/// be anything: the constraints are compared before a domain is made of them.
fn fits(key: &Key, hint: &Sizes) -> bool {
    hint.constraints <= sizes_from_key(key).constraints
        && key.check_sizes(&to_circuit_sizes(hint)).is_ok()
}

/// Key and hint disagree, and neither is believed: the circuit is counted. A key of
/// another circuit is told here, before anything is synthesised with a witness.
fn recount(job: &Job, key: &Key, part: usize) -> Result<Sizes, Failure> {
    let counted = count(|pass| job.circuit.synthesize_blank(pass))
        .map_err(|source| Failure::fatal(ProveError::Synthesis { part, source }))?;
    key.check_sizes(&to_circuit_sizes(&counted.sizes))
        .map_err(Failure::fatal)?;
    Ok(counted.sizes)
}

/// Before a shape is known its key bounds it: inputs and auxiliary variables are
/// exact, the constraints are at most the domain.
fn sizes_from_key(key: &Key) -> Sizes {
    Sizes {
        inputs: key.count(Section::Ic),
        aux: key.count(Section::L),
        constraints: key.count(Section::H) + 1,
    }
}

/// Waits for memory for a part of these sizes.
pub(super) fn reserve_for(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
    sizes: &Sizes,
) -> Result<Reserved, Failure> {
    let sizes = to_circuit_sizes(sizes);
    let layout = shared.backend.layout(&sizes);
    let lens: Vec<usize> = layout
        .lens()
        .into_iter()
        // What overflows is more than any budget has, and refused as such.
        .map(|len| Column::bytes(len).unwrap_or(usize::MAX))
        .collect();
    let request = AcquireRequest {
        buffers: &lens,
        bytes: shared.backend.work_bytes(&sizes, key),
        consumer: PARTS,
        wait: Wait::with_priority(budget_priority(job.priority)).cancelled_by(&job.cancel),
    };
    let acquired = shared.pool.acquire(&request).map_err(|source| {
        Failure::fatal(match source {
            AcquireError::Budget(source) if job.cancel.is_cancelled() => {
                tracing::debug!(%source, part, "the wait for memory was given up");
                ProveError::Cancelled
            }
            AcquireError::Budget(source) => ProveError::Memory {
                what: "a part",
                source,
            },
            source => ProveError::Allocation { part, source },
        })
    })?;
    Ok(Reserved {
        columns: Columns::from_buffers(acquired.buffers, &layout),
        work: acquired.reservation,
    })
}

fn budget_priority(priority: Priority) -> BudgetPriority {
    match priority {
        Priority::Low => BudgetPriority::LOWEST,
        Priority::Normal => BudgetPriority::NORMAL,
        Priority::High => BudgetPriority(192),
        Priority::Critical => BudgetPriority::HIGHEST,
    }
}
