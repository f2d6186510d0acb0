//! The wake-up protocol under every interleaving that loom finds: nothing is
//! lost, nothing deadlocks.
//!
//! Built with the feature `loom` only. A request that is never woken shows as a
//! deadlock, which loom reports. `queue.md` tells the protocol in prose.

use std::sync::{Arc, Weak};
use std::task::Poll;

use loom::thread;

use crate::sync::{Mutex, lock};
use crate::{Budget, BudgetError, CancelToken, Consumer, Priority, Reclaim, Reservation, Wait};

const JOB: Consumer = Consumer("job");

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // Three preemptions find all known kinds of lost wake-ups, and keep a model
    // within seconds.
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn wait() -> Wait {
    Wait::with_priority(Priority::NORMAL)
}

/// Idle reservations, as a pool or a key store has them.
struct Store {
    idle: Mutex<Vec<Reservation>>,
}

impl Store {
    fn under(budget: &Budget) -> Arc<Self> {
        let store = Arc::new(Self {
            idle: Mutex::new(Vec::new()),
        });
        let reclaimer: Weak<dyn Reclaim> = Arc::downgrade(&store) as _;
        budget.add_reclaimer(reclaimer);
        store
    }

    fn put(&self, budget: &Budget, reservation: Reservation) {
        lock(&self.idle).push(reservation);
        budget.idle_grew();
    }
}

impl Reclaim for Store {
    fn idle_bytes(&self) -> u64 {
        lock(&self.idle).iter().map(Reservation::bytes).sum()
    }

    fn reclaim(&self, wanted_bytes: u64) -> u64 {
        let mut freed_bytes = 0;
        while freed_bytes < wanted_bytes {
            let Some(reservation) = lock(&self.idle).pop() else {
                break;
            };
            freed_bytes += reservation.bytes();
        }
        freed_bytes
    }
}

#[test]
fn loom_release_wakes_the_waiting() {
    model(|| {
        let budget = Budget::new(2);
        let held = budget.try_reserve(JOB, 2).unwrap();
        let waiting = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(JOB, 1, &wait()).unwrap().bytes())
        };
        drop(held);
        assert_eq!(waiting.join().unwrap(), 1);
        assert_eq!(budget.usage().used_bytes, 0);
    });
}

#[test]
fn loom_two_waiting_pass_the_bytes_on() {
    model(|| {
        let budget = Budget::new(1);
        let held = budget.try_reserve(JOB, 1).unwrap();
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let budget = budget.clone();
                thread::spawn(move || drop(budget.reserve(JOB, 1, &wait()).unwrap()))
            })
            .collect();
        drop(held);
        for thread in waiting {
            thread.join().unwrap();
        }
        assert_eq!(budget.usage().used_bytes, 0);
        assert_eq!(budget.usage().waiters, 0);
    });
}

#[test]
fn loom_close_ends_every_wait() {
    model(|| {
        let budget = Budget::new(1);
        let held = budget.try_reserve(JOB, 1).unwrap();
        let waiting = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(JOB, 1, &wait()))
        };
        budget.close();
        let result = waiting.join().unwrap();
        assert!(matches!(result, Err(BudgetError::Closed { .. })));
        drop(held);
        assert_eq!(budget.usage().used_bytes, 0);
    });
}

#[test]
fn loom_close_and_release_race() {
    model(|| {
        let budget = Budget::new(1);
        let held = budget.try_reserve(JOB, 1).unwrap();
        let waiting = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(JOB, 1, &wait()).is_ok())
        };
        let closing = {
            let budget = budget.clone();
            thread::spawn(move || budget.close())
        };
        drop(held);
        closing.join().unwrap();
        // Served or closed, but never left waiting.
        waiting.join().unwrap();
        assert_eq!(budget.usage().used_bytes, 0);
    });
}

