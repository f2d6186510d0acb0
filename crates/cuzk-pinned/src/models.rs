//! Hand-back, waiting and reclaiming under every interleaving that loom finds.
//!
//! Built with the feature `loom` only. A request that is never woken shows as a
//! deadlock, which loom reports. `hand-back.md` tells the protocol in prose.

use cuzk_budget::{Budget, Consumer, Priority, Wait};
use loom::thread;

use crate::{AcquireRequest, Fence, HeapBacking, PinnedPool, PoolOptions};

const JOB: Consumer = Consumer("job");

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // As in the models of the budget.
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn request(buffers: &[usize]) -> AcquireRequest<'_> {
    AcquireRequest {
        buffers,
        bytes: 0,
        consumer: JOB,
        wait: Wait::with_priority(Priority::NORMAL),
    }
}

/// An event that has passed when somebody waits for it, and not before.
struct Later;

impl Fence for Later {
    fn wait(&self) {}

    fn has_passed(&self) -> bool {
        false
    }
}

#[test]
fn loom_a_buffer_handed_back_serves_the_waiting() {
    model(|| {
        let pool = PinnedPool::heap(Budget::new(8));
        let held = pool.try_acquire(&request(&[8])).unwrap();
        let waiting = {
            let pool = pool.clone();
            thread::spawn(move || drop(pool.acquire(&request(&[8])).unwrap()))
        };
        drop(held);
        waiting.join().unwrap();
        let stats = pool.stats();
        assert_eq!((stats.allocations, stats.reuses, stats.frees), (1, 1, 0));
    });
}

#[test]
fn loom_a_buffer_of_another_size_is_freed_for_the_waiting() {
    model(|| {
        let budget = Budget::new(8);
        let pool = PinnedPool::heap(budget.clone());
        let held = pool.try_acquire(&request(&[8])).unwrap();
        let waiting = {
            let pool = pool.clone();
            thread::spawn(move || drop(pool.acquire(&request(&[4, 2])).unwrap()))
        };
        drop(held);
        waiting.join().unwrap();
        assert_eq!(budget.usage().used_bytes, 6);
        drop(pool);
        assert_eq!(budget.usage().used_bytes, 0);
    });
}

#[test]
fn loom_idle_buffers_are_freed_for_plain_bytes() {
    model(|| {
        let budget = Budget::new(8);
        let pool = PinnedPool::heap(budget.clone());
        let held = pool.try_acquire(&request(&[8])).unwrap();
        let waiting = {
            let budget = budget.clone();
            let wait = Wait::with_priority(Priority::NORMAL);
            thread::spawn(move || drop(budget.reserve(JOB, 1, &wait).unwrap()))
        };
        drop(held);
        waiting.join().unwrap();
        assert_eq!(budget.usage().used_bytes, 0);
    });
}

#[test]
fn loom_two_that_fit_are_both_served_at_once() {
    model(|| {
        let pool = PinnedPool::heap(Budget::new(8));
        pool.warm(&[(4, 2)]).unwrap();
        let other = {
            let pool = pool.clone();
            // One can be served from idle, the other needs memory freed, or
            // the other way round.
            thread::spawn(move || pool.try_acquire(&request(&[4])).unwrap())
        };
        let mine = pool.try_acquire(&request(&[3])).unwrap();
        drop((mine, other.join().unwrap()));
    });
}

#[test]
fn loom_one_that_cannot_fit_does_not_hide_what_another_needs() {
    model(|| {
        let budget = Budget::new(8);
        let pool = PinnedPool::heap(budget.clone());
        let held = budget.try_reserve(JOB, 4).unwrap();
        pool.warm(&[(4, 1)]).unwrap();
        let other = {
            let pool = pool.clone();
            thread::spawn(move || drop(pool.try_acquire(&request(&[4, 4])).unwrap_err()))
        };
        assert!(pool.try_acquire(&request(&[4])).is_ok());
        other.join().unwrap();
        drop(held);
    });
}

#[test]
fn loom_a_fence_is_waited_for_by_who_needs_the_buffer() {
    model(|| {
        let pool = PinnedPool::heap(Budget::new(8));
        let mut held = pool.try_acquire(&request(&[8])).unwrap();
        let waiting = {
            let pool = pool.clone();
            thread::spawn(move || drop(pool.acquire(&request(&[8])).unwrap()))
        };
        held.buffers.remove(0).release_after(Later);
        waiting.join().unwrap();
        let stats = pool.stats();
        assert_eq!((stats.allocations, stats.reuses), (1, 1));
    });
}

#[test]
fn loom_the_pool_may_go_while_a_buffer_comes_back() {
    model(|| {
        let budget = Budget::new(8);
        let pool = PinnedPool::heap(budget.clone());
        let held = pool.try_acquire(&request(&[8])).unwrap();
        let user = thread::spawn(move || drop(held));
        drop(pool);
        user.join().unwrap();
        assert_eq!(budget.usage().used_bytes, 0);
    });
}

#[test]
fn loom_a_part_waits_for_its_buffer_and_for_ordinary_bytes() {
    model(|| {
        let host = Budget::new(8);
        let share = host.share("page-locked memory", 4);
        let pool = PinnedPool::with_bytes_in(
            share.clone(),
            host.clone(),
            HeapBacking,
            PoolOptions::STANDARD,
        );
        // Either may come back last.
        let buffer = pool.try_acquire(&request(&[4])).unwrap();
        let bytes = host.try_reserve(JOB, 4).unwrap();
        let waiting = {
            let pool = pool.clone();
            thread::spawn(move || {
                let part = AcquireRequest {
                    bytes: 4,
                    ..request(&[4])
                };
                drop(pool.acquire(&part).unwrap());
            })
        };
        let user = thread::spawn(move || drop(buffer));
        drop(bytes);
        user.join().unwrap();
        waiting.join().unwrap();
        assert_eq!((host.usage().used_bytes, share.usage().used_bytes), (4, 4));
        let stats = pool.stats();
        assert_eq!((stats.allocations, stats.reuses, stats.frees), (1, 1, 0));
    });
}
