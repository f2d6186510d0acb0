//! The queue: who is served, in which order, and how a wait ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{COLUMNS, KEYS, used_bytes};
use crate::{Budget, BudgetError, CancelToken, Priority, Reservation, Wait};

type Waiting = Pin<Box<dyn Future<Output = Result<Reservation, BudgetError>> + Send>>;

fn waiting(budget: &Budget, bytes: u64, wait: Wait) -> Waiting {
    Box::pin(budget.reserve_async(COLUMNS, bytes, wait))
}

fn at(priority: u8) -> Wait {
    Wait::with_priority(Priority(priority))
}

fn poll(future: &mut Waiting, waker: &Waker) -> Poll<Result<Reservation, BudgetError>> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// Counts how often it is called.
#[derive(Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn by_priority_then_by_arrival_and_only_in_turn() {
    let budget = Budget::new(10);
    let mut held = budget.try_reserve(KEYS, 10).unwrap();
    // Name, priority, bytes, in the order of arrival.
    let asked = [
        ("a", 1, 4),
        ("b", 1, 1),
        ("c", 2, 6),
        ("d", 0, 1),
        ("e", 2, 1),
    ];
    let mut queue: Vec<(&str, Waiting)> = asked
        .iter()
        .map(|&(name, priority, bytes)| (name, waiting(&budget, bytes, at(priority))))
        .collect();
    for (_, future) in &mut queue {
        assert!(poll(future, Waker::noop()).is_pending());
    }
    assert_eq!(budget.usage().waiters, 5);

    let mut served = Vec::new();
    let mut grants = Vec::new();
    for _ in 0..10 {
        held.shrink(1).unwrap();
        // The last to arrive looks first, as often as it likes.
        for _ in 0..queue.len() {
            for index in (0..queue.len()).rev() {
                if let Poll::Ready(grant) = poll(&mut queue[index].1, Waker::noop()) {
                    served.push((queue.remove(index).0, 10 - held.bytes()));
                    grants.push(grant.unwrap());
                    break;
                }
            }
        }
    }
    // With so many bytes released in all: "e" passes nobody though one byte was
    // free from the start, and "b" waits for "a" in the same way.
    assert_eq!(served, [("c", 6), ("e", 7)], "ten bytes serve no more");
    drop(grants);
    for name in ["a", "b", "d"] {
        let index = queue.iter().position(|(n, _)| *n == name).unwrap();
        assert!(poll(&mut queue.remove(index).1, Waker::noop()).is_ready());
    }
    assert_eq!((used_bytes(&budget), budget.usage().waiters), (0, 0));
}

#[test]
fn who_does_not_wait_comes_after_those_who_do() {
    let budget = Budget::new(10);
    let mut held = budget.try_reserve(KEYS, 8).unwrap();
    let mut large = waiting(&budget, 5, at(0));
    assert!(poll(&mut large, Waker::noop()).is_pending());

    let error = budget.try_reserve(COLUMNS, 1).unwrap_err();
    insta::assert_snapshot!(error, @"`columns` asked 1 bytes of memory: 8 bytes of 10 bytes held, 0 bytes of them idle, 1 waiting ahead; held by `keys` 8 bytes");
    assert_eq!(error.shortage().unwrap().missing_bytes(), 0);
    // A more urgent one and a holder are not behind it.
    assert!(budget.reserve(COLUMNS, 1, &at(1)).is_ok());
    held.grow(2).unwrap();
    drop(large);
    drop(held);
    assert!(budget.try_reserve(COLUMNS, 10).is_ok());
}

