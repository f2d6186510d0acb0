//! Reservations: what they hold, what is refused, what comes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use proptest::prelude::*;

use super::{COLUMNS, KEYS, used_bytes};
use crate::{Budget, BudgetError, Consumer, Priority, Reclaim, Reservation, Wait};

/// Idle reservations, given back last in, first out.
struct Store {
    idle: Mutex<Vec<Reservation>>,
    calls: AtomicU64,
}

impl Store {
    fn under(budget: &Budget) -> Arc<Self> {
        let store = Arc::new(Self {
            idle: Mutex::default(),
            calls: AtomicU64::new(0),
        });
        let reclaimer: Weak<dyn Reclaim> = Arc::downgrade(&store) as _;
        budget.add_reclaimer(reclaimer);
        store
    }

    fn put(&self, reservation: Reservation) {
        self.idle.lock().unwrap().push(reservation);
    }
}

impl Reclaim for Store {
    fn idle_bytes(&self) -> u64 {
        let idle = self.idle.lock().unwrap();
        idle.iter().map(Reservation::bytes).sum()
    }

    fn reclaim(&self, wanted_bytes: u64) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut freed_bytes = 0;
        while freed_bytes < wanted_bytes {
            let Some(reservation) = self.idle.lock().unwrap().pop() else {
                break;
            };
            freed_bytes += reservation.bytes();
        }
        freed_bytes
    }
}

#[test]
fn sizes_at_the_edges_are_granted_or_typed() {
    let budget = Budget::new(100);
    for bytes in [0, 1, 100] {
        let held = budget.try_reserve(COLUMNS, bytes).unwrap();
        assert_eq!(held.bytes(), bytes);
        assert_eq!(used_bytes(&budget), bytes);
    }
    assert_eq!(used_bytes(&budget), 0);
    for bytes in [101, u64::MAX] {
        let wait = Wait::with_priority(Priority::NORMAL);
        for error in [
            budget.try_reserve(COLUMNS, bytes).unwrap_err(),
            // Without a deadline: it must not be queued at all.
            budget.reserve(COLUMNS, bytes, &wait).unwrap_err(),
        ] {
            assert!(
                matches!(error, BudgetError::TooLarge { asked_bytes, limit_bytes: 100, .. }
                    if asked_bytes == bytes),
                "{error}"
            );
        }
    }
    let held = budget.try_reserve(COLUMNS, 100).unwrap();
    assert!(budget.try_reserve(COLUMNS, 0).is_ok());
    assert!(budget.try_reserve(COLUMNS, 1).unwrap_err().is_shortage());
    drop(held);
}

#[test]
fn an_unlimited_ledger_does_not_overflow() {
    let budget = Budget::new(u64::MAX);
    let most = budget.try_reserve(COLUMNS, u64::MAX).unwrap();
    let mut one = budget.try_reserve(KEYS, 0).unwrap();
    assert!(budget.try_reserve(KEYS, 1).unwrap_err().is_shortage());
    assert!(one.grow(u64::MAX).unwrap_err().is_shortage());
    drop(most);
    one.grow(u64::MAX).unwrap();
    assert_eq!(used_bytes(&budget), u64::MAX);
}

#[test]
fn errors_name_asked_held_limit_and_top_holders() {
    let budget = Budget::named("host memory", 1000);
    let names = ["a", "b", "c", "d", "e"];
    let _held: Vec<Reservation> = names
        .iter()
        .zip([10, 500, 200, 30, 60])
        .map(|(name, bytes)| budget.try_reserve(Consumer(name), bytes).unwrap())
        .collect();
    let refused = budget.try_reserve(KEYS, 300).unwrap_err();
    insta::assert_snapshot!(refused, @"`keys` asked 300 bytes of host memory: 800 bytes of 1000 bytes held, 0 bytes of them idle; held by `b` 500 bytes, `c` 200 bytes, `e` 60 bytes, `d` 30 bytes");
    assert_eq!(refused.shortage().unwrap().missing_bytes(), 100);

    let never = budget.try_reserve(KEYS, 1001).unwrap_err();
    insta::assert_snapshot!(never, @"`keys` asked 1001 bytes of host memory, whose limit is 1000 bytes");

    budget.close();
    let closed = budget.try_reserve(KEYS, 1).unwrap_err();
    insta::assert_snapshot!(closed, @"host memory is closed: `keys` asked 1 bytes");
}

