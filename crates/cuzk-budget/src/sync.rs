//! The locks of this crate: std's, or loom's when its models are built.
//!
//! Nothing else in the crate names a lock type, so that the code which the
//! models explore is the code that runs.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};

use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// Locks `mutex`, also after a panic elsewhere: every critical section of this
/// crate leaves its data consistent at each point where it could unwind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts one thread to sleep until its waker is called.
struct Parker {
    is_woken: Mutex<bool>,
    wake_up: Condvar,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *lock(&self.is_woken) = true;
        self.wake_up.notify_one();
    }
}

impl Parker {
    /// Sleeps until woken or until `deadline`, and forgets the wake-up.
    fn park_until(&self, deadline: Option<Instant>) {
        let mut is_woken = lock(&self.is_woken);
        while !*is_woken {
            is_woken = match deadline {
                None => self
                    .wake_up
                    .wait(is_woken)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.wake_up
                        .wait_timeout(is_woken, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        *is_woken = false;
    }
}

/// Polls on this thread until ready. After `deadline` the poll is repeated
/// without waiting: it is expected to see the deadline itself.
pub(crate) fn block_on<T>(
    deadline: Option<Instant>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> T {
    let parker = Arc::new(Parker {
        is_woken: Mutex::new(false),
        wake_up: Condvar::new(),
    });
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = poll(&mut context) {
            return value;
        }
        parker.park_until(deadline);
    }
}
