//! Sizes at the edges, memory that cannot be had, pools and budgets that go.

use std::sync::Arc;

use cuzk_budget::{Budget, BudgetError, CancelToken, Priority, Wait};

use super::{Bench, COLUMNS, CountingBacking, request};
use crate::{AcquireError, AcquireRequest, FaultyBacking, HeapBacking, PinnedPool, PoolOptions};

#[test]
fn sizes_at_the_edges_are_granted_or_typed() {
    let bench = Bench::new(100);
    for (buffers, bytes) in [
        (&[][..], 0),
        (&[0], 0),
        (&[1], 0),
        (&[100], 0),
        (&[0, 0], 100),
        (&[99, 0, 1], 0),
    ] {
        let granted = bench.try_acquire(buffers, bytes).unwrap();
        let lens: Vec<usize> = granted.buffers.iter().map(|b| b.as_bytes().len()).collect();
        assert_eq!(lens, buffers);
        assert_eq!(granted.reservation.bytes(), bytes);
        drop(granted);
        let wait = bench.pool.acquire(&request(buffers, bytes));
        assert_eq!(wait.unwrap().buffers.len(), buffers.len());
    }
    for (buffers, bytes) in [(&[101][..], 0), (&[100], 1), (&[], 101), (&[], u64::MAX)] {
        for result in [
            bench.try_acquire(buffers, bytes),
            // Without a deadline: it must not be queued at all.
            bench.pool.acquire(&request(buffers, bytes)),
        ] {
            let error = result.unwrap_err();
            assert!(
                matches!(error, AcquireError::Budget(BudgetError::TooLarge { .. })),
                "{error}"
            );
        }
    }
    bench.end();
}

