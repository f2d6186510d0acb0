//! Threads of stages: whatever becomes of one, the dispatcher hears of it once.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;

use super::table::Message;
use crate::belonging::EngineId;
use crate::error::{Failure, ProveError};

/// Runs a stage on a thread of its own. The scheduler bounds how many reserve,
/// synthesise, prove and explain; checks come no faster than proofs, and a job as a
/// whole has one stage at a time.
pub(super) fn spawn<T: Send + 'static>(
    outbox: Sender<Message>,
    stage: &'static str,
    message: impl FnOnce(Result<T, Failure>) -> Message + Send + 'static,
    run: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) {
    // The dispatcher's.
    let engine = EngineId::of_this_thread();
    let end = StageEnd {
        stage,
        outbox,
        message: Some(message),
        _result: PhantomData,
    };
    let spawned = std::thread::Builder::new()
        .name(format!("cuzk-{stage}"))
        .spawn(move || {
            EngineId::enter(engine);
            let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
                let message = panic_message(panic.as_ref());
                Err(Failure::ours(ProveError::Panic { stage, message }))
            });
            end.tell(result);
        });
    if let Err(error) = spawned {
        tracing::error!(stage, %error, "a thread could not be started");
    }
}

/// Tells the dispatcher how a stage ended, also if its thread never ran.
struct StageEnd<T, M: FnOnce(Result<T, Failure>) -> Message> {
    stage: &'static str,
    outbox: Sender<Message>,
    message: Option<M>,
    _result: PhantomData<fn(T)>,
}

impl<T, M: FnOnce(Result<T, Failure>) -> Message> StageEnd<T, M> {
    fn tell(mut self, result: Result<T, Failure>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<T, Failure>) {
        if let Some(message) = self.message.take() {
            // The dispatcher ends only when no stage runs.
            let _ = self.outbox.send(message(result));
        }
    }
}

impl<T, M: FnOnce(Result<T, Failure>) -> Message> Drop for StageEnd<T, M> {
    fn drop(&mut self) {
        let stage = self.stage;
        self.send(Err(Failure::ours(ProveError::Thread { stage })));
    }
}

/// What a panic says.
pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is no text")
        .to_owned()
}
