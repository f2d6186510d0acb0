//! Copies through a ring of chunks: every byte once, none before its time, and
//! nothing lost when something goes wrong.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuzk_budget::Budget;

use super::{Bench, fences::Event, is_refused, request};
use crate::{
    AcquireError, Fence, PinnedPool, PoolOptions, PretendBacking, StagingOptions, StagingRing,
};

const CHUNK: usize = 64;

fn options(chunk_count: usize, threads: usize) -> StagingOptions {
    StagingOptions {
        chunk_bytes: NonZero::new(CHUNK).unwrap(),
        chunk_count: NonZero::new(chunk_count).unwrap(),
        threads: NonZero::new(threads).unwrap(),
    }
}

fn source(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

/// Uploads that have begun and whose end nobody has waited for.
#[derive(Clone, Default)]
struct Uploads(Arc<AtomicUsize>);

impl Uploads {
    fn begin(&self) -> Upload {
        self.0.fetch_add(1, Ordering::SeqCst);
        Upload(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// One that ends when it is waited for, once.
struct Upload(Uploads);

impl Fence for Upload {
    fn wait(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn has_passed(&self) -> bool {
        false
    }
}

#[test]
fn every_byte_arrives_once_and_no_chunk_is_filled_before_its_fence() {
    for (chunk_count, threads) in [(1, 1), (2, 1), (3, 8), (8, 3)] {
        let bench = Bench::new((chunk_count * CHUNK) as u64);
        let mut ring = StagingRing::new(&bench.pool, options(chunk_count, threads)).unwrap();
        assert!(ring.is_page_locked());
        let uploads = Uploads::default();
        // None, one byte, around a chunk, and several times the ring.
        for len in [
            0,
            1,
            CHUNK - 1,
            CHUNK,
            CHUNK + 1,
            5 * chunk_count * CHUNK + 7,
        ] {
            let source = source(len);
            let mut device = vec![0; len];
            let mut calls = 0;
            let mut arrived = 0;
            ring.copy(&source, |chunk, offset| {
                calls += 1;
                arrived += chunk.len();
                device[offset..offset + chunk.len()].copy_from_slice(chunk);
                let upload = uploads.begin();
                // A chunk that is filled again has had its fence waited for.
                assert!(uploads.count() <= chunk_count);
                Ok::<_, ()>(upload)
            })
            .unwrap();
            assert_eq!((calls, arrived), (len.div_ceil(CHUNK), len));
            assert_eq!(device, source);
        }
        assert_eq!(uploads.count(), chunk_count, "the last ones");
        ring.finish();
        assert_eq!(uploads.count(), 0);
        drop(ring);
        let stats = bench.pool.stats();
        assert_eq!(
            (stats.idle_count, stats.allocations),
            (chunk_count, chunk_count as u64)
        );
        bench.end();
    }
}

#[test]
fn an_error_ends_the_copy_and_nothing_else() {
    let bench = Bench::new(4 * CHUNK as u64);
    let mut ring = StagingRing::new(&bench.pool, options(4, 2)).unwrap();
    let source = source(40 * CHUNK);
    for fails_at in [1, 2, 20, 40] {
        let mut calls = 0;
        let result = ring.copy(&source, |_, _| {
            calls += 1;
            if calls == fails_at {
                Err(calls)
            } else {
                Ok(Event::default())
            }
        });
        assert_eq!((result, calls), (Err(fails_at), fails_at));
        let mut copied = 0;
        ring.copy(&source, |chunk, _| {
            copied += chunk.len();
            Ok::<_, ()>(Event::default())
        })
        .unwrap();
        assert_eq!(copied, source.len());
    }
    ring.finish();
    drop(ring);
    assert_eq!(bench.pool.stats().idle_count, 4);
    bench.end();
}

/// An end that cannot be waited for.
struct Broken;

impl Fence for Broken {
    fn wait(&self) {
        std::panic::resume_unwind(Box::new("a fault of the test"));
    }

    fn has_passed(&self) -> bool {
        false
    }
}

#[test]
fn a_panic_leaves_all_chunks_in_the_ring() {
    let bench = Bench::new(3 * CHUNK as u64);
    let source = source(20 * CHUNK);
    for fails_at in [1, 3, 20] {
        let mut ring = StagingRing::new(&bench.pool, options(3, 2)).unwrap();
        let mut calls = 0;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            ring.copy(&source, |_, _| {
                calls += 1;
                if calls == fails_at {
                    std::panic::resume_unwind(Box::new("a fault of the test"));
                }
                Ok::<_, ()>(Event::default())
            })
        }));
        assert!(panicked.is_err());
        let mut arrived = 0;
        ring.copy(&source, |chunk, _| {
            arrived += chunk.len();
            Ok::<_, ()>(Event::default())
        })
        .unwrap();
        assert_eq!(arrived, source.len());
        ring.finish();
        drop(ring);
        assert_eq!(bench.pool.stats().idle_count, 3);
    }
    bench.end();
}

#[test]
fn a_panic_of_a_helper_is_passed_on_and_nobody_waits_for_it() {
    let bench = Bench::new(2 * CHUNK as u64);
    let mut ring = StagingRing::new(&bench.pool, options(2, 2)).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        ring.copy(&source(10 * CHUNK), |_, _| Ok::<_, ()>(Broken))
    }));
    assert!(panicked.is_err());
    // Their fences never pass, so their memory stays with them.
    std::mem::forget(ring);
    assert_eq!(bench.used_bytes(), 2 * CHUNK as u64);
}

