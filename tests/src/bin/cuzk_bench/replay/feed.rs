//! The loop that feeds.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context, Result};
use cuzk_gpu::{Backend, KeyTier, Pending, Phase};

use super::prepared::Prepared;

/// A part that was proved.
pub(super) struct Made {
    pub(super) submitted: Instant,
    /// When its proof was there.
    pub(super) replied: Instant,
    pub(super) phases: Vec<Phase>,
    pub(super) tier: Option<KeyTier>,
}

/// A part under way.
struct Flying {
    assignment: usize,
    submitted: Instant,
    pending: Pending,
}

/// Proves `parts` parts, `in_flight` of them submitted at any time, and compares each proof.
/// They begin with one assignment after the other.
pub(super) fn feed(
    backend: &dyn Backend,
    prepared: &mut Prepared,
    parts: usize,
    in_flight: usize,
) -> Result<Vec<Made>> {
    let mut made = Vec::with_capacity(parts);
    let mut flying = VecDeque::with_capacity(in_flight);
    let result = (0..parts).try_for_each(|_| {
        if flying.len() == in_flight {
            made.push(land(prepared, &mut flying)?);
        }
        let assignment = prepared.next();
        let request = prepared.request(assignment)?;
        flying.push_back(Flying {
            assignment,
            submitted: Instant::now(),
            pending: backend.submit(request),
        });
        Ok(())
    });
    // After a failure the others still bring their columns back.
    let landed = result.and_then(|()| {
        while !flying.is_empty() {
            made.push(land(prepared, &mut flying)?);
        }
        Ok(())
    });
    while landed.is_err() && !flying.is_empty() {
        let _ = land(prepared, &mut flying);
    }
    landed.map(|()| made)
}

/// Waits for the part that was submitted first.
fn land(prepared: &mut Prepared, flying: &mut VecDeque<Flying>) -> Result<Made> {
    let mut first = flying.pop_front().context("a part under way")?;
    let columns = first.pending.columns_read();
    let proved = first.pending.done();
    let replied = Instant::now();
    if let Some(columns) = columns {
        prepared.give_back(first.assignment, columns);
    }
    let proved = proved?;
    prepared.check(first.assignment, &proved)?;
    Ok(Made {
        submitted: first.submitted,
        replied,
        phases: proved.phases,
        tier: proved.tier,
    })
}
