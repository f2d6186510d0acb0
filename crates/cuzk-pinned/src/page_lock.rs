//! Page-locking memory that is there already, for as long as it is of use.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::backing::ALIGNMENT;
use crate::error::BackingError;

/// Most bytes that are locked at once. Drivers from r580 on refuse 512 GiB, some
/// hosts less.
pub const LOCK_BYTES_MAX: usize = 64 << 30;

/// Locks and unlocks pages, as a driver does.
pub trait PageLock: fmt::Debug + Send + Sync {
    /// Locks whole pages, all of them or none. The error says why not.
    ///
    /// # Errors
    /// If they cannot be locked.
    ///
    /// # Safety
    /// They are mapped, not locked, and stay mapped until they are unlocked.
    unsafe fn lock(&self, start: NonNull<u8>, bytes: usize) -> Result<(), String>;

    /// Unlocks what one call locked.
    ///
    /// # Errors
    /// If the driver says so; the pages are not used as locked ones any more.
    ///
    /// # Safety
    /// `start` is where that call's memory starts; no device touches it any more.
    unsafe fn unlock(&self, start: NonNull<u8>) -> Result<(), String>;
}

/// Locks buffers for the time of a use: see
/// [`PinnedBacking::lock_pages`](crate::PinnedBacking::lock_pages).
///
/// An error of an unlocking is returned by the next locking.
#[derive(Debug)]
pub struct PageLocker {
    lock: Box<dyn PageLock>,
    chunk_bytes: usize,
    trouble: Trouble,
    locked_bytes: AtomicU64,
}

impl PageLocker {
    /// Locks at most `chunk_bytes` at once, and larger buffers in chunks of so many.
    ///
    /// # Panics
    /// If these are no whole pages, none, or [`LOCK_BYTES_MAX`] or more.
    pub fn new(lock: impl PageLock + 'static, chunk_bytes: usize) -> Self {
        assert!(
            is_chunk(chunk_bytes),
            "chunks of {chunk_bytes} bytes: want whole pages below {LOCK_BYTES_MAX}"
        );
        Self {
            lock: Box::new(lock),
            chunk_bytes,
            trouble: Trouble::default(),
            locked_bytes: AtomicU64::new(0),
        }
    }

    /// Bytes that are locked now.
    pub fn locked_bytes(&self) -> u64 {
        self.locked_bytes.load(Ordering::Relaxed)
    }
}

/// Whether so many bytes may be locked at once.
pub(crate) fn is_chunk(bytes: usize) -> bool {
    bytes > 0 && bytes < LOCK_BYTES_MAX && bytes.is_multiple_of(ALIGNMENT)
}

