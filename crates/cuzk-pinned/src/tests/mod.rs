//! Tests of the pool over heap memory that is counted from outside.

mod edges;
mod fences;
mod law;
mod locking;
mod order;
mod reuse;
mod shares;
mod staging;
mod threads;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuzk_budget::{Budget, BudgetError, Consumer, Priority, Wait};

use crate::{
    AcquireError, AcquireRequest, Acquired, Backing, BackingError, HeapBacking, PinnedPool,
    PoolOptions,
};

const COLUMNS: Consumer = Consumer("columns");
const OTHERS: Consumer = Consumer("others");

/// Heap memory that knows how much of it is allocated, and that the budget
/// counts at least as much whenever it is called.
#[derive(Debug)]
struct CountingBacking {
    budget: Budget,
    live_bytes: AtomicU64,
    /// Allocations and frees, to tell whether there were any.
    changes: AtomicU64,
}

impl CountingBacking {
    fn under(budget: &Budget) -> Arc<Self> {
        Arc::new(Self {
            budget: budget.clone(),
            live_bytes: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        })
    }

    fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::SeqCst)
    }

    /// Called before memory is freed and after it is allocated: the ledger holds no
    /// less than all that is live. Where another thread allocated or freed meanwhile
    /// the two were not looked at at one moment, and nothing is said.
    fn check_counted(&self) {
        let changes = self.changes.load(Ordering::SeqCst);
        let live_bytes = self.live_bytes();
        let used_bytes = self.budget.usage().used_bytes;
        if self.changes.load(Ordering::SeqCst) == changes {
            assert!(live_bytes <= used_bytes, "{live_bytes} of {used_bytes}");
        }
    }
}

// SAFETY: memory comes from `HeapBacking`, which makes the promise.
unsafe impl Backing for CountingBacking {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn is_page_locked(&self) -> bool {
        true
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        HeapBacking.rounded(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError> {
        let start = HeapBacking.allocate(bytes)?;
        self.live_bytes.fetch_add(bytes as u64, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.check_counted();
        Ok(start)
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        self.check_counted();
        self.live_bytes.fetch_sub(bytes as u64, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise, passed on.
        unsafe { HeapBacking.free(start, bytes) }
    }
}

/// A pool over counted memory under a budget of its own, or a share of it.
struct Bench {
    budget: Budget,
    /// The pool's own ledger.
    share: Budget,
    backing: Arc<CountingBacking>,
    pool: PinnedPool,
}

impl Bench {
    fn new(limit_bytes: u64) -> Self {
        let budget = Budget::new(limit_bytes);
        Self::under(budget.clone(), budget)
    }

    /// Buffers count in a share of the limit, what is asked beside them does not.
    fn with_share(limit_bytes: u64, share_bytes: u64) -> Self {
        let budget = Budget::new(limit_bytes);
        let share = budget.share("page-locked memory", share_bytes);
        Self::under(budget, share)
    }

    fn under(budget: Budget, share: Budget) -> Self {
        let backing = CountingBacking::under(&share);
        let pool = PinnedPool::with_bytes_in(
            share.clone(),
            budget.clone(),
            Arc::clone(&backing),
            PoolOptions::STANDARD,
        );
        Self {
            budget,
            share,
            backing,
            pool,
        }
    }

    fn used_bytes(&self) -> u64 {
        self.budget.usage().used_bytes
    }

    fn try_acquire(&self, buffers: &[usize], bytes: u64) -> Result<Acquired, AcquireError> {
        self.pool.try_acquire(&request(buffers, bytes))
    }

    /// Drops the pool and checks that nothing is left of it.
    fn end(self) {
        drop(self.pool);
        assert_eq!(self.budget.usage().used_bytes, 0, "the ledger ends at zero");
        assert_eq!(self.share.usage().used_bytes, 0, "its share as well");
        assert_eq!(self.backing.live_bytes(), 0, "no memory is left");
    }
}

fn request(buffers: &[usize], bytes: u64) -> AcquireRequest<'_> {
    AcquireRequest {
        buffers,
        bytes,
        consumer: COLUMNS,
        wait: Wait::with_priority(Priority::NORMAL),
    }
}

fn is_refused(result: &Result<Acquired, AcquireError>) -> bool {
    matches!(result, Err(AcquireError::Budget(BudgetError::Refused(_))))
}
