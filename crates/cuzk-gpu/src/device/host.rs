//! Work of the host for a future: on a thread of its own, with mail on the way.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::oneshot::oneshot;
use crate::error::BackendError;

/// Does `work` on a thread of its own; it begins at once, and becomes what that
/// returned. What `work` holds is dropped before. Should the future be dropped, the
/// work goes on to its end.
///
/// # Errors
/// [`BackendError::Start`] if there is no thread, and [`BackendError::Panic`].
pub(crate) fn on_thread<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, BackendError>> {
    let (sender, receiver) = oneshot();
    let work = move || {
        if let Ok(done) = catch_unwind(AssertUnwindSafe(work)) {
            sender.send(done);
        }
    };
    let spawned = std::thread::Builder::new()
        .name("cuzk-host".to_owned())
        .spawn(work);
    async move {
        spawned.map_err(|error| BackendError::Start {
            what,
            reason: error.to_string(),
        })?;
        let done = receiver.await;
        done.ok_or_else(|| BackendError::Panic(what.to_owned()))
    }
}

/// Letters from threads to a future. As many as are sent lie in the box: who sends
/// waits for answers.
pub(crate) fn mailbox<T>() -> (Post<T>, Mailbox<T>) {
    let shared = Arc::new(Mutex::new(Shared {
        letters: VecDeque::new(),
        is_sent: false,
        is_closed: false,
        waker: None,
    }));
    (Post(Arc::clone(&shared)), Mailbox(shared))
}

struct Shared<T> {
    letters: VecDeque<T>,
    /// No letter will come any more.
    is_sent: bool,
    /// Nobody reads any.
    is_closed: bool,
    waker: Option<Waker>,
}

/// Where letters are sent from.
pub(crate) struct Post<T>(Arc<Mutex<Shared<T>>>);

/// Where they arrive.
pub(crate) struct Mailbox<T>(Arc<Mutex<Shared<T>>>);

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    // Nothing that can panic runs while it is locked.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<T> Post<T> {
    /// Sends a letter, or drops it where nobody reads any.
    pub(crate) fn send(&self, letter: T) {
        let waker = {
            let mut shared = lock(&self.0);
            if shared.is_closed {
                return;
            }
            shared.letters.push_back(letter);
            shared.waker.take()
        };
        wake(waker);
    }
}

impl<T> Drop for Post<T> {
    fn drop(&mut self) {
        let waker = {
            let mut shared = lock(&self.0);
            shared.is_sent = true;
            shared.waker.take()
        };
        wake(waker);
    }
}

impl<T> Mailbox<T> {
    /// The next letter; `None` when nobody can send any more.
    pub(crate) async fn next(&mut self) -> Option<T> {
        poll_fn(|context| {
            let mut shared = lock(&self.0);
            if let Some(letter) = shared.letters.pop_front() {
                return Poll::Ready(Some(letter));
            }
            if shared.is_sent {
                return Poll::Ready(None);
            }
            shared.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<T> Drop for Mailbox<T> {
    /// Who waits for an answer to a letter hears that there is none.
    fn drop(&mut self) {
        let letters = {
            let mut shared = lock(&self.0);
            shared.is_closed = true;
            std::mem::take(&mut shared.letters)
        };
        drop(letters);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::super::executor::tests::block_on;
    use super::*;

    #[test]
    fn a_thread_asks_and_is_answered() {
        let (post, mut letters) = mailbox();
        let answers = block_on(async {
            let work = on_thread("a test", move || {
                let asked = (0..100_u64).map(|number| {
                    let (reply, answer) = sync_channel(1);
                    post.send((number, reply));
                    answer.recv().expect("answered")
                });
                asked.sum::<u64>()
            });
            while let Some((number, reply)) = letters.next().await {
                reply.send(2 * number).expect("it waits");
            }
            work.await
        });
        assert_eq!(answers.expect("no panic"), 9900);
    }

    #[test]
    fn who_asks_nobody_hears_it() {
        let (post, letters) = mailbox();
        let (reply, answer) = sync_channel::<()>(1);
        post.send(reply);
        drop(letters);
        assert!(answer.recv().is_err());
        let (reply, answer) = sync_channel::<()>(1);
        post.send(reply);
        assert!(answer.recv().is_err());
    }

    #[test]
    fn a_panic_is_an_error_with_its_place() {
        let work = on_thread::<()>("reading a key", || panic!("on the way"));
        let error = block_on(work).expect_err("a panic");
        assert_eq!(
            error.to_string(),
            BackendError::Panic("reading a key".to_owned()).to_string()
        );
    }
}