#[test]
fn a_wait_on_a_share_holds_up_its_parent_but_not_a_sibling_family() {
    let host = Budget::new(10);
    let pinned = host.share("page-locked memory", 5);
    let held = pinned.try_reserve(KEYS, 5).unwrap();
    let mut first = waiting(&pinned, 5, at(0));
    assert!(poll(&mut first, Waker::noop()).is_pending());
    assert!(
        host.try_reserve(COLUMNS, 1).is_err(),
        "it could starve `first`"
    );
    assert_eq!((host.usage().waiters, pinned.usage().waiters), (1, 1));
    assert!(Budget::new(1).try_reserve(COLUMNS, 1).is_ok());
    drop(held);
    assert!(poll(&mut first, Waker::noop()).is_ready());
}

#[test]
fn only_those_are_woken_whom_a_change_can_help() {
    let budget = Budget::new(2);
    let mut held = budget.try_reserve(KEYS, 2).unwrap();
    let bells: Vec<Arc<Bell>> = (0..2).map(|_| Arc::default()).collect();
    let mut queue: Vec<Waiting> = (0..2).map(|_| waiting(&budget, 2, at(0))).collect();
    let rings = || {
        bells
            .iter()
            .map(|b| b.0.load(Ordering::Relaxed))
            .collect::<Vec<_>>()
    };
    for (future, bell) in queue.iter_mut().zip(&bells) {
        assert!(poll(future, &Waker::from(Arc::clone(bell))).is_pending());
    }
    held.shrink(1).unwrap();
    assert_eq!(rings(), [1, 0]);
    drop(queue.remove(0));
    assert_eq!(rings(), [1, 1], "the first left, so the second looks");
    drop(held);
    let waker = Waker::from(Arc::clone(&bells[1]));
    assert!(poll(&mut queue[0], &waker).is_ready());
}

#[test]
fn a_passed_deadline_gives_what_is_free_and_nothing_else() {
    let budget = Budget::new(10);
    let now = Instant::now();
    let held = budget.reserve(COLUMNS, 9, &at(1).until(now)).unwrap();
    let error = budget.reserve(KEYS, 2, &at(1).until(now)).unwrap_err();
    insta::assert_snapshot!(error, @"deadline passed: `keys` asked 2 bytes of memory: 9 bytes of 10 bytes held, 0 bytes of them idle; held by `columns` 9 bytes");
    // One that lies ahead ends the wait without anybody's help.
    let soon = Instant::now() + Duration::from_millis(2);
    let error = budget.reserve(KEYS, 2, &at(1).until(soon)).unwrap_err();
    assert!(matches!(error, BudgetError::Deadline(_)));
    assert_eq!(budget.usage().waiters, 0);
    drop(held);
}

#[test]
fn a_token_ends_waits_before_and_while_they_wait() {
    let budget = Budget::new(1);
    let held = budget.try_reserve(KEYS, 1).unwrap();
    let token = CancelToken::new();
    let bell: Arc<Bell> = Arc::default();
    let waker = Waker::from(Arc::clone(&bell));
    let mut future = waiting(&budget, 1, at(0).cancelled_by(&token));
    assert!(poll(&mut future, &waker).is_pending());
    token.cancel();
    assert!(token.is_cancelled());
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(Err(error)) = poll(&mut future, &waker) else {
        panic!("a cancelled wait is over");
    };
    insta::assert_snapshot!(error, @"`columns` was cancelled while it asked 1 bytes");
    assert_eq!(budget.usage().waiters, 0);
    drop(held);
    let late = budget.reserve(COLUMNS, 1, &at(0).cancelled_by(&token));
    assert!(matches!(late, Err(BudgetError::Cancelled { .. })));
    assert_eq!(used_bytes(&budget), 0);
}

#[test]
fn a_dropped_wait_leaves_nothing_behind() {
    let budget = Budget::new(1);
    let held = budget.try_reserve(KEYS, 1).unwrap();
    let never_polled = waiting(&budget, 1, at(9));
    let mut polled = waiting(&budget, 1, at(0));
    assert!(poll(&mut polled, Waker::noop()).is_pending());
    assert_eq!(
        budget.usage().waiters,
        1,
        "who was not polled does not wait"
    );
    drop((polled, never_polled));
    assert_eq!(budget.usage().waiters, 0);
    drop(held);
    assert!(budget.try_reserve(COLUMNS, 1).is_ok());
}

