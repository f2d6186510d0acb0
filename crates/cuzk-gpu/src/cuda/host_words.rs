//! Page-locked words of the host.

use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::{CudaContext, result};

use super::device::{Device, Lane, Region, driver};
use crate::error::BackendError;

/// Words of page-locked host memory, from and to which copies run while the thread goes
/// on: a copy of any other memory is waited for by the driver.
pub(super) struct HostWords {
    start: *mut u64,
    len: usize,
    context: Arc<CudaContext>,
}

impl HostWords {
    /// `len` words, all zero.
    pub(super) fn new(device: &Device, len: usize) -> Result<Self, BackendError> {
        let bytes = len.max(1) * size_of::<u64>();
        // SAFETY: the device's context is current on its thread.
        let start = unsafe { result::malloc_host(bytes, 0) }.map_err(driver("cuMemHostAlloc"))?;
        let allocations = &device.memory().host_allocations;
        allocations.fetch_add(1, Ordering::Relaxed);
        // SAFETY: so many bytes were allocated just now.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        Ok(Self {
            start: start.cast(),
            len,
            context: Arc::clone(&device.context),
        })
    }

    /// Number of words.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The words, when nothing that was queued writes them any more.
    pub(super) fn words(&self) -> &[u64] {
        // SAFETY: the memory holds `len` words, of which any bytes are values.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The words, to be written when nothing that was queued uses them any more.
    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Queues a copy of `from` to the words from `at` on.
    ///
    /// # Safety
    /// Nobody touches these words, and they stay, until the copy has run.
    pub(super) unsafe fn fetch(
        &self,
        device: &Device,
        lane: Lane,
        at: usize,
        from: Region,
    ) -> Result<(), BackendError> {
        let bytes = from.bytes() as usize;
        let end = at * size_of::<u64>() + bytes;
        assert!(
            end <= self.len * size_of::<u64>(),
            "a copy beyond the host's words"
        );
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the words hold the bytes (asserted), the caller keeps them, and the
        // region lies in its allocation.
        unsafe {
            let to = std::slice::from_raw_parts_mut(self.start.add(at).cast::<u8>(), bytes);
            result::memcpy_dtoh_async(to, from.start, device.stream(lane))
        }
        .map_err(driver("cuMemcpyDtoHAsync"))
    }
}

impl Drop for HostWords {
    fn drop(&mut self) {
        // As in `Device::drop`, an error has nobody to hear it.
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `new` and freed once; whoever queued a copy has waited
        // for it.
        let _ = unsafe { result::free_host(self.start.cast()) };
    }
}
