//! The loop that feeds.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context, Result};
use cuzk_gpu::{Backend, KeyTier, Pending, Phase};

use super::prepared::Prepared;

/// A part that was proved.
pub(crate) struct Made {
    pub(super) submitted: Instant,
    /// When its proof was there.
    pub(super) replied: Instant,
    pub(crate) phases: Vec<Phase>,
    pub(crate) tier: Option<KeyTier>,
}

/// A part under way.
struct Flying {
    assignment: usize,
    has_columns: bool,
    submitted: Instant,
    pending: Pending,
}

impl Flying {
    /// Gives its columns back, unless it has or they were lost.
    fn give_back(&mut self, prepared: &mut Prepared) {
        if std::mem::take(&mut self.has_columns)
            && let Some(columns) = self.pending.columns_read()
        {
            prepared.give_back(self.assignment, columns);
        }
    }
}

/// Proves `parts` parts, `in_flight` of them submitted at any time, and compares each proof.
/// They begin with one assignment after the other.
pub(crate) fn feed(
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
        // Whoever has its columns gives them back when they are uploaded, long before its
        // proof is there.
        let owner = flying
            .iter_mut()
            .find(|part: &&mut Flying| part.assignment == assignment && part.has_columns);
        if let Some(owner) = owner {
            owner.give_back(prepared);
        }
        let request = prepared.request(assignment)?;
        flying.push_back(Flying {
            assignment,
            has_columns: true,
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
    let proved = first.pending.done();
    let replied = Instant::now();
    first.give_back(prepared);
    let proved = proved?;
    prepared.check(first.assignment, &proved)?;
    Ok(Made {
        submitted: first.submitted,
        replied,
        phases: proved.phases,
        tier: proved.tier,
    })
}