/// A waker that owns a waiting request, as a task of an executor does.
struct Owner(#[expect(dead_code, reason = "it is there to be dropped")] Mutex<Option<Waiting>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_may_drop_another_wait_when_it_is_dropped() {
    let budget = Budget::new(1);
    let token = CancelToken::new();
    let held = budget.try_reserve(KEYS, 1).unwrap();
    let mut owned = waiting(&budget, 1, at(0).cancelled_by(&token));
    assert!(poll(&mut owned, Waker::noop()).is_pending());
    let owner = Waker::from(Arc::new(Owner(Mutex::new(Some(owned)))));
    let mut future = waiting(&budget, 1, at(0).cancelled_by(&token));
    assert!(poll(&mut future, &owner).is_pending());
    assert_eq!(budget.usage().waiters, 2);
    drop(owner);
    // Replaces the last clone of the waker, which drops the request in it.
    assert!(poll(&mut future, Waker::noop()).is_pending());
    assert_eq!(budget.usage().waiters, 1);
    drop((future, held));
    assert_eq!(budget.usage().waiters, 0);
}

#[test]
fn threads_pass_one_budget_around() {
    let budget = Budget::new(3);
    thread::scope(|scope| {
        for number in 0..8_u64 {
            let budget = &budget;
            scope.spawn(move || {
                for round in 0..200 {
                    let bytes = (number + round) % 4;
                    let wait = at((round % 3) as u8);
                    let held = budget.reserve(COLUMNS, bytes, &wait).unwrap();
                    assert!(used_bytes(budget) >= held.bytes());
                }
            });
        }
    });
    assert_eq!((used_bytes(&budget), budget.usage().waiters), (0, 0));
}

proptest! {
    /// Whoever is served, nobody of equal or greater priority who came earlier
    /// is left waiting; and when everything is released, all are served.
    #[test]
    fn nobody_is_overtaken_and_nobody_lost(
        // Few priorities and sizes near the limit of 10 make ties and blocks.
        asked in prop::collection::vec((0..3_u8, 0..=10_u64), 1..12),
        looks in prop::collection::vec((any::<usize>(), any::<bool>()), 0..80),
    ) {
        let budget = Budget::new(10);
        let mut held = vec![budget.try_reserve(KEYS, 10).unwrap()];
        let mut queue: Vec<(usize, Waiting)> = asked
            .iter()
            .enumerate()
            .map(|(index, &(priority, bytes))| (index, waiting(&budget, bytes, at(priority))))
            .collect();
        let mut is_done = vec![false; asked.len()];
        // Requests of no bytes are served at once if nobody is before them, so
        // the queue is made with whoever has to wait.
        queue.retain_mut(|(index, future)| match poll(future, Waker::noop()) {
            Poll::Ready(_) => { is_done[*index] = true; false }
            Poll::Pending => true,
        });
        for (pick, is_release) in looks {
            if is_release && !held.is_empty() {
                let index = pick % held.len();
                let mut some = held.swap_remove(index);
                let half = some.bytes() / 2;
                if half > 0 {
                    held.push(some.split(half).unwrap());
                }
            } else if !queue.is_empty() {
                let position = pick % queue.len();
                let (index, future) = &mut queue[position];
                let index = *index;
                if let Poll::Ready(grant) = poll(future, Waker::noop()) {
                    let overtaken = (0..index)
                        .any(|other| !is_done[other] && asked[other].0 >= asked[index].0);
                    prop_assert!(!overtaken);
                    held.push(grant.unwrap());
                    is_done[index] = true;
                    drop(queue.swap_remove(position));
                }
            }
        }
        drop(held);
        while !queue.is_empty() {
            let before = queue.len();
            queue.retain_mut(|(_, future)| poll(future, Waker::noop()).is_pending());
            prop_assert!(queue.len() < before, "somebody can always go");
        }
        prop_assert_eq!((used_bytes(&budget), budget.usage().waiters), (0, 0));
    }
}

