//! Ordinary memory to a device through a few page-locked chunks.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use cuzk_budget::{Consumer, Priority, Wait};

use crate::buffer::PinnedBacking;
use crate::error::AcquireError;
use crate::fence::Fence;
use crate::pool::PinnedPool;
use crate::request::AcquireRequest;

/// On whom chunks are booked.
const STAGING: Consumer = Consumer("staging");

/// Size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingOptions {
    /// Bytes of a chunk, which one thread fills and one upload reads.
    pub chunk_bytes: NonZero<usize>,
    /// Number of chunks.
    pub chunk_count: NonZero<usize>,
    /// Threads that fill chunks.
    pub threads: NonZero<usize>,
}

impl StagingOptions {
    /// Two chunks of 8 MiB a thread: while one is uploaded the other is filled. They
    /// are small enough for both to overlap at 1 GiB, and large enough for an upload
    /// at full speed (`bench/records/h200-16c/placements.json`).
    pub fn with_threads(threads: NonZero<usize>) -> Self {
        const TWO: NonZero<usize> = NonZero::new(2).expect("not zero");
        Self {
            chunk_bytes: const { NonZero::new(8 << 20).expect("not zero") },
            chunk_count: threads.saturating_mul(TWO),
            threads,
        }
    }
}

/// Page-locked chunks through which ordinary memory is uploaded: several threads
/// fill them while the device reads those that are full. They are taken once, with
/// the reservations that count them, and handed back when the ring is dropped.
///
/// ```
/// use std::num::NonZero;
/// use cuzk_budget::Budget;
/// use cuzk_pinned::{Fence, PinnedPool, StagingOptions, StagingRing};
///
/// /// The end of an upload. This one has ended when it is told of.
/// struct Uploaded;
/// impl Fence for Uploaded {
///     fn wait(&self) {}
///     fn has_passed(&self) -> bool {
///         true
///     }
/// }
///
/// let pool = PinnedPool::heap(Budget::new(1 << 20));
/// let options = StagingOptions {
///     chunk_bytes: NonZero::new(4096).unwrap(),
///     ..StagingOptions::with_threads(NonZero::new(2).unwrap())
/// };
/// let mut ring = StagingRing::new(&pool, options)?;
/// let source = vec![7; 10_000];
/// let mut device = vec![0; source.len()];
/// ring.copy(&source, |chunk, offset| {
///     device[offset..offset + chunk.len()].copy_from_slice(chunk);
///     Ok::<_, std::convert::Infallible>(Uploaded)
/// })?;
/// assert_eq!(device, source);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StagingRing {
    queues: Mutex<Queues>,
    /// Told of every change of the queues.
    changed: Condvar,
    chunk_bytes: usize,
    chunk_count: usize,
    threads: NonZero<usize>,
    is_page_locked: bool,
    held_bytes: u64,
}

/// Where the chunks are that no thread has.
#[derive(Default)]
struct Queues {
    /// To be filled, after their fences; the one that was uploaded first is in front.
    free: VecDeque<Chunk>,
    /// Filled, to be uploaded.
    full: VecDeque<Filled>,
    /// Where the next chunk begins in the source.
    next: usize,
    /// Nothing more is to be filled or uploaded.
    is_stopped: bool,
}

struct Chunk {
    buffer: PinnedBacking,
    /// Until when a device may read it.
    fence: Option<Box<dyn Fence>>,
}

struct Filled {
    chunk: Chunk,
    offset: usize,
    len: usize,
}

impl Chunk {
    fn wait(&mut self) {
        if let Some(fence) = &self.fence {
            fence.wait();
            self.fence = None;
        }
    }
}

impl Drop for StagingRing {
    /// Hands the chunks back, to be used by nobody before their fences.
    fn drop(&mut self) {
        let queues = self.queues.get_mut();
        let queues = queues.unwrap_or_else(PoisonError::into_inner);
        let full = queues.full.drain(..).map(|filled| filled.chunk);
        for Chunk { buffer, fence } in queues.free.drain(..).chain(full) {
            match fence {
                Some(fence) => buffer.release_after(fence),
                None => drop(buffer),
            }
        }
    }
}

