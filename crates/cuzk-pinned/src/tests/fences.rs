//! Buffers that something may still read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cuzk_budget::Priority;

use super::{Bench, OTHERS, request};
use crate::Fence;

/// An event that a test lets pass, or that passes when it is waited for.
#[derive(Clone, Default)]
pub(super) struct Event {
    has_passed: Arc<AtomicBool>,
    waits: Arc<AtomicU64>,
}

impl Event {
    pub(super) fn pass(&self) {
        self.has_passed.store(true, Ordering::SeqCst);
    }

    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::SeqCst)
    }
}

impl Fence for Event {
    fn wait(&self) {
        if !self.has_passed.swap(true, Ordering::SeqCst) {
            self.waits.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn has_passed(&self) -> bool {
        self.has_passed.load(Ordering::SeqCst)
    }
}

#[test]
fn a_fenced_buffer_is_reused_only_after_its_fence() {
    let bench = Bench::new(1000);
    let event = Event::default();
    let mut granted = bench.try_acquire(&[400], 0).unwrap();
    granted.buffers.remove(0).release_after(event.clone());
    let stats = bench.pool.stats();
    assert_eq!(
        (stats.fenced_bytes, stats.idle_bytes, stats.in_use_bytes),
        (400, 0, 0)
    );
    // There is room for another, so nobody waits.
    let second = bench.try_acquire(&[400], 0).unwrap();
    assert_eq!((bench.pool.stats().allocations, event.waits()), (2, 0));
    assert_eq!(bench.pool.trim(u64::MAX), 0, "trimming does not wait");
    event.pass();
    let third = bench.try_acquire(&[400], 0).unwrap();
    let stats = bench.pool.stats();
    assert_eq!((stats.allocations, stats.reuses, event.waits()), (2, 1, 0));
    drop((second, third, granted));
    bench.end();
}

#[test]
fn a_request_that_needs_the_buffer_waits_for_its_fence() {
    let bench = Bench::new(1000);
    let (useful, other) = (Event::default(), Event::default());
    let mut granted = bench.try_acquire(&[600, 400], 0).unwrap();
    granted.buffers.remove(0).release_after(other.clone());
    granted.buffers.remove(0).release_after(useful.clone());
    let reused = bench.try_acquire(&[400], 0).unwrap();
    assert_eq!((useful.waits(), other.waits()), (1, 0));
    assert_eq!(
        (bench.pool.stats().reuses, bench.pool.stats().frees),
        (1, 0)
    );
    // Bytes alone: the other is waited for and freed.
    let bytes = bench.budget.try_reserve(OTHERS, 500).unwrap();
    assert_eq!((other.waits(), bench.pool.stats().frees), (1, 1));
    drop((reused, bytes, granted));
    bench.end();
}

#[test]
fn memory_is_freed_only_after_its_fence() {
    let bench = Bench::new(1000);
    let (idle, orphan) = (Event::default(), Event::default());
    let mut granted = bench.pool.acquire(&request(&[100, 200], 0)).unwrap();
    granted.buffers.remove(0).release_after(idle.clone());
    assert_eq!(idle.waits(), 0, "handing back does not wait");
    let buffer = granted.buffers.remove(0);
    let Bench {
        budget,
        backing,
        pool,
        ..
    } = bench;
    drop(pool);
    assert_eq!((idle.waits(), backing.live_bytes()), (1, 200));
    buffer.release_after(orphan.clone());
    assert_eq!((orphan.waits(), backing.live_bytes()), (1, 0));
    assert_eq!(budget.usage().used_bytes, 0);
    assert_eq!(granted.reservation.bytes(), 0);
}

#[test]
fn a_waiting_request_is_woken_by_a_fenced_hand_back() {
    let bench = Bench::new(1000);
    let event = Event::default();
    let mut granted = bench.try_acquire(&[1000], 0).unwrap();
    std::thread::scope(|scope| {
        let mut urgent = request(&[1000], 0);
        urgent.wait.priority = Priority::HIGHEST;
        let pool = &bench.pool;
        let waiting = scope.spawn(move || pool.acquire(&urgent).unwrap());
        while bench.budget.usage().waiters == 0 {
            std::thread::yield_now();
        }
        granted.buffers.remove(0).release_after(event.clone());
        assert_eq!(waiting.join().unwrap().buffers[0].len(), 1000);
    });
    assert_eq!((event.waits(), bench.pool.stats().allocations), (1, 1));
    bench.end();
}