#[test]
fn what_is_split_merged_and_moved_is_counted_once() {
    let budget = Budget::new(100);
    let mut held = budget.try_reserve(COLUMNS, 80).unwrap();
    let mut part = held.split(30).unwrap();
    assert_eq!(
        (held.bytes(), part.bytes(), used_bytes(&budget)),
        (50, 30, 80)
    );

    let error = held.split(51).unwrap_err();
    insta::assert_snapshot!(error, @"`columns` holds 50 bytes and was to give up 51 bytes");
    assert!(held.shrink(51).is_err());
    assert_eq!(held.bytes(), 50);

    part.reassign(KEYS);
    assert_eq!(budget.usage().held_by(KEYS), 30);
    held.merge(part).unwrap();
    assert_eq!(budget.usage().held_by(COLUMNS), 80);
    assert_eq!(budget.usage().held_by(KEYS), 0);

    held.shrink(20).unwrap();
    assert_eq!(used_bytes(&budget), 60);
    held.grow(40).unwrap();
    assert!(held.grow(1).unwrap_err().is_shortage());
    assert_eq!((held.bytes(), used_bytes(&budget)), (100, 100));

    let other = Budget::new(5);
    let foreign = other.try_reserve(KEYS, 5).unwrap();
    let error = held.merge(foreign).unwrap_err();
    insta::assert_snapshot!(error, @"`keys` with 5 bytes belongs to another ledger");
    assert_eq!(error.reservation.bytes(), 5);
    drop((error, held));
    assert_eq!((used_bytes(&budget), used_bytes(&other)), (0, 0));
    assert_eq!(budget.usage().peak_bytes, 100);
}

#[test]
fn a_share_counts_in_its_parent() {
    let host = Budget::named("host memory", 100);
    let pinned = host.share("page-locked memory", 60);
    let other = host.share("staging", 60);
    let on_pinned = pinned.try_reserve(COLUMNS, 60).unwrap();
    assert_eq!((used_bytes(&host), used_bytes(&pinned)), (60, 60));

    let error = pinned.try_reserve(COLUMNS, 1).unwrap_err();
    assert_eq!(&*error.shortage().unwrap().ledger, "page-locked memory");
    let error = other.try_reserve(KEYS, 41).unwrap_err();
    assert_eq!(&*error.shortage().unwrap().ledger, "host memory");
    assert_eq!(used_bytes(&other), 0, "refused by one is taken from none");
    let error = pinned.try_reserve(COLUMNS, 61).unwrap_err();
    assert!(matches!(
        error,
        BudgetError::TooLarge {
            limit_bytes: 60,
            ..
        }
    ));

    let on_other = other.try_reserve(KEYS, 40).unwrap();
    assert_eq!(used_bytes(&host), 100);
    drop((on_pinned, on_other));
    assert_eq!((used_bytes(&host), used_bytes(&pinned)), (0, 0));
}

#[test]
fn bytes_of_a_share_and_of_its_parent_are_taken_together() {
    let host = Budget::named("host memory", 100);
    let pinned = host.share("page-locked memory", 60);
    assert!(pinned.counts_in(&host) && host.counts_in(&host));
    assert!(!host.counts_in(&pinned) && !pinned.counts_in(&Budget::new(100)));
    let take = |bytes, above_bytes| {
        pinned.without_waiting(|turn| turn.take_both(COLUMNS, bytes, &host, above_bytes))
    };
    let (mut columns, work) = take(60, 40).unwrap();
    assert_eq!((columns.bytes(), work.bytes()), (60, 40));
    assert!(columns.budget().is_same_ledger(&pinned) && work.budget().is_same_ledger(&host));
    assert_eq!((used_bytes(&host), used_bytes(&pinned)), (100, 60));
    columns.shrink(10).unwrap();
    drop(work);
    assert_eq!((used_bytes(&host), used_bytes(&pinned)), (50, 50));

    // Each of the two may be what lacks; nothing of the other is taken then.
    for (bytes, above_bytes, ledger, asked_bytes) in [
        (11, 5, "page-locked memory", 11),
        (10, 41, "host memory", 51),
        (0, 51, "host memory", 51),
    ] {
        let error = take(bytes, above_bytes).unwrap_err();
        let shortage = error.shortage().unwrap();
        assert_eq!(&*shortage.ledger, ledger, "{error}");
        assert_eq!(
            (shortage.asked_bytes, shortage.missing_bytes()),
            (asked_bytes, 1)
        );
        assert_eq!((used_bytes(&host), used_bytes(&pinned)), (50, 50));
    }
    // What never fits is told as such, sums beyond 64 bits among it.
    for (bytes, above_bytes) in [(61, 0), (0, 101), (60, 41), (1, u64::MAX), (u64::MAX, 1)] {
        for error in [
            take(bytes, above_bytes).map(drop).unwrap_err(),
            pinned
                .check_both(COLUMNS, bytes, &host, above_bytes)
                .unwrap_err(),
        ] {
            assert!(matches!(error, BudgetError::TooLarge { .. }), "{error}");
        }
    }
    let unlimited = Budget::new(u64::MAX);
    let both = unlimited.check_both(COLUMNS, u64::MAX, &unlimited, 1);
    assert!(matches!(both, Err(BudgetError::TooLarge { .. })));
    drop(columns);
    assert_eq!((used_bytes(&host), used_bytes(&pinned)), (0, 0));
}

