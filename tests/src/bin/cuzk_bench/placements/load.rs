//! What goes on beside an upload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Result, anyhow, ensure};
use cudarc::driver::{CudaContext, result};

use super::device::{DeviceMemory, PlainPinned};

/// Bytes that one copy of the traffic moves, on the device and over the bus.
const DEVICE_COPY_BYTES: usize = 1 << 30;
const UPLOAD_BYTES: usize = 256 << 20;

/// Copies queued at once, so that the stream is never empty.
const COPIES_QUEUED: usize = 8;

/// Bytes of each of the three columns that a writing thread fills in turn.
const COLUMN_BYTES: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Nothing.
    None,
    /// Copies within the device on another stream.
    DeviceCopies,
    /// Uploads on another stream.
    Uploads,
    /// So many threads that write columns as synthesis does.
    Writers(usize),
}

impl Load {
    pub(crate) fn describe(self) -> String {
        match self {
            Self::None => "alone".to_owned(),
            Self::DeviceCopies => "beside copies within the device".to_owned(),
            Self::Uploads => "beside another upload stream".to_owned(),
            Self::Writers(count) => format!("beside {count} threads that write columns"),
        }
    }

    pub(crate) fn start(self, context: &Arc<CudaContext>) -> Result<Running> {
        let stop = Arc::new(AtomicBool::new(false));
        let moved_bytes = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        let thread_count = match self {
            Self::None => 0,
            Self::DeviceCopies | Self::Uploads => 1,
            Self::Writers(count) => count,
        };
        for index in 0..thread_count {
            let (stop, moved_bytes) = (Arc::clone(&stop), Arc::clone(&moved_bytes));
            let context = Arc::clone(context);
            threads.push(std::thread::spawn(move || match self {
                Self::None => Ok(()),
                Self::DeviceCopies => copy_on_device(&context, &stop, &moved_bytes),
                Self::Uploads => upload(&context, &stop, &moved_bytes),
                Self::Writers(_) => {
                    write_columns(index as u64, &stop, &moved_bytes);
                    Ok(())
                }
            }));
        }
        let running = Running {
            stop,
            moved_bytes,
            threads,
        };
        // Memory is touched and the first bytes have moved when it counts.
        while thread_count > 0 && running.moved_bytes.load(Ordering::Relaxed) == 0 {
            ensure!(
                !running.threads.iter().any(JoinHandle::is_finished),
                "the load ended before it began"
            );
            std::thread::yield_now();
        }
        Ok(running)
    }
}

/// A load until it is stopped.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    moved_bytes: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Running {
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| anyhow!("a load panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Running {
    /// After an error elsewhere: the threads end by themselves.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn copy_on_device(
    context: &Arc<CudaContext>,
    stop: &AtomicBool,
    moved_bytes: &AtomicU64,
) -> Result<()> {
    let from = DeviceMemory::new(context, DEVICE_COPY_BYTES)?;
    let to = DeviceMemory::new(context, DEVICE_COPY_BYTES)?;
    let stream = context.new_stream()?;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..COPIES_QUEUED {
            // SAFETY: both are of this length and outlive the copies, which
            // have ended when `synchronize` returns.
            unsafe {
                result::memcpy_dtod_async(to.start, from.start, to.bytes, stream.cu_stream())
            }?;
        }
        stream.synchronize()?;
        moved_bytes.fetch_add((COPIES_QUEUED * to.bytes) as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn upload(context: &Arc<CudaContext>, stop: &AtomicBool, moved_bytes: &AtomicU64) -> Result<()> {
    let from = PlainPinned::new(context, UPLOAD_BYTES)?;
    let to = DeviceMemory::new(context, UPLOAD_BYTES)?;
    let stream = context.new_stream()?;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..COPIES_QUEUED {
            // SAFETY: both are of this length and outlive the copies, which
            // have ended when `synchronize` returns.
            unsafe { result::memcpy_htod_async(to.start, from.bytes(), stream.cu_stream()) }?;
        }
        stream.synchronize()?;
        moved_bytes.fetch_add((COPIES_QUEUED * to.bytes) as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Appends scalars of four words to three columns, with some multiplications
/// in between, again and again.
fn write_columns(seed: u64, stop: &AtomicBool, moved_bytes: &AtomicU64) {
    let mut columns = vec![vec![[seed; 4]; COLUMN_BYTES / 32]; 3];
    let mut value = seed | 1;
    while !stop.load(Ordering::Relaxed) {
        let [a, b, c] = columns.as_mut_slice() else {
            return;
        };
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            for target in [a, b, c] {
                for word in target.iter_mut() {
                    value = value.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ (value >> 29);
                    *word = value;
                }
            }
        }
        std::hint::black_box(&mut columns);
        moved_bytes.fetch_add(3 * COLUMN_BYTES as u64, Ordering::Relaxed);
    }
}
