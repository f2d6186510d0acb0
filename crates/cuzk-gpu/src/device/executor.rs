//! Futures on one thread, which sleeps while none of them can move.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::task::{Context, Poll, Wake, Waker};

/// What the thread hears.
#[derive(Debug)]
pub(crate) enum Event<T> {
    /// From outside.
    Message(T),
    /// The future of this number can move.
    Poll(u64),
}

/// The futures of a thread and its inbox.
pub(crate) struct Executor<'a, T> {
    inbox: Receiver<Event<T>>,
    /// For wakers. The inbox therefore never closes: its end is a message.
    outbox: Sender<Event<T>>,
    tasks: HashMap<u64, Task<'a>>,
    next: u64,
}

struct Task<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    waker: Waker,
    is_woken: Arc<AtomicBool>,
}

/// Posts a task's number, once until it is polled.
struct Post<T> {
    task: u64,
    is_woken: Arc<AtomicBool>,
    outbox: Sender<Event<T>>,
}

impl<T: Send + 'static> Wake for Post<T> {
    fn wake(self: Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            // A thread that has ended polls nothing any more.
            let _ = self.outbox.send(Event::Poll(self.task));
        }
    }
}

impl<'a, T: Send + 'static> Executor<'a, T> {
    /// With both ends of its inbox.
    pub(crate) fn new(outbox: Sender<Event<T>>, inbox: Receiver<Event<T>>) -> Self {
        Self {
            inbox,
            outbox,
            tasks: HashMap::new(),
            next: 0,
        }
    }

    /// Number of futures that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Takes a future and lets it move as far as it can.
    pub(crate) fn spawn(&mut self, future: impl Future<Output = ()> + 'a) {
        let task = self.next;
        self.next += 1;
        let is_woken = Arc::new(AtomicBool::new(false));
        let post = Post {
            task,
            is_woken: Arc::clone(&is_woken),
            outbox: self.outbox.clone(),
        };
        let task_of = Task {
            future: Box::pin(future),
            waker: Waker::from(Arc::new(post)),
            is_woken,
        };
        self.tasks.insert(task, task_of);
        self.poll(task);
    }

    /// Sleeps until there is a message, and meanwhile moves every future that can.
    pub(crate) fn next_message(&mut self) -> Option<T> {
        match self.inbox.recv().expect("the executor holds a sender") {
            Event::Message(message) => Some(message),
            Event::Poll(task) => {
                self.poll(task);
                None
            }
        }
    }

    fn poll(&mut self, task: u64) {
        // A future that has ended may have been woken before.
        let Some(found) = self.tasks.get_mut(&task) else {
            return;
        };
        found.is_woken.store(false, Ordering::Release);
        let mut context = Context::from_waker(&found.waker);
        let future = found.future.as_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(&mut context)));
        if !matches!(polled, Ok(Poll::Pending)) {
            let ended = self.tasks.remove(&task);
            // Those who answer for a future catch its panics; what is left is one in a
            // destructor, and nobody's.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
        }
    }
}

/// A future that panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

/// A future whose panics are errors.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = Some(Box::pin(future));
    std::future::poll_fn(move |context| {
        let Some(inner) = future.as_mut() else {
            return Poll::Ready(Err(Panicked));
        };
        let polled = catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll(context)));
        if let Ok(Poll::Pending) = polled {
            return Poll::Pending;
        }
        let ended = future.take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(ended)));
        Poll::Ready(match (polled, dropped) {
            (Ok(Poll::Ready(output)), Ok(())) => Ok(output),
            _ => Err(Panicked),
        })
    })
    .await
}

/// Carries two futures to their ends, beside each other.
pub(crate) async fn both<A: Future, B: Future>(first: A, second: B) -> (A::Output, B::Output) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let mut ended = (None, None);
    std::future::poll_fn(|context| {
        if ended.0.is_none()
            && let Poll::Ready(output) = first.as_mut().poll(context)
        {
            ended.0 = Some(output);
        }
        if ended.1.is_none()
            && let Poll::Ready(output) = second.as_mut().poll(context)
        {
            ended.1 = Some(output);
        }
        match (ended.0.take(), ended.1.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            not_yet => {
                ended = not_yet;
                Poll::Pending
            }
        }
    })
    .await
}