#[test]
fn kept_bytes_are_for_the_highest_priority_alone() {
    let budget = Budget::new(10);
    budget.keep_for_highest(3);
    assert_eq!(budget.kept_bytes(), 3);
    // Nobody else waits for what is kept, or takes it.
    let refused = budget.reserve(COLUMNS, 8, &at(254));
    assert!(
        matches!(
            refused,
            Err(BudgetError::TooLarge {
                asked_bytes: 8,
                limit_bytes: 10,
                kept_bytes: 3,
                ..
            })
        ),
        "{refused:?}"
    );
    let told = refused.unwrap_err().to_string();
    assert!(
        told.contains("limit is 10 bytes, of which 3 bytes are kept for the highest priority"),
        "{told}"
    );
    let others = budget.reserve(COLUMNS, 7, &at(0)).unwrap();
    assert!(matches!(
        budget.try_reserve(KEYS, 1),
        Err(BudgetError::Refused(_))
    ));
    let mut low = waiting(&budget, 1, at(254));
    assert!(poll(&mut low, Waker::noop()).is_pending());
    let urgent = budget
        .reserve(COLUMNS, 3, &Wait::with_priority(Priority::HIGHEST))
        .unwrap();
    assert_eq!(used_bytes(&budget), 10);
    // What comes back fills what is kept before others have it.
    drop(others);
    assert!(matches!(poll(&mut low, Waker::noop()), Poll::Ready(Ok(_))));
    drop(urgent);
    assert_eq!(used_bytes(&budget), 0);
    // Nor does it wait for who waits for more than the others may have.
    let others = budget.reserve(COLUMNS, 7, &at(0)).unwrap();
    let mut low = waiting(&budget, 1, at(254));
    assert!(poll(&mut low, Waker::noop()).is_pending());
    let now =
        |priority| budget.without_waiting_at(priority, |turn| turn.take(COLUMNS, 3).map(drop));
    assert!(matches!(now(Priority(254)), Err(BudgetError::Refused(_))));
    now(Priority::HIGHEST).unwrap();
    drop((low, others));
    // It may be had whole, and nothing is kept any more once it is said so.
    drop(
        budget
            .reserve(COLUMNS, 10, &Wait::with_priority(Priority::HIGHEST))
            .unwrap(),
    );
    budget.keep_for_highest(0);
    drop(budget.reserve(COLUMNS, 10, &at(0)).unwrap());
}

#[test]
fn what_a_holder_can_do_without_comes_after_the_highest_priority() {
    let budget = Budget::new(10);
    budget.keep_for_highest(3);
    let mut held = budget.reserve(KEYS, 5, &at(0)).unwrap();
    // It passes others that wait, and takes nothing that is kept.
    let mut low = waiting(&budget, 7, at(254));
    assert!(poll(&mut low, Waker::noop()).is_pending());
    assert!(held.grow_below_highest(3).unwrap_err().is_shortage());
    held.grow_below_highest(1).unwrap();
    // One of the highest priority waits for all of it, free bytes and kept ones.
    let mut urgent = waiting(&budget, 5, Wait::with_priority(Priority::HIGHEST));
    assert!(poll(&mut urgent, Waker::noop()).is_pending());
    let error = held.grow_below_highest(1).unwrap_err();
    assert_eq!(error.shortage().unwrap().waiters_ahead, 1);
    assert_eq!((held.bytes(), used_bytes(&budget)), (6, 6));
    held.shrink(1).unwrap();
    assert!(poll(&mut urgent, Waker::noop()).is_ready());
    assert_eq!(budget.usage().waiters, 1);
}