#[test]
fn what_is_idle_is_reclaimed_where_either_of_two_ledgers_lacks_it() {
    let host = Budget::new(100);
    let pinned = host.share("page-locked memory", 50);
    let on_pinned = Store::under(&pinned);
    let on_host = Store::under(&host);
    let take = |bytes, above_bytes| {
        pinned.without_waiting(|turn| {
            turn.reclaiming(|turn| turn.take_both(COLUMNS, bytes, &host, above_bytes))
        })
    };
    on_pinned.put(pinned.try_reserve(KEYS, 30).unwrap());
    on_host.put(host.try_reserve(KEYS, 40).unwrap());
    // The share is full of its own idle bytes; the host's do not help there.
    let granted = take(30, 0).unwrap();
    assert_eq!((on_pinned.idle_bytes(), on_host.idle_bytes()), (0, 40));
    let more = take(20, 20).unwrap();
    assert_eq!(on_host.idle_bytes(), 0);
    assert_eq!((used_bytes(&host), used_bytes(&pinned)), (70, 50));
    assert!(take(1, 0).unwrap_err().is_shortage());
    drop((granted, more));
    assert_eq!((used_bytes(&host), used_bytes(&pinned)), (0, 0));
}

#[test]
fn idle_bytes_are_reclaimed_only_when_that_is_enough() {
    let budget = Budget::new(100);
    let store = Store::under(&budget);
    let in_use = budget.try_reserve(COLUMNS, 50).unwrap();
    store.put(budget.try_reserve(KEYS, 20).unwrap());
    store.put(budget.try_reserve(KEYS, 20).unwrap());
    assert_eq!(budget.usage().idle_bytes, 40);

    let error = budget.try_reserve(COLUMNS, 51).unwrap_err();
    let shortage = error.shortage().unwrap();
    assert_eq!((shortage.idle_bytes, shortage.missing_bytes()), (40, 1));
    assert_eq!(store.calls.load(Ordering::Relaxed), 0, "it would not help");

    let granted = budget.try_reserve(COLUMNS, 30).unwrap();
    assert_eq!(store.idle_bytes(), 20, "no more than is lacking");
    let mut grown = budget.try_reserve(COLUMNS, 0).unwrap();
    grown.grow(20).unwrap();
    assert_eq!(store.idle_bytes(), 0);
    drop((in_use, granted, grown));
    assert_eq!(used_bytes(&budget), 0);
}

#[test]
fn a_shortage_of_the_parent_reclaims_from_its_shares_only() {
    let host = Budget::new(100);
    let pinned = host.share("page-locked memory", 50);
    let on_pinned = Store::under(&pinned);
    let on_host = Store::under(&host);
    on_pinned.put(pinned.try_reserve(COLUMNS, 50).unwrap());
    on_host.put(host.try_reserve(KEYS, 50).unwrap());

    // The share is full of its own idle bytes: those of the host do not help.
    let granted = pinned.try_reserve(COLUMNS, 10).unwrap();
    assert_eq!((on_pinned.idle_bytes(), on_host.idle_bytes()), (0, 50));
    drop(granted);
    on_pinned.put(pinned.try_reserve(COLUMNS, 50).unwrap());
    let granted = host.try_reserve(KEYS, 100).unwrap();
    assert_eq!((on_pinned.idle_bytes(), on_host.idle_bytes()), (0, 0));
    drop(granted);
}

#[test]
fn a_dropped_reclaimer_is_forgotten() {
    let budget = Budget::new(10);
    let store = Store::under(&budget);
    store.put(budget.try_reserve(KEYS, 10).unwrap());
    drop(store);
    assert_eq!(budget.usage().idle_bytes, 0);
    assert_eq!(budget.try_reserve(COLUMNS, 10).unwrap().bytes(), 10);
}

