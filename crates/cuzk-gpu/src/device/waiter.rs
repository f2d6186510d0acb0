//! A thread that waits for fences of one stream, in their order, so that the owner of a
//! device does not.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::oneshot::{self, oneshot};
use crate::error::BackendError;

/// A point in a stream's work that can be waited for on any thread. The wait ends also
/// where the device fails.
pub(crate) trait Passes: Send + 'static {
    fn wait(&self) -> Result<(), BackendError>;
}

/// A fence and who hears of its end.
type Waited<F> = (F, oneshot::Sender<Result<(), BackendError>>);

/// The thread. Fences are few: a slot waits for four at a time, and a load for two.
pub(crate) struct Waiter<F> {
    fences: Option<Sender<Waited<F>>>,
    thread: Option<JoinHandle<()>>,
}

/// Becomes what a fence ended with.
pub(crate) type Passed = oneshot::Receiver<Result<(), BackendError>>;

impl<F: Passes> Waiter<F> {
    pub(crate) fn start(name: String) -> Result<Self, BackendError> {
        let (fences, inbox) = channel::<Waited<F>>();
        let wait = move || {
            for (fence, passed) in inbox {
                let result = fence.wait();
                // It may be used again as soon as its end is told.
                drop(fence);
                passed.send(result);
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(wait);
        let thread = thread.map_err(|error| BackendError::Start {
            what: "a thread that waits for the device",
            reason: error.to_string(),
        })?;
        Ok(Self {
            fences: Some(fences),
            thread: Some(thread),
        })
    }

    /// Waits for a fence that is queued behind those before.
    pub(crate) fn wait(&self, fence: F) -> Passed {
        let (sender, passed) = oneshot();
        if let Some(fences) = &self.fences {
            // Should the thread have ended, the sender's drop says so.
            let _ = fences.send((fence, sender));
        }
        passed
    }
}

impl<F> Drop for Waiter<F> {
    fn drop(&mut self) {
        self.fences = None;
        if let Some(thread) = self.thread.take() {
            // It ends with the fence that it waits for.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc::Receiver;

    use super::super::executor::tests::{block_on, run_all};
    use super::*;

    /// A fence that passes when it is told to.
    struct Fake(Receiver<Result<(), BackendError>>);

    impl Passes for Fake {
        fn wait(&self) -> Result<(), BackendError> {
            self.0.recv().unwrap_or(Err(BackendError::Lost))
        }
    }

    #[test]
    fn slots_move_as_their_fences_pass() {
        let waiters = [0, 1].map(|at| Waiter::start(format!("waits-{at}")).expect("a thread"));
        let (pass, fences): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (pass, fence) = channel();
                (pass, Fake(fence))
            })
            .unzip();
        let order = RefCell::new(Vec::new());
        let [first, second]: [Fake; 2] = fences.try_into().ok().expect("two");
        let slow = async {
            let passed = waiters[0].wait(first).await;
            assert!(matches!(passed, Some(Ok(()))));
            order.borrow_mut().push("slow");
        };
        let quick = async {
            pass[1].send(Ok(())).expect("the fence lives");
            assert!(matches!(waiters[1].wait(second).await, Some(Ok(()))));
            order.borrow_mut().push("quick");
            pass[0].send(Ok(())).expect("the fence lives");
        };
        run_all(vec![Box::pin(slow), Box::pin(quick)]);
        assert_eq!(order.into_inner(), ["quick", "slow"]);
    }

    #[test]
    fn a_failure_is_told_and_the_next_fence_waited_for() {
        let waiter = Waiter::start("waits".to_owned()).expect("a thread");
        let (pass, fence) = channel();
        pass.send(Err(BackendError::DeviceLost { ordinal: 3 }))
            .expect("the fence lives");
        let failed = waiter.wait(Fake(fence));
        let (pass, fence) = channel();
        pass.send(Ok(())).expect("the fence lives");
        let passed = waiter.wait(Fake(fence));
        let failed = block_on(failed);
        let is_told = matches!(failed, Some(Err(BackendError::DeviceLost { ordinal: 3 })));
        assert!(is_told, "{failed:?}");
        assert!(matches!(block_on(passed), Some(Ok(()))));
    }
}