#[test]
fn sums_that_overflow_are_typed() {
    let bench = Bench::new(u64::MAX);
    let large = isize::MAX as usize / 2;
    for (buffers, bytes, index_expected) in [
        (&[usize::MAX][..], 0, 0),
        (&[1, usize::MAX], 0, 1),
        (&[1], u64::MAX, 0),
        (&[large, large, large, large, large], 0, 4),
    ] {
        let error = bench.pool.acquire(&request(buffers, bytes)).unwrap_err();
        let AcquireError::Overflow { index, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(index, index_expected);
    }
    // It is counted, and there is no such memory.
    let error = bench.try_acquire(&[large], 0).unwrap_err();
    assert!(
        matches!(error, AcquireError::Backing { index: 0, .. }),
        "{error}"
    );
    bench.end();
}

#[test]
fn an_allocation_that_fails_leaves_nothing_behind() {
    const BUFFERS: [usize; 4] = [100, 0, 200, 300];
    // The empty buffer needs no allocation.
    for fails_at in 1..=3 {
        let budget = Budget::new(1000);
        let backing = CountingBacking::under(&budget);
        let faulty = Arc::new(FaultyBacking::new(Arc::clone(&backing), fails_at));
        let pool = PinnedPool::new(budget.clone(), Arc::clone(&faulty), PoolOptions::STANDARD);
        let error = pool.try_acquire(&request(&BUFFERS, 50)).unwrap_err();
        let AcquireError::Backing { index, source } = &error else {
            panic!("{error}");
        };
        assert_eq!(*index, [0, 2, 3][fails_at as usize - 1]);
        assert_eq!(source.bytes, BUFFERS[*index]);
        assert_eq!((budget.usage().used_bytes, backing.live_bytes()), (0, 0));

        let granted = pool.acquire(&request(&BUFFERS, 50)).unwrap();
        assert_eq!(budget.usage().used_bytes, 650);
        assert_eq!(faulty.allocations(), fails_at + 3);
        drop((granted, pool));
        assert_eq!((budget.usage().used_bytes, backing.live_bytes()), (0, 0));
    }
}

#[test]
fn buffers_set_aside_are_idle_again_when_an_allocation_fails() {
    let budget = Budget::new(1000);
    let backing = CountingBacking::under(&budget);
    let faulty = FaultyBacking::new(Arc::clone(&backing), 3);
    let pool = PinnedPool::new(budget.clone(), faulty, PoolOptions::STANDARD);
    pool.warm(&[(100, 2)]).unwrap();
    assert!(pool.try_acquire(&request(&[100, 100, 300], 0)).is_err());
    assert_eq!(
        (budget.usage().used_bytes, backing.live_bytes()),
        (200, 200)
    );
    let stats = pool.stats();
    assert_eq!((stats.idle_count, stats.refusals, stats.reuses), (2, 1, 0));
    assert!(pool.try_acquire(&request(&[100, 100, 300], 0)).is_ok());
}

#[test]
fn an_error_reads_as_a_sentence() {
    let pool = PinnedPool::new(
        Budget::new(100),
        FaultyBacking::new(HeapBacking, 1),
        PoolOptions::STANDARD,
    );
    let error = pool.try_acquire(&request(&[100], 0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "buffer 0 of the request: faulty could not allocate 100 bytes: allocation 1 was to fail"
    );
    let error = pool.try_acquire(&request(&[60, 60], 0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`columns` asked 120 bytes of memory, whose limit is 100 bytes"
    );
    assert!(!pool.is_page_locked());
}

#[test]
fn a_buffer_outlives_its_pool() {
    let bench = Bench::new(1000);
    let mut granted = bench.try_acquire(&[400, 300], 10).unwrap();
    let Bench {
        budget,
        backing,
        pool,
        ..
    } = bench;
    drop(pool);
    granted.buffers[0].as_bytes_mut().fill(3);
    drop(granted.buffers.remove(1));
    assert_eq!(
        (budget.usage().used_bytes, backing.live_bytes()),
        (410, 400)
    );
    drop(granted);
    assert_eq!((budget.usage().used_bytes, backing.live_bytes()), (0, 0));
}

#[test]
fn a_closed_budget_and_a_used_token_end_requests() {
    let bench = Bench::new(1000);
    let held = bench.try_acquire(&[400], 0).unwrap();
    let token = CancelToken::new();
    token.cancel();
    let error = bench
        .pool
        .acquire(&AcquireRequest {
            buffers: &[400],
            bytes: 0,
            consumer: COLUMNS,
            wait: Wait::with_priority(Priority::NORMAL).cancelled_by(&token),
        })
        .unwrap_err();
    assert!(matches!(
        error,
        AcquireError::Budget(BudgetError::Cancelled { .. })
    ));
    bench.budget.close();
    for result in [
        bench.try_acquire(&[400], 0),
        bench.pool.acquire(&request(&[400], 0)),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(
            error,
            AcquireError::Budget(BudgetError::Closed { .. })
        ));
    }
    drop(held);
    bench.end();
}

#[test]
fn idle_buffers_serve_neither_a_used_token_nor_a_closed_budget() {
    let bench = Bench::new(1000);
    drop(bench.try_acquire(&[400, 100], 0).unwrap());
    let token = CancelToken::new();
    token.cancel();
    let cancelled = bench.pool.acquire(&AcquireRequest {
        buffers: &[400],
        bytes: 0,
        consumer: COLUMNS,
        wait: Wait::with_priority(Priority::NORMAL).cancelled_by(&token),
    });
    assert!(matches!(
        cancelled,
        Err(AcquireError::Budget(BudgetError::Cancelled { .. }))
    ));
    bench.budget.close();
    for buffers in [&[400][..], &[400, 100], &[]] {
        let refused = bench.try_acquire(buffers, 0);
        assert!(matches!(
            refused,
            Err(AcquireError::Budget(BudgetError::Closed { .. }))
        ));
    }
    assert_eq!(
        bench.pool.stats().idle_count,
        2,
        "what was looked at is back"
    );
    assert_eq!(bench.pool.stats().reuses, 0);
    bench.end();
}

#[test]
fn a_grant_lists_its_buffers_in_order_whatever_their_number() {
    for count in 0..=9 {
        let bench = Bench::new(1000);
        let lens: Vec<usize> = (1..=count).collect();
        let granted = || bench.try_acquire(&lens, 0).unwrap().buffers;
        let of = |buffers: &crate::Buffers| buffers.iter().map(|b| b.len()).collect::<Vec<_>>();
        let mut buffers = granted();
        assert_eq!((of(&buffers), buffers.len()), (lens.clone(), count));
        assert_eq!(buffers.is_empty(), count == 0);
        for index in 0..count {
            buffers[index].as_bytes_mut().fill(index as u8);
            assert_eq!(buffers[index].as_bytes()[0], index as u8);
        }
        for (index, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.as_bytes_mut()[0], index as u8);
        }
        let owned: Vec<usize> = buffers.into_iter().map(|b| b.len()).collect();
        assert_eq!(owned, lens);
        // Against a vector: one taken out at each place, then from the end.
        for index in 0..count {
            let (mut buffers, mut expected) = (granted(), lens.clone());
            assert_eq!(buffers.remove(index).len(), expected.remove(index));
            assert_eq!((of(&buffers), buffers.len()), (expected.clone(), count - 1));
            while let Some(buffer) = buffers.pop() {
                assert_eq!(Some(buffer.len()), expected.pop());
                assert_eq!(of(&buffers), expected);
            }
            assert_eq!(expected, []);
        }
        bench.end();
    }
}