#[test]
fn a_closed_budget_takes_back_what_it_gave() {
    let budget = Budget::new(10);
    let held = budget.try_reserve(COLUMNS, 10).unwrap();
    budget.close();
    let wait = Wait::with_priority(Priority::NORMAL);
    for error in [
        budget.try_reserve(COLUMNS, 1).unwrap_err(),
        budget.reserve(COLUMNS, 1, &wait).unwrap_err(),
    ] {
        assert!(matches!(error, BudgetError::Closed { .. }), "{error}");
    }
    drop(held);
    assert_eq!(used_bytes(&budget), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u64),
    Split(usize, u64),
    Merge(usize, usize),
    Shrink(usize, u64),
    Grow(usize, u64),
    Reassign(usize),
    Drop(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Around the limit of 100, so that about half of the requests are refused.
    let bytes = 0..=60_u64;
    let step = prop_oneof![
        bytes.clone().prop_map(Step::Reserve),
        (any::<usize>(), bytes.clone()).prop_map(|(i, b)| Step::Split(i, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(i, j)| Step::Merge(i, j)),
        (any::<usize>(), bytes.clone()).prop_map(|(i, b)| Step::Shrink(i, b)),
        (any::<usize>(), bytes).prop_map(|(i, b)| Step::Grow(i, b)),
        any::<usize>().prop_map(Step::Reassign),
        any::<usize>().prop_map(Step::Drop),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// The ledger is the sum of the live reservations after every step, and
    /// refuses exactly what does not fit.
    #[test]
    fn the_ledger_is_the_sum_of_reservations(steps in steps()) {
        let budget = Budget::new(100);
        let share = budget.share("share", 70);
        let mut live: Vec<Reservation> = Vec::new();
        for step in steps {
            let sum: u64 = live.iter().map(Reservation::bytes).sum();
            let count = live.len();
            match step {
                Step::Reserve(bytes) => {
                    let ledger = if bytes % 2 == 0 { &budget } else { &share };
                    let in_share = used_bytes(&share);
                    let fits = sum + bytes <= 100
                        && (bytes % 2 == 0 || in_share + bytes <= 70);
                    match ledger.try_reserve(COLUMNS, bytes) {
                        Ok(reservation) => {
                            prop_assert!(fits);
                            live.push(reservation);
                        }
                        Err(error) => prop_assert!(!fits, "{}", error),
                    }
                }
                _ if count == 0 => {}
                Step::Split(index, bytes) => {
                    if let Ok(part) = live[index % count].split(bytes) {
                        live.push(part);
                    }
                }
                Step::Merge(into, from) => {
                    let from = live.swap_remove(from % count);
                    match live.is_empty() {
                        true => live.push(from),
                        false => {
                            let into = into % (count - 1);
                            if let Err(error) = live[into].merge(from) {
                                live.push(error.reservation);
                            }
                        }
                    }
                }
                Step::Shrink(index, bytes) => {
                    let held = live[index % count].bytes();
                    prop_assert_eq!(live[index % count].shrink(bytes).is_ok(), bytes <= held);
                }
                Step::Grow(index, bytes) => {
                    let grown = live[index % count].grow(bytes).is_ok();
                    prop_assert!(!grown || sum + bytes <= 100);
                }
                Step::Reassign(index) => live[index % count].reassign(KEYS),
                Step::Drop(index) => drop(live.swap_remove(index % count)),
            }
            let sum: u64 = live.iter().map(Reservation::bytes).sum();
            prop_assert_eq!(used_bytes(&budget), sum);
            let by_keys: u64 = live
                .iter()
                .filter(|reservation| reservation.consumer() == KEYS)
                .map(Reservation::bytes)
                .sum();
            prop_assert_eq!(budget.usage().held_by(KEYS), by_keys);
        }
        drop(live);
        prop_assert_eq!((used_bytes(&budget), used_bytes(&share)), (0, 0));
    }
}

/// Idle bytes that lie where bytes are kept are reclaimed too, all that are missing at
/// once and no more.
#[test]
fn a_request_reclaims_what_kept_bytes_leave_it() {
    let budget = Budget::new(10);
    let store = Store::under(&budget);
    for _ in 0..9 {
        store.put(budget.try_reserve(KEYS, 1).unwrap());
    }
    budget.keep_for_highest(3);
    let taken = budget.try_reserve(COLUMNS, 6).unwrap();
    assert_eq!((taken.bytes(), used_bytes(&budget)), (6, 7));
    assert_eq!(store.calls.load(Ordering::Relaxed), 1);
    // A request of the highest priority needs nobody to give anything back.
    let highest = Wait::with_priority(Priority::HIGHEST);
    let urgent = budget.reserve(COLUMNS, 3, &highest).unwrap();
    assert_eq!((urgent.bytes(), used_bytes(&budget)), (3, 10));
    assert_eq!(store.calls.load(Ordering::Relaxed), 1);
}
