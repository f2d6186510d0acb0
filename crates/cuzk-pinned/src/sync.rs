//! The lock of this crate: std's, or loom's when its models are built.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks `mutex`, also after a panic elsewhere: every critical section of this
/// crate leaves its data consistent at each point where it could unwind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
