//! Points in the work of a device's streams.

use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};
use cuzk_pinned::Fence;

use super::device::driver;
use crate::device::waiter::Passes;
use crate::error::BackendError;

/// A point in a stream's work, with the time it was passed. Any thread may wait for
/// it: it makes the device's context current there first.
pub(super) struct Event {
    pub(super) event: sys::CUevent,
    pub(super) context: Arc<CudaContext>,
}

impl Event {
    /// Waits until the event has passed.
    pub(super) fn wait(&self) -> Result<(), BackendError> {
        let bound = self.context.bind_to_thread();
        // Whatever became of that: the device's own thread has its context already, and
        // memory is used again after this.
        // SAFETY: it lives.
        let waited = unsafe { result::event::synchronize(self.event) };
        bound
            .map_err(driver("cuCtxSetCurrent"))
            .and(waited.map_err(driver("cuEventSynchronize")))
    }

    /// Milliseconds from `earlier` to this; both have passed.
    pub(super) fn since_ms(&self, earlier: &Event) -> Result<f64, BackendError> {
        // SAFETY: both live.
        let elapsed = unsafe { result::event::elapsed(earlier.event, self.event) };
        elapsed.map(f64::from).map_err(driver("cuEventElapsedTime"))
    }
}

// SAFETY: an event is used through the driver, which takes it from any thread whose
// context is current; each use makes it so.
unsafe impl Send for Event {}
// SAFETY: as above; the driver takes it from several threads at the same time.
unsafe impl Sync for Event {}

impl Passes for Arc<Event> {
    fn wait(&self) -> Result<(), BackendError> {
        Event::wait(self)
    }
}

impl Fence for Event {
    fn wait(&self) {
        // After an error of the device it runs nothing any more.
        let _ = Event::wait(self);
    }

    fn has_passed(&self) -> bool {
        if self.context.bind_to_thread().is_err() {
            return false;
        }
        // SAFETY: it lives.
        match unsafe { result::event::query(self.event) } {
            Ok(()) => true,
            Err(error) => !matches!(
                error.0,
                sys::CUresult::CUDA_ERROR_NOT_READY | sys::CUresult::CUDA_ERROR_INVALID_CONTEXT
            ),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: created by `Device::event`, destroyed once.
        let _ = unsafe { result::event::destroy(self.event) };
    }
}