#[test]
fn a_dropped_ring_hands_its_chunks_back_behind_their_fences() {
    let bench = Bench::new(4 * CHUNK as u64);
    let mut ring = StagingRing::new(&bench.pool, options(3, 1)).unwrap();
    let event = Event::default();
    let upload = |_: &[u8], _| Ok::<_, ()>(event.clone());
    ring.copy(&source(2 * CHUNK), upload).unwrap();
    drop(ring);
    let stats = bench.pool.stats();
    assert_eq!(
        (stats.fenced_bytes, stats.idle_bytes),
        (2 * CHUNK as u64, CHUNK as u64)
    );
    event.pass();
    assert_eq!(bench.pool.stats().idle_count, 3);
    bench.end();
}

#[test]
fn a_ring_without_room_is_refused_and_holds_nothing() {
    let bench = Bench::new(4 * CHUNK as u64);
    let held = bench.try_acquire(&[CHUNK], 0).unwrap();
    let refused = StagingRing::new(&bench.pool, options(4, 1));
    assert!(matches!(refused, Err(AcquireError::Budget(_))));
    assert_eq!(bench.used_bytes(), CHUNK as u64);
    let ring = StagingRing::new(&bench.pool, options(3, 1)).unwrap();
    assert!(is_refused(&bench.try_acquire(&[CHUNK], 0)));
    drop((held, ring));
    bench.end();
}

#[test]
fn chunks_stay_within_what_was_locked_at_once() {
    let backing = PretendBacking {
        chunk_bytes: NonZero::new(4096),
    };
    let pool = PinnedPool::new(Budget::new(1 << 20), backing, PoolOptions::STANDARD);
    let buffers = pool.try_acquire(&request(&[10_000, 5000], 0)).unwrap();
    let mut ring = StagingRing::from_buffers(buffers.buffers, NonZero::new(2).unwrap());
    assert_eq!((ring.chunk_bytes(), ring.chunk_count()), (4096, 2));
    assert_eq!(ring.held_bytes(), 5 * 4096);
    let mut lens = Vec::new();
    ring.copy(&source(10_000), |chunk, _| {
        lens.push(chunk.len());
        Ok::<_, ()>(Event::default())
    })
    .unwrap();
    lens.sort_unstable();
    assert_eq!(lens, [10_000 - 2 * 4096, 4096, 4096]);
}