#[test]
fn loom_the_cancelled_lets_the_next_go() {
    model(|| {
        let budget = Budget::new(2);
        let held = budget.try_reserve(JOB, 1).unwrap();
        let token = CancelToken::new();
        let large = {
            let (budget, token) = (budget.clone(), token.clone());
            thread::spawn(move || budget.reserve(JOB, 2, &wait().cancelled_by(&token)))
        };
        let small = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(JOB, 1, &wait()).unwrap().bytes())
        };
        token.cancel();
        let result = large.join().unwrap();
        assert!(matches!(result, Err(BudgetError::Cancelled { .. })));
        assert_eq!(small.join().unwrap(), 1);
        drop(held);
        assert_eq!(budget.usage().used_bytes, 0);
    });
}

#[test]
fn loom_bytes_that_become_idle_are_reclaimed_for_the_waiting() {
    model(|| {
        let budget = Budget::new(1);
        let store = Store::under(&budget);
        let held = budget.try_reserve(JOB, 1).unwrap();
        let waiting = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(JOB, 1, &wait()).unwrap().bytes())
        };
        store.put(&budget, held);
        assert_eq!(waiting.join().unwrap(), 1);
        assert_eq!(budget.usage().used_bytes, 0);
    });
}

#[test]
fn loom_two_that_reclaim_are_both_served() {
    model(|| {
        let budget = Budget::new(2);
        let store = Store::under(&budget);
        store.put(&budget, budget.try_reserve(JOB, 2).unwrap());
        let other = {
            let budget = budget.clone();
            thread::spawn(move || budget.try_reserve(JOB, 1).unwrap())
        };
        let mine = budget.try_reserve(JOB, 1).unwrap();
        let theirs = other.join().unwrap();
        assert_eq!(budget.usage().used_bytes, 2);
        drop((mine, theirs));
        assert_eq!(budget.usage().used_bytes, 0);
    });
}

#[test]
fn loom_a_share_and_its_parent_are_taken_together() {
    model(|| {
        let host = Budget::new(2);
        let pinned = host.share("page-locked memory", 1);
        let held = host.try_reserve(JOB, 2).unwrap();
        let waiting = {
            let pinned = pinned.clone();
            thread::spawn(move || drop(pinned.reserve(JOB, 1, &wait()).unwrap()))
        };
        let on_host = {
            let host = host.clone();
            thread::spawn(move || drop(host.reserve(JOB, 2, &wait()).unwrap()))
        };
        drop(held);
        waiting.join().unwrap();
        on_host.join().unwrap();
        assert_eq!(host.usage().used_bytes, 0);
        assert_eq!(pinned.usage().used_bytes, 0);
    });
}

/// Part of a share and more of its parent, as a pool of page-locked buffers asks.
fn both(pinned: &Budget, host: &Budget) -> u64 {
    let granted = pinned.block_in_turn(JOB, 1, &wait(), |turn| {
        match turn.take_both(JOB, 1, host, 1) {
            Err(error) if error.is_shortage() => Poll::Pending,
            result => Poll::Ready(result),
        }
    });
    let (pinned, host) = granted.unwrap();
    pinned.bytes() + host.bytes()
}

#[test]
fn loom_both_of_two_ledgers_are_waited_for() {
    model(|| {
        let host = Budget::new(2);
        let pinned = host.share("page-locked memory", 1);
        // Either may come free last.
        let of_share = pinned.try_reserve(JOB, 1).unwrap();
        let of_host = host.try_reserve(JOB, 1).unwrap();
        let waiting = {
            let (host, pinned) = (host.clone(), pinned.clone());
            thread::spawn(move || both(&pinned, &host))
        };
        let releasing = thread::spawn(move || drop(of_share));
        drop(of_host);
        releasing.join().unwrap();
        assert_eq!(waiting.join().unwrap(), 2);
        assert_eq!(host.usage().used_bytes, 0);
        assert_eq!(pinned.usage().used_bytes, 0);
    });
}
