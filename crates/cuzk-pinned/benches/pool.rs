//! What a reservation and a reused buffer cost, beside a mutex.
//!
//! Run with `cargo bench -p cuzk-pinned --profile dev`. Uncontended, a
//! reservation and a reuse are each to cost at most ten times an uncontended
//! lock and unlock of a mutex in the same run; what eight threads do to each
//! other is reported beside it.

use std::hint::black_box;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_pinned::{AcquireRequest, PinnedPool};

const BENCH: Consumer = Consumer("bench");
const THREADS: u64 = 8;
const BUFFER_BYTES: usize = 1 << 16;

fn wait() -> Wait {
    Wait::with_priority(Priority::NORMAL)
}

fn reserve(budget: &Budget, wait: &Wait) {
    let reservation = budget.reserve(BENCH, 1 << 20, wait);
    black_box(reservation.expect("within the limit"));
}

fn acquire(pool: &PinnedPool, buffers: &[usize]) {
    let acquired = pool.acquire(&AcquireRequest {
        buffers,
        bytes: 0,
        consumer: BENCH,
        wait: wait(),
    });
    black_box(acquired.expect("idle"));
}

/// A pool with so many idle buffers for each of so many users.
fn pool(users: u64, buffers: &[usize]) -> PinnedPool {
    let pool = PinnedPool::heap(Budget::new(1 << 30));
    pool.warm(&[(BUFFER_BYTES, buffers.len() * users as usize)])
        .expect("within the limit");
    pool
}

/// Time of `count` calls, shared out among threads that start together.
fn contended(count: u64, call: impl Fn() + Sync) -> Duration {
    let start = std::sync::Barrier::new(THREADS as usize + 1);
    let calls = count.div_ceil(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                (0..calls).for_each(|_| call());
            });
        }
        start.wait();
        Instant::now()
    })
    .elapsed()
}

fn uncontended(c: &mut Criterion) {
    let mut group = c.benchmark_group("uncontended");
    let mutex = Mutex::new(0_u64);
    group.bench_function("mutex lock+unlock", |b| {
        b.iter(|| *black_box(&mutex).lock().expect("no panics") += 1);
    });
    let budget = Budget::new(1 << 30);
    let wait = wait();
    group.bench_function("reserve+release", |b| b.iter(|| reserve(&budget, &wait)));
    group.bench_function("try_reserve+release", |b| {
        b.iter(|| black_box(budget.try_reserve(BENCH, 1 << 20)).expect("within the limit"));
    });
    let one = [BUFFER_BYTES];
    let idle = pool(1, &one);
    group.bench_function("acquire+hand-back of 1 idle buffer", |b| {
        b.iter(|| acquire(&idle, &one));
    });
    let four = [BUFFER_BYTES; 4];
    let idle = pool(1, &four);
    group.bench_function("acquire+hand-back of 4 idle buffers", |b| {
        b.iter(|| acquire(&idle, &four));
    });
    group.finish();
}

fn eight_threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("8 threads");
    let mutex = Mutex::new(0_u64);
    group.bench_function("mutex lock+unlock", |b| {
        b.iter_custom(|count| contended(count, || *mutex.lock().expect("no panics") += 1));
    });
    let budget = Budget::new(1 << 30);
    group.bench_function("reserve+release", |b| {
        b.iter_custom(|count| contended(count, || reserve(&budget, &wait())));
    });
    let one = [BUFFER_BYTES];
    let idle = pool(THREADS, &one);
    group.bench_function("acquire+hand-back of 1 idle buffer", |b| {
        b.iter_custom(|count| contended(count, || acquire(&idle, &one)));
    });
    group.finish();
}

criterion_group!(benches, uncontended, eight_threads);
criterion_main!(benches);
