//! How a job stands: its priority, which may be raised while it waits, and whether it was
//! given up.

use std::sync::Mutex;

use cuzk_budget::CancelToken;

use crate::lock::lock;
use crate::schedule::Priority;

/// A job's standing. Priorities only go up.
#[derive(Debug)]
pub(crate) struct Standing {
    given_up: CancelToken,
    now: Mutex<Now>,
}

/// A priority, and what ends the waits that were begun with it.
#[derive(Clone, Debug)]
struct Now {
    priority: Priority,
    over: CancelToken,
}

impl Standing {
    pub(crate) fn new(priority: Priority) -> Self {
        let over = CancelToken::new();
        Self {
            given_up: CancelToken::new(),
            now: Mutex::new(Now { priority, over }),
        }
    }

    pub(crate) fn priority(&self) -> Priority {
        lock(&self.now).priority
    }

    /// Waits go on with this priority, if it is a higher one.
    pub(crate) fn raise(&self, priority: Priority) {
        let mut now = lock(&self.now);
        if priority > now.priority {
            let over = CancelToken::new();
            let before = std::mem::replace(&mut *now, Now { priority, over });
            drop(now);
            before.over.cancel();
        }
    }

    /// Ends all waits, now and later.
    pub(crate) fn give_up(&self) {
        self.given_up.cancel();
        // A token that takes its place after this is not listened to: whoever waits looks at
        // the other one first.
        let now = lock(&self.now).clone();
        now.over.cancel();
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.is_cancelled()
    }

    /// Asks for what may have to be waited for, with the priority and the token of the wait:
    /// again where a higher priority ended it, until the job is given up.
    pub(crate) fn ask<T, E>(
        &self,
        attempt: impl Fn(Priority, &CancelToken) -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            let Now { priority, over } = lock(&self.now).clone();
            if self.is_given_up() {
                over.cancel();
            }
            let result = attempt(priority, &over);
            let is_over = over.is_cancelled() && !self.is_given_up();
            if result.is_ok() || !is_over {
                return result;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use cuzk_budget::{Budget, BudgetError, Consumer, Reservation, Wait};

    use super::*;
    use crate::stage::budget_priority;

    const TEST: Consumer = Consumer("test");

    /// Reserves the byte of a budget, as stages do.
    fn reserve_at(
        priority: Priority,
        over: &CancelToken,
        budget: &Budget,
    ) -> Result<Reservation, BudgetError> {
        let wait = Wait::with_priority(budget_priority(priority)).cancelled_by(over);
        budget.reserve(TEST, 1, &wait)
    }

    /// Until so many requests wait.
    fn until_waiting(budget: &Budget, count: usize) {
        while budget.usage().waiters != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_wait_goes_on_with_the_priority_that_it_is_raised_to() {
        let budget = Budget::new(1);
        let all = budget.try_reserve(TEST, 1).expect("free");
        let standing = [Priority::Normal, Priority::Low].map(Standing::new);
        let attempts = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (served, order) = channel();
            for (at, standing) in standing.iter().enumerate() {
                let (budget, served, attempts) = (&budget, served.clone(), &attempts);
                scope.spawn(move || {
                    standing.ask(|priority, over| {
                        attempts.fetch_add(1, Ordering::SeqCst);
                        let held = reserve_at(priority, over, budget)?;
                        served.send((at, priority)).expect("somebody looks");
                        drop(held);
                        Ok::<_, BudgetError>(())
                    })
                });
                until_waiting(budget, at + 1);
            }
            standing[1].raise(Priority::Critical);
            // Lower ones change nothing.
            standing[1].raise(Priority::High);
            standing[0].raise(Priority::Low);
            let urgent = [Priority::Normal, Priority::Critical];
            assert_eq!(standing.each_ref().map(Standing::priority), urgent);
            // Its wait has ended and begun again.
            while attempts.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            until_waiting(&budget, 2);
            drop(all);
            let order: Vec<_> = order.iter().take(2).collect();
            assert_eq!(order, [(1, Priority::Critical), (0, Priority::Normal)]);
        });
        assert_eq!(attempts.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn giving_up_ends_waits_whatever_was_raised() {
        let budget = Budget::new(1);
        let _all = budget.try_reserve(TEST, 1).expect("free");
        let standing = Standing::new(Priority::Low);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| standing.ask(|at, over| reserve_at(at, over, &budget)));
            until_waiting(&budget, 1);
            standing.raise(Priority::High);
            standing.give_up();
            standing.raise(Priority::Critical);
            let ended = waits.join().expect("no panic");
            ended.expect_err("given up");
        });
        let again = standing.ask(|at, over| reserve_at(at, over, &budget));
        again.expect_err("given up already");
        assert!(standing.is_given_up());
    }
}
