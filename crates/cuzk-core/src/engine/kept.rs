//! Memory that is kept for parts of the highest priority, so that none of them waits until
//! another part is proved.

use cuzk_budget::Consumer;

use crate::assemble::share_of;
use crate::config::Config;
use crate::error::ProveError;
use crate::stage::Shared;

/// Bytes that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Of the memory that columns lie in, no more than in all.
    pub(super) columns: u64,
    /// In all.
    pub(super) total: u64,
}

impl Kept {
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            columns: self.columns.max(other.columns),
            total: self.total.max(other.total),
        }
    }
}

impl Shared {
    /// Keeps what is configured, and says how much that is; `None` if that depends on the
    /// circuits that are warmed.
    pub(super) fn keep_configured(&self, config: &Config) -> Result<Option<Kept>, ProveError> {
        let budget = self.memory.budget();
        let limit_bytes = budget.limit_bytes();
        let Some(total) = share_of(config.critical_reserve, limit_bytes) else {
            return Ok(None);
        };
        let checked = budget.check(Consumer("memory.critical_reserve"), total);
        checked.map_err(|source| ProveError::Memory {
            what: "parts of the highest priority",
            source,
        })?;
        // Most of what a part takes is columns: so the same share of the memory that they lie
        // in, or else half of all memory would be all that is page-locked.
        let columns_limit = self.placing.pool(&self.memory).budget().limit_bytes();
        let columns = share_of(config.critical_reserve, columns_limit).unwrap_or(total);
        let columns = columns.min(total).min(columns_limit);
        let kept = Kept { columns, total };
        self.keep(kept);
        Ok(Some(kept))
    }

    /// What is kept now.
    pub(super) fn kept(&self) -> Kept {
        let columns = self.placing.pool(&self.memory).budget().kept_bytes();
        let total = self.memory.budget().kept_bytes();
        let columns = columns.min(total);
        Kept { columns, total }
    }

    /// Keeps bytes of the budget and, where columns lie in a share of it, of that.
    pub(super) fn keep(&self, kept: Kept) {
        let (share, budget) = (
            self.placing.pool(&self.memory).budget(),
            self.memory.budget(),
        );
        if !share.is_same_ledger(budget) {
            share.keep_for_highest(kept.columns);
        }
        budget.keep_for_highest(kept.total);
    }
}
