//! The device that is uploaded to, and plain page-locked memory.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cudarc::driver::sys::{CUdeviceptr, CUevent_flags};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys};
use cuzk_pinned::{Fence, PinnedBacking, cuda};

/// Bytes of one sample that is downloaded, and how many there are.
const SAMPLE_BYTES: usize = 4096;
const SAMPLE_COUNT: usize = 64;

/// Bytes between two looks at the clock. At the full rate of a pageable copy that is
/// every few milliseconds, which costs nothing beside the copy.
const PIECE_BYTES: usize = 32 << 20;

/// A device with memory to upload to and a stream to do it on.
pub(crate) struct Device {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    memory: DeviceMemory,
}

impl Device {
    pub(crate) fn open(bytes: usize) -> Result<Self> {
        let context = cuda::open(0)?;
        Ok(Self {
            stream: context.new_stream()?,
            memory: DeviceMemory::new(&context, bytes)?,
            context,
        })
    }

    /// Uploads `source` with one call and waits for it.
    pub(crate) fn upload(&self, source: &[u8]) -> Result<()> {
        // SAFETY: the copy has ended when `finish` returns, within the borrow.
        unsafe { self.queue(0, source) }?;
        self.finish()
    }

    /// Uploads a buffer with one call for each of its registrations, since no copy may
    /// cross two, and waits for it.
    pub(crate) fn upload_buffer(&self, buffer: &PinnedBacking) -> Result<()> {
        let bytes = buffer.as_bytes();
        let queued = buffer.copy_ranges().try_for_each(|range| {
            // SAFETY: the copies have ended when `finish` returns, within the borrow.
            unsafe { self.queue(range.start, &bytes[range]) }
        });
        let finished = self.finish();
        queued.and(finished)
    }

    /// Uploads `source` in pieces until it ends or the time is over; how many bytes.
    pub(crate) fn upload_until(&self, source: &[u8], until: Instant) -> Result<usize> {
        let mut uploaded = 0;
        for piece in source.chunks(PIECE_BYTES) {
            // SAFETY: the copy has ended when `finish` returns, within the borrow.
            let queued = unsafe { self.queue(uploaded, piece) };
            self.finish()?;
            queued?;
            uploaded += piece.len();
            if Instant::now() > until {
                break;
            }
        }
        Ok(uploaded)
    }

    /// Queues the upload of `source` to byte `offset`.
    ///
    /// # Safety
    /// `source` is neither freed nor written before the copy has ended.
    pub(crate) unsafe fn queue(&self, offset: usize, source: &[u8]) -> Result<()> {
        let end = offset.checked_add(source.len());
        ensure!(end.is_some_and(|end| end <= self.memory.bytes), "too long");
        self.context.bind_to_thread()?;
        let target = self.memory.start + offset as CUdeviceptr;
        // SAFETY: the target lies within the device's memory, checked above; the
        // caller keeps the source.
        unsafe { result::memcpy_htod_async(target, source, self.stream.cu_stream()) }?;
        Ok(())
    }

    /// Waits for all that was queued.
    pub(crate) fn finish(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// Zeroes the first `bytes`, so that the next upload is the one that is
    /// checked.
    pub(crate) fn clear(&self, bytes: usize) -> Result<()> {
        ensure!(bytes <= self.memory.bytes, "too long");
        self.context.bind_to_thread()?;
        // SAFETY: within the device's memory.
        unsafe { result::memset_d8_async(self.memory.start, 0, bytes, self.stream.cu_stream()) }?;
        self.finish()
    }

    /// Whether samples of the device's memory, the first and the last bytes
    /// among them, equal those of `source`.
    pub(crate) fn holds(&self, source: &[u8]) -> Result<bool> {
        self.context.bind_to_thread()?;
        let last = source.len() - SAMPLE_BYTES;
        let mut sample = vec![0; SAMPLE_BYTES];
        for index in 0..SAMPLE_COUNT {
            let offset = (last as u128 * index as u128 / (SAMPLE_COUNT as u128 - 1)) as usize;
            let from = self.memory.start + offset as CUdeviceptr;
            // SAFETY: the sample lies within what was uploaded from `source`.
            unsafe { result::memcpy_dtoh_sync(&mut sample, from) }?;
            if sample != source[offset..offset + SAMPLE_BYTES] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Name of the device and version of its driver.
    pub(crate) fn names(&self) -> Result<(String, String)> {
        let told = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        let is_version = |word: &&str| word.split('.').count() > 1 && word.parse::<f64>().is_err();
        let version = told
            .split_whitespace()
            .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
            .find(is_version);
        let driver = match version {
            Some(version) => version.to_owned(),
            None => {
                let cuda = cuda::driver_version()?;
                format!("CUDA {}.{}", cuda / 1000, cuda % 1000 / 10)
            }
        };
        Ok((self.context.name()?, driver))
    }
}

/// The end of what was queued before.
pub(crate) struct Uploaded(CudaEvent);

impl Uploaded {
    pub(crate) fn of(device: &Device) -> Result<Self> {
        // A thread that waits leaves its core to the others.
        let flags = CUevent_flags::CU_EVENT_BLOCKING_SYNC;
        let event = device.context.new_event(Some(flags))?;
        event.record(&device.stream)?;
        Ok(Self(event))
    }
}

impl Fence for Uploaded {
    fn wait(&self) {
        // An error is one of the stream, which `finish` and `holds` return too; a
        // failed device reads no memory.
        let _ = self.0.synchronize();
    }

    fn has_passed(&self) -> bool {
        self.0.is_complete()
    }
}

/// Memory of a device.
pub(crate) struct DeviceMemory {
    context: Arc<CudaContext>,
    pub(crate) start: CUdeviceptr,
    pub(crate) bytes: usize,
}

impl DeviceMemory {
    pub(crate) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self> {
        context.bind_to_thread()?;
        // SAFETY: written before it is read, by an upload or by `clear`.
        let start = unsafe { result::malloc_sync(bytes) }
            .with_context(|| format!("{bytes} bytes of device memory"))?;
        Ok(Self {
            context: Arc::clone(context),
            start,
            bytes,
        })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new`; whoever queued copies has waited for
            // them. An error leaves it to the end of the process.
            let _ = unsafe { result::free_sync(self.start) };
        }
    }
}

/// Page-locked memory straight from the driver: the reference.
pub(crate) struct PlainPinned {
    context: Arc<CudaContext>,
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory may be used from any thread, and is owned.
unsafe impl Sync for PlainPinned {}

impl PlainPinned {
    pub(crate) fn new(context: &Arc<CudaContext>, len: usize) -> Result<Self> {
        context.bind_to_thread()?;
        // SAFETY: zeroed below, before it is read.
        let start = unsafe { result::malloc_host(len, sys::CU_MEMHOSTALLOC_PORTABLE) }
            .with_context(|| format!("{len} bytes of page-locked memory"))?
            .cast::<u8>();
        // SAFETY: the driver gave `len` bytes.
        unsafe { std::ptr::write_bytes(start, 0, len) };
        Ok(Self {
            context: Arc::clone(context),
            start,
            len,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that this value owns.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for PlainPinned {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new`, and every upload from it has ended. An
            // error leaves it to the end of the process.
            let _ = unsafe { result::free_host(self.start.cast::<c_void>()) };
        }
    }
}
