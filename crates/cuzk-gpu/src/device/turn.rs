//! Turns among the futures of one thread: for what is used by one at a time, in the
//! order in which it was asked for; and the news that something has changed.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::task::{Poll, Waker};

/// Something that one future at a time has.
pub(crate) struct Turn<T> {
    value: RefCell<T>,
    queue: RefCell<Queue>,
}

#[derive(Default)]
struct Queue {
    is_taken: bool,
    /// Whose turn it is, until it has heard of it.
    called: Option<u64>,
    waiting: VecDeque<(u64, Waker)>,
    next: u64,
}

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: RefCell::new(value),
            queue: RefCell::default(),
        }
    }

    /// Waits for the turn, behind all who waited before.
    pub(crate) async fn take(&self) -> Taken<'_, T> {
        let mut place = Place {
            turn: self,
            number: None,
        };
        poll_fn(|context| {
            let mut queue = self.queue.borrow_mut();
            match place.number {
                None if !queue.is_taken => {
                    queue.is_taken = true;
                    Poll::Ready(())
                }
                None => {
                    let number = queue.next;
                    queue.next += 1;
                    queue.waiting.push_back((number, context.waker().clone()));
                    place.number = Some(number);
                    Poll::Pending
                }
                Some(number) if queue.called == Some(number) => {
                    queue.called = None;
                    place.number = None;
                    Poll::Ready(())
                }
                Some(number) => {
                    let mut waiting = queue.waiting.iter_mut();
                    if let Some((_, waker)) = waiting.find(|(at, _)| *at == number) {
                        waker.clone_from(context.waker());
                    }
                    Poll::Pending
                }
            }
        })
        .await;
        Taken {
            value: Some(self.value.borrow_mut()),
            turn: self,
        }
    }

    /// The next one's turn.
    fn pass(&self) {
        let mut queue = self.queue.borrow_mut();
        match queue.waiting.pop_front() {
            None => queue.is_taken = false,
            Some((number, waker)) => {
                queue.called = Some(number);
                drop(queue);
                waker.wake();
            }
        }
    }
}

/// A place in the queue, given up by a future that ends early.
struct Place<'a, T> {
    turn: &'a Turn<T>,
    number: Option<u64>,
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut queue = self.turn.queue.borrow_mut();
        if queue.called == Some(number) {
            queue.called = None;
            drop(queue);
            self.turn.pass();
        } else {
            queue.waiting.retain(|(at, _)| *at != number);
        }
    }
}

/// The turn, passed on when dropped.
pub(crate) struct Taken<'a, T> {
    /// Present until the drop.
    value: Option<RefMut<'a, T>>,
    turn: &'a Turn<T>,
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("present until the drop")
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("present until the drop")
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.turn.pass();
    }
}

/// Tells whoever waits that something has changed.
#[derive(Default)]
pub(crate) struct News {
    count: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl News {
    /// Ends every wait that began before.
    pub(crate) fn tell(&self) {
        self.count.set(self.count.get() + 1);
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// A moment to wait from.
    pub(crate) fn now(&self) -> u64 {
        self.count.get()
    }

    /// Waits for news since `moment`.
    pub(crate) async fn since(&self, moment: u64) {
        poll_fn(|context| {
            if self.count.get() != moment {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::Context;

    use super::super::executor::give_way;
    use super::super::executor::tests::run_all;
    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn turns_come_in_the_order_they_were_asked_for() {
        let turn = Turn::new(Vec::new());
        let futures = (0..5).map(|number| -> Pin<Box<dyn Future<Output = ()>>> {
            let turn = &turn;
            // Each again at once: nobody overtakes.
            Box::pin(async move {
                for round in 0..3 {
                    let mut seen = turn.take().await;
                    give_way().await;
                    seen.push((round, number));
                }
            })
        });
        run_all(futures.collect());
        let expected: Vec<_> = (0..3)
            .flat_map(|round| (0..5).map(move |number| (round, number)))
            .collect();
        assert_eq!(*turn.value.borrow(), expected);
    }

    #[test]
    fn who_gives_up_is_passed_over() {
        let turn = Turn::new(0);
        let first = match poll(pin!(turn.take())) {
            Poll::Ready(taken) => taken,
            Poll::Pending => panic!("nobody has it"),
        };
        let mut second = Box::pin(turn.take());
        let mut third = Box::pin(turn.take());
        let mut fourth = Box::pin(turn.take());
        for waiting in [&mut second, &mut third, &mut fourth] {
            assert!(poll(waiting.as_mut()).is_pending());
        }
        // One gives up while it waits, one when it has been called.
        drop(second);
        drop(first);
        drop(third);
        assert!(poll(fourth.as_mut()).is_ready());
        assert!(poll(pin!(turn.take())).is_ready(), "passed on by the drop");
    }

    #[test]
    fn news_end_the_waits_that_began_before() {
        let news = News::default();
        let moment = news.now();
        let mut early = Box::pin(news.since(moment));
        assert!(poll(early.as_mut()).is_pending());
        news.tell();
        assert!(poll(early.as_mut()).is_ready());
        // What changed between the look and the wait is not missed.
        assert!(poll(pin!(news.since(moment))).is_ready());
        assert!(poll(pin!(news.since(news.now()))).is_pending());
    }
}
