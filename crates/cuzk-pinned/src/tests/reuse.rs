//! Which buffers are reused, which are freed, and that none is counted twice.

use std::sync::mpsc;
use std::thread;

use cuzk_budget::{Priority, Wait};

use super::{Bench, OTHERS, is_refused, request};

/// Three columns and what is counted beside them.
const PART: [usize; 3] = [4096, 4096, 8192];
const PART_BYTES: u64 = 4096 + 4096 + 8192 + 100;

/// The bug that started this crate: a part reserved its bytes, and the checkout
/// of its buffers asked the budget for the same bytes again. Near the limit the
/// budget said no, and every part silently fell back to the heap.
#[test]
fn five_jobs_of_sixteen_parts_are_not_counted_twice() {
    let bench = Bench::new(5 * 16 * PART_BYTES);
    for round in 0..3 {
        let mut jobs = Vec::new();
        for _ in 0..5 {
            let job: Vec<_> = (0..16)
                .map(|_| bench.try_acquire(&PART, 100).expect("each part fits once"))
                .collect();
            jobs.push(job);
        }
        assert_eq!(bench.used_bytes(), 5 * 16 * PART_BYTES);
        assert!(is_refused(&bench.try_acquire(&PART, 100)));
        let buffers = jobs.iter().flatten().flat_map(|part| &part.buffers);
        assert!(buffers.clone().all(|buffer| buffer.is_page_locked()));
        assert_eq!(buffers.count(), 5 * 16 * 3);
        let stats = bench.pool.stats();
        assert_eq!(stats.allocations, 5 * 16 * 3);
        assert_eq!(stats.reuses, round * 5 * 16 * 3);
        assert_eq!(stats.frees, 0);
    }
    // Counted the old way the second half would not have fitted.
    let old_way: Vec<_> = (0..5 * 16 / 2 + 1)
        .map(|_| {
            let part = bench.budget.try_reserve(OTHERS, PART_BYTES);
            part.and_then(|part| Ok((part, bench.budget.try_reserve(OTHERS, PART_BYTES)?)))
        })
        .collect();
    assert_eq!(old_way.iter().filter(|part| part.is_err()).count(), 1);
    drop(old_way);
    bench.end();
}

#[test]
fn fifty_parts_in_turn_need_the_memory_of_one() {
    let bench = Bench::new(PART_BYTES);
    for _ in 0..50 {
        let part = bench.pool.acquire(&request(&PART, 100)).unwrap();
        assert_eq!(bench.used_bytes(), PART_BYTES);
        drop(part);
    }
    let stats = bench.pool.stats();
    assert_eq!((stats.allocations, stats.reuses, stats.frees), (3, 147, 0));
    assert_eq!((stats.refusals, stats.in_use_bytes), (0, 0));
    assert_eq!((stats.idle_count, stats.idle_bytes), (3, PART_BYTES - 100));
    assert_eq!(stats.peak_bytes, PART_BYTES - 100);
    bench.end();
}

#[test]
fn idle_buffers_of_another_size_in_the_way_are_freed_largest_first() {
    let bench = Bench::new(1000);
    bench.pool.warm(&[(100, 2), (300, 1), (500, 1)]).unwrap();
    let granted = bench.try_acquire(&[400], 0).unwrap();
    assert_eq!(bench.pool.stats().frees, 1, "the largest was enough");
    assert_eq!(bench.pool.stats().idle_bytes, 500);
    // The two of 100 are what this request can use: the 300 has to go.
    let more = bench.try_acquire(&[100, 100, 200], 100).unwrap();
    assert_eq!(
        (bench.pool.stats().frees, bench.pool.stats().reuses),
        (2, 2)
    );
    assert_eq!(bench.used_bytes(), 900);
    drop((granted, more));
    bench.end();
}

#[test]
fn a_key_load_waiting_on_a_full_pool_goes_through() {
    let bench = Bench::new(1000);
    let first = bench.try_acquire(&[400], 0).unwrap();
    let second = bench.try_acquire(&[600], 0).unwrap();
    let (done, loaded) = mpsc::channel();
    thread::scope(|scope| {
        let budget = bench.budget.clone();
        scope.spawn(move || {
            let wait = Wait::with_priority(Priority::NORMAL);
            let key = budget.reserve(OTHERS, 1000, &wait).unwrap();
            done.send(key.bytes()).unwrap();
        });
        while bench.budget.usage().waiters == 0 {
            thread::yield_now();
        }
        drop(second);
        assert_eq!(bench.pool.stats().frees, 0, "it would not be enough yet");
        drop(first);
        assert_eq!(loaded.recv().unwrap(), 1000);
    });
    let stats = bench.pool.stats();
    assert_eq!((stats.frees, stats.idle_bytes), (2, 0));
    bench.end();
}

#[test]
fn two_keys_with_room_for_one_alternate() {
    let bench = Bench::new(1000);
    for round in 0..50_u64 {
        let size = if round % 2 == 0 { 1000 } else { 700 };
        let key = bench.pool.acquire(&request(&[size], 0)).unwrap();
        assert_eq!(key.buffers[0].len(), size);
        assert_eq!(bench.pool.stats().frees, round);
    }
    let stats = bench.pool.stats();
    assert_eq!((stats.allocations, stats.frees), (50, 49));
    bench.end();
}

#[test]
fn two_users_with_room_for_one_alternate_between_threads() {
    let bench = Bench::new(1000);
    thread::scope(|scope| {
        for size in [1000, 700] {
            let pool = &bench.pool;
            scope.spawn(move || {
                for _ in 0..50 {
                    let key = pool.acquire(&request(&[size], 0)).unwrap();
                    assert_eq!(key.buffers[0].len(), size);
                }
            });
        }
    });
    assert_eq!(bench.pool.stats().in_use_bytes, 0);
    bench.end();
}

