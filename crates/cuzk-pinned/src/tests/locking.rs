//! Buffers that are page-locked for the time of one use.

use std::num::NonZero;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuzk_budget::Budget;

use super::{fences::Event, request};
use crate::{
    Fence, PageLock, PageLocker, PinnedBacking, PinnedPool, PoolOptions, PretendBacking,
    PretendLock,
};

const PAGE: usize = 4096;

fn locker(lock: &PretendLock) -> Arc<PageLocker> {
    Arc::new(PageLocker::new(lock.clone(), 4 * PAGE))
}

fn buffer(pool: &PinnedPool, bytes: usize) -> PinnedBacking {
    let mut acquired = pool.try_acquire(&request(&[bytes], 0)).unwrap();
    acquired.buffers.remove(0)
}

fn ranges(buffer: &PinnedBacking) -> Vec<Range<usize>> {
    buffer.copy_ranges().collect()
}

#[test]
fn a_buffer_is_locked_in_chunks_until_it_is_handed_back() {
    let budget = Budget::new(1 << 20);
    let pool = PinnedPool::heap(budget.clone());
    let lock = PretendLock::default();
    let locker = locker(&lock);
    let len = 9 * PAGE + 5;
    let mut held = buffer(&pool, len);
    assert!(!held.is_page_locked());
    assert_eq!(ranges(&held), vec![0..len; 1]);
    held.lock_pages(&locker).unwrap();
    assert!(held.is_page_locked());
    assert_eq!(lock.locked(), 3);
    let chunks = [0..4 * PAGE, 4 * PAGE..8 * PAGE, 8 * PAGE..len];
    assert_eq!(ranges(&held), chunks);
    held.lock_pages(&locker).unwrap();
    assert_eq!(lock.locks(), 3, "once is enough");
    assert_eq!(locker.locked_bytes(), 10 * PAGE as u64);
    held.as_bytes_mut().fill(3);
    held.unlock_pages();
    assert_eq!((lock.locked(), locker.locked_bytes()), (0, 0));
    assert!(!held.is_page_locked());
    held.lock_pages(&locker).unwrap();
    drop(held);
    assert_eq!((lock.locked(), locker.locked_bytes()), (0, 0));

    let held = buffer(&pool, len);
    assert_eq!(pool.stats().reuses, 1);
    assert!(
        !held.is_page_locked(),
        "the next user's buffer is as it was"
    );
    assert_eq!(budget.usage().used_bytes, len as u64);
    drop(held);
}

#[test]
fn a_refused_lock_leaves_the_buffer_as_it_was() {
    let pool = PinnedPool::heap(Budget::new(1 << 20));
    for fails_at in 1..=3 {
        let lock = PretendLock::failing_at(fails_at);
        let locker = locker(&lock);
        let mut held = buffer(&pool, 9 * PAGE);
        held.as_bytes_mut().fill(9);
        let error = held.lock_pages(&locker).unwrap_err();
        let place = format!("chunk {}, ", fails_at - 1);
        assert!(error.reason.starts_with(&place), "{error}");
        assert!(!held.is_page_locked());
        assert!(held.as_bytes().iter().all(|&byte| byte == 9));
        assert_eq!(lock.locked(), 0);
        held.lock_pages(&locker).unwrap();
        assert_eq!(lock.locked(), 3);
    }
}

/// Says whether its pages are locked, and cannot unlock without a word.
#[derive(Debug)]
struct Stubborn(Arc<AtomicBool>);

impl PageLock for Stubborn {
    unsafe fn lock(&self, _: NonNull<u8>, _: usize) -> Result<(), String> {
        self.0.store(true, Ordering::SeqCst);
        Ok(())
    }

    unsafe fn unlock(&self, _: NonNull<u8>) -> Result<(), String> {
        self.0.store(false, Ordering::SeqCst);
        Err("not unlocked".to_owned())
    }
}

/// Passes when it is waited for, while the pages are locked.
struct WhileLocked(Arc<AtomicBool>, Event);

impl Fence for WhileLocked {
    fn wait(&self) {
        assert!(self.0.load(Ordering::SeqCst), "unlocked before its fence");
        self.1.wait();
    }

    fn has_passed(&self) -> bool {
        self.1.has_passed()
    }
}

#[test]
fn pages_are_unlocked_after_the_fence_and_errors_come_with_the_next_lock() {
    let pool = PinnedPool::heap(Budget::new(1 << 20));
    let is_locked = Arc::new(AtomicBool::new(false));
    let locker = Arc::new(PageLocker::new(Stubborn(Arc::clone(&is_locked)), PAGE));
    let mut held = buffer(&pool, PAGE);
    held.lock_pages(&locker).unwrap();
    let event = Event::default();
    held.release_after(WhileLocked(Arc::clone(&is_locked), event.clone()));
    assert_eq!(event.waits(), 1);
    assert!(!is_locked.load(Ordering::SeqCst));

    let mut held = buffer(&pool, PAGE);
    let error = held.lock_pages(&locker).unwrap_err();
    assert!(error.reason.ends_with("not unlocked"), "{error}");
    held.lock_pages(&locker).unwrap();
}

#[test]
fn what_is_locked_by_its_pool_or_empty_is_not_locked_again() {
    let backing = PretendBacking {
        chunk_bytes: NonZero::new(2 * PAGE),
    };
    let pool = PinnedPool::new(Budget::new(1 << 20), backing, PoolOptions::STANDARD);
    let lock = PretendLock::default();
    let mut held = buffer(&pool, 3 * PAGE);
    held.lock_pages(&locker(&lock)).unwrap();
    assert_eq!(ranges(&held), [0..2 * PAGE, 2 * PAGE..3 * PAGE]);
    let mut empty = buffer(&PinnedPool::heap(Budget::new(1)), 0);
    empty.lock_pages(&locker(&lock)).unwrap();
    assert!(!empty.is_page_locked());
    assert_eq!(ranges(&empty), []);
    assert_eq!(lock.locks(), 0);
}
