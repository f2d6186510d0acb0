//! Page-locked buffers and ordinary bytes in one request, each in its own ledger.

use std::thread;

use cuzk_budget::{Budget, BudgetError};

use super::{Bench, OTHERS, is_refused, request};
use crate::{AcquireError, HeapBacking, PinnedPool, PoolOptions};

#[test]
fn bytes_beside_buffers_do_not_count_as_page_locked() {
    let bench = Bench::with_share(1000, 400);
    let part = bench.try_acquire(&[300, 100], 600).unwrap();
    assert_eq!(part.reservation.bytes(), 600);
    let used = |budget: &Budget| budget.usage().used_bytes;
    assert_eq!((used(&bench.budget), used(&bench.share)), (1000, 400));
    drop(part);
    assert_eq!((used(&bench.budget), used(&bench.share)), (400, 400));
    // From idle buffers, by the short way and by the long one.
    let part = bench.try_acquire(&[100, 300], 600).unwrap();
    assert_eq!((used(&bench.budget), used(&bench.share)), (1000, 400));
    drop(part);
    let part = bench.pool.acquire(&request(&[290, 100], 600)).unwrap();
    assert_eq!((used(&bench.budget), used(&bench.share)), (1000, 400));
    let stats = bench.pool.stats();
    assert_eq!((stats.allocations, stats.reuses), (2, 4));
    drop(part);
    bench.end();
}

#[test]
fn either_ledger_refuses_by_its_name() {
    let bench = Bench::with_share(1000, 400);
    let refusal = |buffers: &[usize], bytes| {
        let error = bench.try_acquire(buffers, bytes).unwrap_err();
        match error {
            AcquireError::Budget(BudgetError::Refused(shortage)) => shortage.ledger,
            AcquireError::Budget(BudgetError::TooLarge { ledger, .. }) => ledger,
            error => panic!("{error}"),
        }
    };
    assert_eq!(&*refusal(&[401], 0), "page-locked memory");
    assert_eq!(&*refusal(&[400], 601), "memory");
    let held = bench.try_acquire(&[200], 300).unwrap();
    assert_eq!(&*refusal(&[201], 0), "page-locked memory");
    assert_eq!(&*refusal(&[100], 401), "memory");
    let never = bench.pool.acquire(&request(&[400], 601));
    assert!(never.is_err(), "it is not queued");
    drop(held);
    bench.end();
}

#[test]
fn idle_buffers_make_room_for_ordinary_bytes_and_the_other_way_round() {
    let bench = Bench::with_share(1000, 400);
    bench.pool.warm(&[(300, 1), (100, 1)]).unwrap();
    let bytes = bench.budget.try_reserve(OTHERS, 800).unwrap();
    assert_eq!(bench.pool.stats().frees, 1, "the largest was enough");
    // What idles on the heap of the same family does too.
    let heap = PinnedPool::new(bench.budget.clone(), HeapBacking, PoolOptions::STANDARD);
    drop(bytes);
    heap.warm(&[(800, 1)]).unwrap();
    let part = bench.try_acquire(&[100, 300], 500).unwrap();
    assert_eq!((heap.stats().frees, bench.pool.stats().reuses), (1, 1));
    assert_eq!(bench.used_bytes(), 900);
    drop(part);
    bench.end();
}

/// Found by the property: what lacked was told with the bytes asked of the parent.
#[test]
fn waste_is_given_up_for_what_the_share_lacks() {
    let bench = Bench::with_share(100, 45);
    bench.pool.warm(&[(40, 1)]).unwrap();
    // 40 and 6 do not fit the share, 36 and 6 do.
    let part = bench.try_acquire(&[36, 3, 3], 4).unwrap();
    assert_eq!(bench.share.usage().used_bytes, 42);
    assert_eq!(bench.used_bytes(), 46);
    drop(part);
    bench.end();
}

#[test]
fn a_request_waits_for_whichever_ledger_is_full() {
    let bench = Bench::with_share(1000, 400);
    // First the share comes free, then the rest.
    for (buffers, bytes) in [(&[400][..], 0), (&[], 700)] {
        let held = bench.try_acquire(buffers, bytes).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| bench.pool.acquire(&request(&[100, 200], 500)));
            while bench.budget.usage().waiters == 0 {
                thread::yield_now();
            }
            assert!(is_refused(&bench.try_acquire(&[1], 0)), "others wait");
            drop(held);
            let part = waiting.join().unwrap().unwrap();
            assert_eq!(part.reservation.bytes(), 500);
        });
    }
    bench.end();
}

#[test]
#[should_panic(expected = "a ledger above the pool's")]
fn bytes_beside_are_of_the_same_family() {
    let (budget, other) = (Budget::new(1), Budget::new(1));
    PinnedPool::with_bytes_in(budget, other, HeapBacking, PoolOptions::STANDARD);
}
