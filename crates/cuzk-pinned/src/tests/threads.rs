//! Many threads on one pool: no buffer is handed out twice.

use std::thread;

use cuzk_budget::{Budget, Priority};

use super::{Bench, OTHERS, fences::Event, request};
use crate::PinnedPool;

/// Deterministic numbers, one sequence a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// Takes, fills, checks and returns buffers. A buffer that two threads hold
/// would show the other's pattern.
fn work(pool: &PinnedPool, budget: &Budget, seed: u8) {
    let mut numbers = Numbers(u64::from(seed));
    for round in 0..150 {
        let count = 1 + numbers.below(3);
        let lens: Vec<usize> = (0..count)
            .map(|_| [4096, 5000, 9000, 100][numbers.below(4) as usize])
            .collect();
        let mut request = request(&lens, numbers.below(500));
        request.wait.priority = Priority(numbers.below(3) as u8);
        let mut granted = pool.acquire(&request).expect("less than the limit");
        for buffer in &mut granted.buffers {
            buffer.as_bytes_mut().fill(seed);
        }
        if round % 5 == 0 {
            let usage = budget.usage();
            assert!(usage.used_bytes <= usage.limit_bytes);
            pool.trim(numbers.below(3000));
            drop(budget.try_reserve(OTHERS, numbers.below(60_000)));
        }
        for buffer in granted.buffers {
            assert!(buffer.as_bytes().iter().all(|&byte| byte == seed));
            if round % 3 == 0 {
                buffer.release_after(Event::default());
            }
        }
    }
}

#[test]
fn eight_threads_never_share_a_buffer() {
    // Two or three requests at a time fit, so most wait.
    let bench = Bench::new(60_000);
    thread::scope(|scope| {
        for seed in 1..=8 {
            let (pool, budget) = (&bench.pool, &bench.budget);
            scope.spawn(move || work(pool, budget, seed));
        }
    });
    let stats = bench.pool.stats();
    assert_eq!((stats.in_use_bytes, bench.budget.usage().waiters), (0, 0));
    assert_eq!(bench.used_bytes(), bench.backing.live_bytes());
    assert_eq!(bench.used_bytes(), stats.idle_bytes + stats.fenced_bytes);
    assert!(stats.reuses > 0 && stats.frees > 0);
    bench.end();
}
