//! Which engine a thread works for, so that none waits for itself.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static WORKS_FOR: Cell<Option<EngineId>> = const { Cell::new(None) };
}

/// Sets an engine apart from all others of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineId(u64);

impl EngineId {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// The engine that this thread works for.
    pub(crate) fn of_this_thread() -> Option<Self> {
        WORKS_FOR.get()
    }

    /// This thread works for that engine from now on.
    pub(crate) fn enter(engine: Option<Self>) {
        WORKS_FOR.set(engine);
    }
}