impl StagingRing {
    /// Takes chunks from a pool that has them idle or has room for them now.
    ///
    /// # Errors
    /// As [`PinnedPool::try_acquire`].
    pub fn new(pool: &PinnedPool, options: StagingOptions) -> Result<Self, AcquireError> {
        let StagingOptions {
            chunk_bytes,
            chunk_count,
            threads,
        } = options;
        let acquired = pool.try_acquire(&AcquireRequest {
            buffers: &vec![chunk_bytes.get(); chunk_count.get()],
            bytes: 0,
            consumer: STAGING,
            wait: Wait::with_priority(Priority::NORMAL),
        })?;
        Ok(Self::from_buffers(acquired.buffers, threads))
    }

    /// With buffers as chunks, filled by so many threads. Of each buffer as many bytes
    /// are used as all have in one [copy range](PinnedBacking::copy_ranges).
    ///
    /// # Panics
    /// If there are none, or one is empty.
    pub fn from_buffers(
        buffers: impl IntoIterator<Item = PinnedBacking>,
        threads: NonZero<usize>,
    ) -> Self {
        let free: VecDeque<Chunk> = buffers
            .into_iter()
            .map(|buffer| Chunk {
                buffer,
                fence: None,
            })
            .collect();
        let usable = |chunk: &Chunk| chunk.buffer.copy_ranges().next().map_or(0, |r| r.len());
        let chunk_bytes = free.iter().map(usable).min().unwrap_or(0);
        assert!(chunk_bytes > 0, "chunks to copy through");
        Self {
            chunk_bytes,
            chunk_count: free.len(),
            threads,
            is_page_locked: free.iter().all(|chunk| chunk.buffer.is_page_locked()),
            held_bytes: free
                .iter()
                .map(|chunk| chunk.buffer.capacity() as u64)
                .sum(),
            changed: Condvar::new(),
            queues: Mutex::new(Queues {
                free,
                ..Queues::default()
            }),
        }
    }

    /// Whether all chunks are page-locked.
    pub fn is_page_locked(&self) -> bool {
        self.is_page_locked
    }

    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Number of chunks.
    pub fn chunk_count(&self) -> usize {
        self.chunk_count
    }

    /// Copies `source` into chunks, in parallel, and calls `start` on this thread for
    /// each that is full, with its place in the source, in bytes: every byte once, the
    /// chunks in no particular order. `start` begins an upload and returns the fence
    /// after which the chunk may be written again. Until that fence has passed the
    /// chunk is neither written nor handed back, also if this call ends early or the
    /// ring is dropped.
    ///
    /// It returns when the last upload has begun. Nobody reads `source` then any
    /// more; [`finish`](Self::finish) waits for the uploads.
    ///
    /// # Errors
    /// That of `start`, after which nothing more is copied. A `start` that fails or
    /// panics has seen to it that nothing reads its chunk any more.
    ///
    /// # Panics
    /// As `start` does. The chunks are in the ring then.
    pub fn copy<F, E>(
        &mut self,
        source: &[u8],
        mut start: impl FnMut(&[u8], usize) -> Result<F, E>,
    ) -> Result<(), E>
    where
        F: Fence + 'static,
    {
        {
            let mut queues = self.lock();
            (queues.next, queues.is_stopped) = (0, false);
        }
        let ring = &*self;
        let chunks = source.len().div_ceil(ring.chunk_bytes);
        let threads = ring.threads.get().min(chunks).min(ring.chunk_count);
        thread::scope(|scope| {
            let _stop = StopOnDrop(ring);
            let mut helpers = 0;
            for _ in 0..threads {
                // Where the machine has no more threads, fewer do the same work.
                let helper = thread::Builder::new().spawn_scoped(scope, || ring.fill_all(source));
                helpers += usize::from(helper.is_ok());
            }
            for _ in 0..chunks {
                let filled = match helpers {
                    0 => ring.fill_next(source),
                    _ => ring.take_full(),
                };
                let Some(Filled { chunk, offset, len }) = filled else {
                    // A helper panicked; the scope passes that on.
                    break;
                };
                let mut held = Held {
                    ring,
                    chunk: Some(chunk),
                };
                let chunk = held.chunk.as_mut().expect("put back when it is dropped");
                let fence = start(&chunk.buffer.as_bytes()[..len], offset)?;
                chunk.fence = Some(Box::new(fence));
            }
            Ok(())
        })
    }

