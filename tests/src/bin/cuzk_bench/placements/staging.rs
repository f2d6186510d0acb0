//! Heap memory through page-locked pieces to the device, copy and upload
//! overlapped.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;
use cuzk_pinned::PinnedBacking;

use super::device::Device;

/// Bytes copied and uploaded at once. Small enough for the copies to overlap
/// the uploads at 1 GiB, large enough for one upload to run at full speed.
pub(crate) const PIECE_BYTES: usize = 8 << 20;

/// Pieces of one thread: while one is uploaded the other is filled.
pub(crate) const PIECES_PER_THREAD: usize = 2;

/// Pieces and the threads that fill them.
pub(crate) struct Staging {
    workers: Vec<Vec<Piece>>,
}

struct Piece {
    buffer: PinnedBacking,
    /// Has passed when the upload from the buffer has ended.
    uploaded: CudaEvent,
}

impl Staging {
    /// With the buffers of a pool, [`PIECES_PER_THREAD`] of each thread.
    pub(crate) fn new(device: &Device, buffers: Vec<PinnedBacking>) -> Result<Self> {
        let mut workers = Vec::new();
        let mut pieces = Vec::new();
        for buffer in buffers {
            // A thread that waits leaves its core to the others.
            let flags = CUevent_flags::CU_EVENT_BLOCKING_SYNC;
            let uploaded = device.context.new_event(Some(flags))?;
            pieces.push(Piece { buffer, uploaded });
            if pieces.len() == PIECES_PER_THREAD {
                workers.push(std::mem::take(&mut pieces));
            }
        }
        Ok(Self { workers })
    }

    /// Uploads `source` and waits for it.
    pub(crate) fn upload(&mut self, device: &Device, source: &[u8]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let copied = thread::scope(|scope| {
            let threads: Vec<_> = self
                .workers
                .iter_mut()
                .map(|pieces| scope.spawn(|| stage(device, source, &next, pieces)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                let joined = thread.join();
                joined.unwrap_or_else(|_| Err(anyhow!("a staging thread panicked")))
            })
        });
        // Also after an error: nothing is uploaded any more when this returns.
        let finished = device.finish();
        copied.and(finished)
    }
}

/// One thread: takes the next part of the source, copies it into its next
/// piece, queues the upload.
fn stage(device: &Device, source: &[u8], next: &AtomicUsize, pieces: &mut [Piece]) -> Result<()> {
    for turn in 0.. {
        let offset = next.fetch_add(PIECE_BYTES, Ordering::Relaxed);
        if offset >= source.len() {
            break;
        }
        let part = &source[offset..source.len().min(offset + PIECE_BYTES)];
        let piece = &mut pieces[turn % PIECES_PER_THREAD];
        piece.uploaded.synchronize()?;
        let staged = &mut piece.buffer.as_bytes_mut()[..part.len()];
        staged.copy_from_slice(part);
        // SAFETY: the piece is written again only after its event, and dropped
        // only after `upload`, which waits for the stream.
        unsafe { device.queue(offset, staged) }?;
        piece.uploaded.record(&device.stream)?;
    }
    Ok(())
}

/// Copies within host memory, with so many threads.
pub(crate) fn copy(target: &mut [u8], source: &[u8], threads: usize) {
    let parts = Mutex::new(
        target
            .chunks_mut(PIECE_BYTES)
            .zip(source.chunks(PIECE_BYTES)),
    );
    in_parallel(threads, || {
        let part = parts.lock().expect("no thread panics").next();
        part.map(|(target, source)| target.copy_from_slice(source))
    });
}

/// Fills memory with numbers that differ by place and `seed`, and are not zero.
pub(crate) fn fill(target: &mut [u8], seed: u64, threads: usize) {
    let parts = Mutex::new(target.chunks_mut(PIECE_BYTES).enumerate());
    in_parallel(threads, || {
        let part = parts.lock().expect("no thread panics").next();
        part.map(|(index, part)| {
            let mut value = (seed << 40) + index as u64;
            for word in part.chunks_exact_mut(8) {
                value = value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                word.copy_from_slice(&(value | 1).to_le_bytes());
            }
        })
    });
}

/// Calls `step` from so many threads until it has nothing more to do.
fn in_parallel(threads: usize, step: impl Fn() -> Option<()> + Sync) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| while step().is_some() {});
        }
    });
}