/// Pages that are locked until this is dropped.
pub(crate) struct LockedPages {
    locker: Arc<PageLocker>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pages may be unlocked from any thread, and nothing else is done with
// their address.
unsafe impl Send for LockedPages {}
// SAFETY: a shared reference gives sizes only.
unsafe impl Sync for LockedPages {}

impl LockedPages {
    /// Locks the pages of `bytes` bytes from `start`.
    ///
    /// # Safety
    /// These bytes are mapped and not locked, no other lock takes a page of them, and
    /// they stay mapped until this is dropped, after the last use by a device.
    pub(crate) unsafe fn new(
        locker: &Arc<PageLocker>,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Self, BackingError> {
        const NAME: &str = "page-lock";
        locker.trouble.report(NAME, bytes)?;
        // Whole pages are mapped, also the last, of which only a part is the buffer's.
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        // SAFETY: the caller's promise, for whole pages.
        let locked = unsafe {
            lock_chunks(
                &*locker.lock,
                start,
                bytes,
                locker.chunk_bytes,
                &locker.trouble,
            )
        };
        locked.map_err(|reason| BackingError {
            backing: NAME,
            bytes,
            reason,
        })?;
        let added = bytes as u64;
        locker.locked_bytes.fetch_add(added, Ordering::Relaxed);
        Ok(Self {
            locker: Arc::clone(locker),
            start,
            bytes,
        })
    }

    /// Bytes that were locked at once, counted from the start.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.locker.chunk_bytes
    }
}

impl Drop for LockedPages {
    fn drop(&mut self) {
        let PageLocker {
            lock,
            chunk_bytes,
            trouble,
            locked_bytes,
        } = &*self.locker;
        // SAFETY: `new` locked these chunks, and its caller promised that no device
        // touches them by now.
        unsafe { unlock_chunks(&**lock, self.start, self.bytes, *chunk_bytes, trouble) };
        locked_bytes.fetch_sub(self.bytes as u64, Ordering::Relaxed);
    }
}

/// Offsets and bytes of the chunks of `bytes`.
fn chunks(bytes: usize, chunk_bytes: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    (0..bytes)
        .step_by(chunk_bytes)
        .map(move |offset| (offset, chunk_bytes.min(bytes - offset)))
}

/// The ranges of the first `len` bytes of memory that is locked in chunks.
pub(crate) fn chunk_ranges(
    len: usize,
    chunk_bytes: usize,
) -> impl Iterator<Item = Range<usize>> + Clone {
    chunks(len, chunk_bytes).map(|(offset, bytes)| offset..offset + bytes)
}

/// Locks every chunk, or none and says which was refused.
///
/// # Safety
/// As [`PageLock::lock`], for `bytes` bytes.
pub(crate) unsafe fn lock_chunks(
    lock: &dyn PageLock,
    start: NonNull<u8>,
    bytes: usize,
    chunk_bytes: usize,
    trouble: &Trouble,
) -> Result<(), String> {
    for (index, (offset, count)) in chunks(bytes, chunk_bytes).enumerate() {
        // SAFETY: the chunk lies within the caller's memory and is not locked yet.
        let locked = unsafe { lock.lock(start.add(offset), count) };
        if let Err(reason) = locked {
            // SAFETY: the chunks before this one were locked just now, and no device
            // knows of them.
            unsafe { unlock_chunks(lock, start, offset, chunk_bytes, trouble) };
            return Err(format!(
                "chunk {index}, {count} bytes from byte {offset}: {reason}"
            ));
        }
    }
    Ok(())
}

/// Unlocks the chunks of `bytes` bytes.
///
/// # Safety
/// [`lock_chunks`] locked them with this `chunk_bytes`, and no device touches them
/// any more.
pub(crate) unsafe fn unlock_chunks(
    lock: &dyn PageLock,
    start: NonNull<u8>,
    bytes: usize,
    chunk_bytes: usize,
    trouble: &Trouble,
) {
    for (offset, _) in chunks(bytes, chunk_bytes) {
        // SAFETY: the caller promises that a chunk begins here and is locked.
        let unlocked = unsafe { lock.unlock(start.add(offset)) };
        if let Err(reason) = unlocked {
            trouble.record(reason);
        }
    }
}

/// What went wrong where no error can be returned, kept for the next call that
/// can.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Mutex<Option<String>>);

impl Trouble {
    pub(crate) fn record(&self, what: String) {
        let mut kept = self.0.lock().unwrap_or_else(|e| e.into_inner());
        kept.get_or_insert(what);
    }

    /// Passes on what was recorded, once.
    pub(crate) fn report(&self, backing: &'static str, bytes: usize) -> Result<(), BackingError> {
        let mut kept = self.0.lock().unwrap_or_else(|e| e.into_inner());
        match kept.take() {
            None => Ok(()),
            Some(reason) => Err(BackingError {
                backing,
                bytes,
                reason: format!("an earlier free failed: {reason}"),
            }),
        }
    }
}

/// A lock for tests: it counts instead of locking, and may refuse.
#[derive(Clone, Debug, Default)]
pub struct PretendLock(Arc<PretendBooks>);

#[derive(Debug, Default)]
struct PretendBooks {
    locks: AtomicU64,
    unlocks: AtomicU64,
    fails_at: u64,
}

impl PretendLock {
    /// Refuses the `fails_at`-th locking, counted from one.
    pub fn failing_at(fails_at: u64) -> Self {
        Self(Arc::new(PretendBooks {
            fails_at,
            ..PretendBooks::default()
        }))
    }

    /// Calls that locked something so far.
    pub fn locks(&self) -> u64 {
        self.0.locks.load(Ordering::SeqCst)
    }

    /// What is locked now, in calls that locked it.
    pub fn locked(&self) -> u64 {
        self.locks() - self.0.unlocks.load(Ordering::SeqCst)
    }
}

impl PageLock for PretendLock {
    unsafe fn lock(&self, _: NonNull<u8>, _: usize) -> Result<(), String> {
        let number = self.0.locks.fetch_add(1, Ordering::SeqCst) + 1;
        if number == self.0.fails_at {
            self.0.unlocks.fetch_add(1, Ordering::SeqCst);
            return Err(format!("lock {number} was to fail"));
        }
        Ok(())
    }

    unsafe fn unlock(&self, _: NonNull<u8>) -> Result<(), String> {
        self.0.unlocks.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}