    /// Waits until no upload reads a chunk any more.
    pub fn finish(&mut self) {
        let queues = self.queues.get_mut();
        let queues = queues.unwrap_or_else(PoisonError::into_inner);
        queues.free.iter_mut().for_each(Chunk::wait);
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills chunks until the source has ended or the copy is stopped.
    fn fill_all(&self, source: &[u8]) {
        // On a panic: nobody is to wait for a chunk that does not come.
        let stop = StopOnDrop(self);
        while let Some(filled) = self.fill_next(source) {
            let mut queues = self.lock();
            if queues.is_stopped {
                queues.free.push_back(filled.chunk);
                break;
            }
            queues.full.push_back(filled);
            drop(queues);
            self.changed.notify_all();
        }
        std::mem::forget(stop);
    }

    /// Fills the next free chunk with the next bytes.
    fn fill_next(&self, source: &[u8]) -> Option<Filled> {
        let (chunk, offset) = {
            let mut queues = self.lock();
            loop {
                if queues.is_stopped || queues.next >= source.len() {
                    return None;
                }
                if let Some(chunk) = queues.free.pop_front() {
                    let offset = queues.next;
                    queues.next += self.chunk_bytes;
                    break (chunk, offset);
                }
                queues = self.wait(queues);
            }
        };
        let mut held = Held {
            ring: self,
            chunk: Some(chunk),
        };
        let chunk = held.chunk.as_mut().expect("put back when it is dropped");
        chunk.wait();
        let part = &source[offset..source.len().min(offset + self.chunk_bytes)];
        chunk.buffer.as_bytes_mut()[..part.len()].copy_from_slice(part);
        let chunk = held.chunk.take()?;
        Some(Filled {
            chunk,
            offset,
            len: part.len(),
        })
    }

    /// Waits for a full chunk. `None` if the copy was stopped.
    fn take_full(&self) -> Option<Filled> {
        let mut queues = self.lock();
        loop {
            if let Some(filled) = queues.full.pop_front() {
                return Some(filled);
            }
            if queues.is_stopped {
                return None;
            }
            queues = self.wait(queues);
        }
    }

    fn wait<'a>(&self, queues: MutexGuard<'a, Queues>) -> MutexGuard<'a, Queues> {
        self.changed
            .wait(queues)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A chunk in somebody's hands: it goes back to the ring, whatever happens.
struct Held<'a> {
    ring: &'a StagingRing,
    chunk: Option<Chunk>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            self.ring.lock().free.push_back(chunk);
            self.ring.changed.notify_all();
        }
    }
}

/// Ends a copy: chunks that are full and not uploaded are free again, and nobody
/// waits any longer.
struct StopOnDrop<'a>(&'a StagingRing);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        let mut queues = self.0.lock();
        queues.is_stopped = true;
        while let Some(filled) = queues.full.pop_front() {
            queues.free.push_back(filled.chunk);
        }
        drop(queues);
        self.0.changed.notify_all();
    }
}

impl fmt::Debug for StagingRing {
    /// Never the contents: they may be witness data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagingRing")
            .field("chunk_bytes", &self.chunk_bytes)
            .field("chunk_count", &self.chunk_count)
            .field("threads", &self.threads)
            .field("is_page_locked", &self.is_page_locked)
            .finish_non_exhaustive()
    }
}