/// Lets the others move first.
pub(crate) async fn give_way() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::{Cell, RefCell};
    use std::sync::mpsc::channel;

    use super::super::oneshot::oneshot;
    use super::*;

    /// Carries one future to its end.
    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        let (outbox, inbox) = channel::<Event<()>>();
        let output = RefCell::new(None);
        let mut executor = Executor::new(outbox, inbox);
        executor.spawn(async {
            let ended = future.await;
            output.replace(Some(ended));
        });
        while executor.len() != 0 {
            executor.next_message();
        }
        drop(executor);
        output.into_inner().expect("it ended without a panic")
    }

    /// Several futures by turns until each has ended.
    pub(crate) fn run_all<'a>(futures: Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>) {
        let (outbox, inbox) = channel::<Event<()>>();
        let mut executor = Executor::new(outbox, inbox);
        futures
            .into_iter()
            .for_each(|future| executor.spawn(future));
        while executor.len() != 0 {
            executor.next_message();
        }
    }

    #[test]
    fn a_future_moves_while_another_waits() {
        let (first_sender, first) = oneshot::<u32>();
        let (second_sender, second) = oneshot::<u32>();
        let order = RefCell::new(Vec::new());
        let waits = async {
            let value = first.await.expect("sent by the other");
            order.borrow_mut().push(value);
        };
        let moves = async {
            let value = second.await.expect("sent by a thread");
            order.borrow_mut().push(value);
            first_sender.send(2);
        };
        let thread = std::thread::spawn(move || second_sender.send(1));
        run_all(vec![Box::pin(waits), Box::pin(moves)]);
        thread.join().expect("the thread only sends");
        assert_eq!(order.into_inner(), [1, 2]);
    }

    #[test]
    fn of_two_each_moves_while_the_other_waits() {
        for is_swapped in [false, true] {
            let (sender, receiver) = oneshot::<u32>();
            let (back, answer) = oneshot::<u32>();
            let asks = async {
                sender.send(1);
                answer.await
            };
            let answers = async {
                let asked = receiver.await.expect("asked by the other");
                back.send(asked + 1);
                asked
            };
            let ended = match is_swapped {
                false => block_on(both(asks, answers)),
                true => {
                    let (asked, answered) = block_on(both(answers, asks));
                    (answered, asked)
                }
            };
            assert_eq!(ended, (Some(2), 1));
        }
    }

    #[test]
    fn messages_come_between() {
        let (outbox, inbox) = channel();
        let (sender, receiver) = oneshot::<()>();
        let ended = Cell::new(false);
        let mut executor = Executor::new(outbox.clone(), inbox);
        executor.spawn(async {
            assert_eq!(receiver.await, Some(()));
            ended.set(true);
        });
        outbox.send(Event::Message(7)).expect("the executor lives");
        assert_eq!(executor.next_message(), Some(7));
        assert_eq!((executor.len(), ended.get()), (1, false));
        sender.send(());
        assert_eq!(executor.next_message(), None);
        assert_eq!((executor.len(), ended.get()), (0, true));
    }

    #[test]
    fn a_panic_ends_its_own_future_alone() {
        let (sender, receiver) = oneshot::<()>();
        let dropped = Cell::new(false);
        struct Flag<'a>(&'a Cell<bool>);
        impl Drop for Flag<'_> {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let seen = Cell::new(None);
        let panics = async {
            let caught = caught(async {
                let _flag = Flag(&dropped);
                let _ = receiver.await;
                panic!("in one proof");
            });
            seen.set(Some((caught.await, dropped.get())));
        };
        let other = async {
            sender.send(());
            give_way().await;
            give_way().await;
        };
        run_all(vec![Box::pin(panics), Box::pin(other)]);
        // What it held is gone before anybody hears of it.
        assert_eq!(seen.get(), Some((Err::<(), _>(Panicked), true)));
    }

    #[test]
    fn an_uncaught_panic_does_not_stop_the_thread() {
        let ended = Cell::new(false);
        let panics = async { panic!("nobody's") };
        let ends = async {
            give_way().await;
            ended.set(true);
        };
        run_all(vec![Box::pin(panics), Box::pin(ends)]);
        assert!(ended.get());
    }
}
