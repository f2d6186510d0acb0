//! Memory that the driver allocates.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, result, sys};

use super::driver::reason;
use super::times::{BackingTimes, Spans};
use super::{PAGE_BYTES, whole_pages};
use crate::backing::Backing;
use crate::error::BackingError;
use crate::mapping::for_each_stripe;
use crate::page_lock::Trouble;

/// Page-locked memory of the driver's own allocation, locked for every device,
/// not write-combined.
///
/// Allocating and freeing synchronise the device: both belong to the start and
/// the end, not to a proof. An allocation of gigabytes takes seconds. An error
/// of a free is returned by the next allocation.
///
/// The driver cuts small allocations from larger blocks of its own, and may begin them
/// within a page: then one page more is allocated than is asked and counted.
#[derive(Debug)]
pub struct CudaBacking {
    context: Arc<CudaContext>,
    threads: NonZero<usize>,
    /// By address, how far behind the driver's start an allocation begins; none where
    /// they are the same.
    offsets: Mutex<BTreeMap<usize, usize>>,
    spans: Spans,
    trouble: Trouble,
}

impl CudaBacking {
    /// In a context, such as [`open`](super::open) gives. `threads` zero the
    /// memory.
    pub fn new(context: Arc<CudaContext>, threads: NonZero<usize>) -> Self {
        Self {
            context,
            threads,
            offsets: Mutex::default(),
            spans: Spans::default(),
            trouble: Trouble::default(),
        }
    }

    /// Time spent so far.
    pub fn times(&self) -> BackingTimes {
        self.spans.totals()
    }

    fn offsets(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `bytes` bytes of the driver's, wherever they begin.
    fn take(&self, bytes: usize) -> Result<NonNull<u8>, String> {
        self.context.bind_to_thread().map_err(reason)?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the context is current on this thread. The memory is written
        // before anybody reads it.
        let start = self
            .spans
            .allocate
            .time(|| unsafe { result::malloc_host(bytes, flags) });
        // The driver keeps no error of a refused allocation: there is nothing
        // to clear before the next call.
        let start = NonNull::new(start.map_err(reason)?.cast::<u8>());
        start.ok_or_else(|| "the driver gave a null pointer".to_owned())
    }

    /// `bytes` bytes that begin on a page.
    fn take_pages(&self, bytes: usize) -> Result<NonNull<u8>, String> {
        let start = self.take(bytes)?;
        if start.addr().get().is_multiple_of(PAGE_BYTES) {
            return Ok(start);
        }
        // SAFETY: taken above and used by nobody.
        unsafe { self.free(start, bytes) };
        let whole = bytes.checked_add(PAGE_BYTES);
        let start = self.take(whole.ok_or_else(|| "too long".to_owned())?)?;
        let offset = start.addr().get().next_multiple_of(PAGE_BYTES) - start.addr().get();
        // SAFETY: less than the page that was taken beside `bytes`.
        let page = unsafe { start.add(offset) };
        if offset > 0 {
            self.offsets().insert(page.addr().get(), offset);
        }
        Ok(page)
    }

    fn refuse(&self, bytes: usize, reason: String) -> BackingError {
        BackingError {
            backing: self.name(),
            bytes,
            reason,
        }
    }
}

// SAFETY: the driver's allocation has the size asked, belongs to no one else
// and may be used from any thread; it begins on a page and its bytes are
// zeroed before it is handed out.
unsafe impl Backing for CudaBacking {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn is_page_locked(&self) -> bool {
        true
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        whole_pages(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError> {
        self.trouble.report(self.name(), bytes)?;
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(self.refuse(bytes, "not a number of whole pages".to_owned()));
        }
        let start = self
            .take_pages(bytes)
            .map_err(|reason| self.refuse(bytes, reason))?;
        // SAFETY: the driver gave `bytes` bytes from `start`, which nobody else
        // uses yet; `MaybeUninit` asks nothing of what they hold.
        let memory = unsafe {
            std::slice::from_raw_parts_mut(start.cast::<MaybeUninit<u8>>().as_ptr(), bytes)
        };
        self.spans.touch.time(|| {
            for_each_stripe(memory, self.threads, |stripe| {
                stripe.fill(MaybeUninit::new(0));
            });
        });
        Ok(start)
    }

    unsafe fn free(&self, start: NonNull<u8>, _bytes: usize) {
        let offset = self.offsets().remove(&start.addr().get()).unwrap_or(0);
        let start = start.as_ptr().wrapping_sub(offset).cast::<c_void>();
        let freed = self.spans.free.time(|| {
            self.context.bind_to_thread()?;
            // SAFETY: the caller promises that `start` came from `allocate` and is
            // freed once; less the offset it is what `malloc_host` gave.
            unsafe { result::free_host(start) }
        });
        if let Err(error) = freed {
            self.trouble.record(reason(error));
        }
    }
}
