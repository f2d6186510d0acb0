//! One value from any thread to a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Both ends.
pub(crate) fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Mutex::new(Shared {
        value: None,
        is_closed: false,
        waker: None,
    }));
    (Sender(Some(Arc::clone(&shared))), Receiver(shared))
}

struct Shared<T> {
    value: Option<T>,
    is_closed: bool,
    waker: Option<Waker>,
}

/// Sends the value. Dropped without one, it says so.
pub(crate) struct Sender<T>(Option<Arc<Mutex<Shared<T>>>>);

/// Becomes the value, or `None` if there will be none.
pub(crate) struct Receiver<T>(Arc<Mutex<Shared<T>>>);

/// Nothing that can panic runs while it is locked.
fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Sender<T> {
    pub(crate) fn send(mut self, value: T) {
        self.close(Some(value));
    }

    fn close(&mut self, value: Option<T>) {
        let Some(shared) = self.0.take() else { return };
        let waker = {
            let mut shared = lock(&shared);
            shared.value = value;
            shared.is_closed = true;
            shared.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.close(None);
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut shared = lock(&self.0);
        if shared.is_closed {
            return Poll::Ready(shared.value.take());
        }
        shared.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
