//! The lock of this crate.

pub(crate) use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

/// Locks `mutex`, also after a panic elsewhere: every critical section of this
/// crate leaves its data consistent at each point where it could unwind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