#[test]
fn a_larger_buffer_serves_within_the_waste_limit_only() {
    let bench = Bench::new(10_000);
    bench.pool.warm(&[(1000, 1)]).unwrap();
    let mut granted = bench.try_acquire(&[893], 0).unwrap();
    assert_eq!(bench.pool.stats().reuses, 1, "12 % of 893 is 107");
    let buffer = &mut granted.buffers[0];
    assert_eq!((buffer.len(), buffer.capacity()), (893, 1000));
    assert_eq!(buffer.as_bytes_mut().len(), 893);
    assert_eq!(bench.used_bytes(), 1000, "the whole buffer is counted");
    drop(granted);
    let granted = bench.try_acquire(&[892], 0).unwrap();
    assert_eq!(bench.pool.stats().reuses, 1, "12 % of 892 is less than 108");
    drop(granted);
    // The best fit is taken, and the exact size before any other.
    bench.pool.warm(&[(1000, 1), (950, 1)]).unwrap();
    let granted = bench.try_acquire(&[892, 950], 0).unwrap();
    let capacities: Vec<usize> = granted.buffers.iter().map(|b| b.capacity()).collect();
    assert_eq!(capacities, [892, 950]);
    drop(granted);
    bench.end();
}

#[test]
fn waste_is_given_up_where_the_exact_size_fits() {
    let bench = Bench::new(2000);
    bench.pool.warm(&[(1100, 1)]).unwrap();
    // 1100 and 1000 do not fit, 1000 and 1000 do.
    let granted = bench.try_acquire(&[1000, 1000], 0).unwrap();
    assert_eq!(bench.used_bytes(), 2000);
    assert_eq!(bench.pool.stats().frees, 1);
    drop(granted);
    // Where it would not help the larger buffer is kept.
    assert_eq!(bench.pool.trim(u64::MAX), 2000);
    bench.pool.warm(&[(1100, 1)]).unwrap();
    let held = bench.budget.try_reserve(OTHERS, 900).unwrap();
    assert!(is_refused(&bench.try_acquire(&[1000, 1000], 0)));
    assert_eq!(bench.pool.stats().idle_bytes, 1100);
    drop(held);
    bench.end();
}

#[test]
fn what_a_refused_request_could_not_use_stays_idle() {
    let bench = Bench::new(1000);
    bench.pool.warm(&[(300, 1), (200, 1)]).unwrap();
    let held = bench.budget.try_reserve(OTHERS, 500).unwrap();
    assert!(is_refused(&bench.try_acquire(&[300, 300], 0)));
    let stats = bench.pool.stats();
    assert_eq!((stats.idle_count, stats.frees, stats.refusals), (2, 0, 1));
    drop(held);
    bench.end();
}

#[test]
fn trimming_frees_the_largest_first_and_nothing_in_use() {
    let bench = Bench::new(1000);
    bench.pool.warm(&[(100, 1), (200, 1), (300, 1)]).unwrap();
    let used = bench.try_acquire(&[100], 0).unwrap();
    assert_eq!(bench.pool.trim(0), 0);
    assert_eq!(bench.pool.trim(1), 300);
    assert_eq!(bench.pool.trim(u64::MAX), 200);
    assert_eq!(bench.pool.trim(u64::MAX), 0);
    assert_eq!(bench.used_bytes(), 100);
    drop(used);
    bench.end();
}

#[test]
fn warming_counts_what_is_idle_already() {
    let bench = Bench::new(1000);
    bench.pool.warm(&[(100, 3), (200, 2)]).unwrap();
    bench.pool.warm(&[(100, 4), (200, 2)]).unwrap();
    let stats = bench.pool.stats();
    assert_eq!(
        (stats.allocations, stats.reuses, stats.idle_count),
        (6, 0, 6)
    );
    assert!(bench.pool.warm(&[(100, 11)]).is_err());
    assert_eq!(bench.pool.stats().idle_bytes, 800);
    let granted = bench
        .try_acquire(&[200, 200, 100, 100, 100, 100], 0)
        .unwrap();
    assert_eq!(bench.pool.stats().allocations, 6, "none after warming");
    drop(granted);
    bench.end();
}

#[test]
fn new_memory_is_zero_and_reused_memory_is_as_it_was_left() {
    let bench = Bench::new(10_000);
    let mut granted = bench.try_acquire(&[5000], 0).unwrap();
    let bytes = granted.buffers[0].as_bytes_mut();
    assert_eq!(bytes.as_ptr() as usize % crate::ALIGNMENT, 0);
    assert!(bytes.iter().all(|&byte| byte == 0));
    bytes.fill(7);
    drop(granted);
    let granted = bench.try_acquire(&[5000], 0).unwrap();
    assert!(granted.buffers[0].as_bytes().iter().all(|&byte| byte == 7));
    drop(granted);
    bench.end();
}

#[test]
fn a_reused_buffer_is_booked_on_its_user() {
    let bench = Bench::new(1000);
    bench.pool.warm(&[(500, 1)]).unwrap();
    let mut other = request(&[500], 10);
    other.consumer = OTHERS;
    let mut granted = bench.pool.try_acquire(&other).unwrap();
    assert_eq!(bench.budget.usage().held_by(OTHERS), 510);
    let split = granted.reservation.split(4).unwrap();
    drop(granted);
    assert_eq!(bench.used_bytes(), 504);
    assert_eq!(bench.budget.usage().idle_bytes, 500);
    drop(split);
    bench.end();
}
