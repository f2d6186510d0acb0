//! One device: its context, its three streams, its memory and its clock.
//!
//! A `Device` belongs to the thread that opened it. Everything it does is queued on one
//! of three streams: `upload`, for the columns of proofs, `keys`, for keys and index
//! lists, and `compute`. For each there is a thread that does nothing but wait for its
//! events.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::size_of_val;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::border::{self, Address, RawDevice, call};
use super::event::Event;
use crate::device::timebase;
use crate::device::waiter::{Passed, Waiter};
use crate::error::BackendError;

/// What the memory of a device is used for, shared with whoever asks.
#[derive(Debug, Default)]
pub(super) struct MemoryUse {
    /// Bytes of the arena.
    pub(super) arena_bytes: AtomicU64,
    /// Bytes of it that somebody has.
    pub(super) held_bytes: AtomicU64,
    /// Bytes that were allocated and not freed, and how often that was done.
    pub(super) allocated_bytes: AtomicU64,
    pub(super) allocations: AtomicU64,
    /// Page-locked allocations of the host.
    pub(super) host_allocations: AtomicU64,
    /// Bytes of keys' points that were brought.
    pub(super) key_bytes: AtomicU64,
    /// Set once the device fails every call: nothing works on it any more.
    pub(super) is_lost: AtomicBool,
}

/// An open device.
pub(super) struct Device {
    pub(super) context: Arc<CudaContext>,
    raw: *mut RawDevice,
    compute: sys::CUstream,
    upload: sys::CUstream,
    keys: sys::CUstream,
    /// For anchors alone: nothing else is ever queued on it.
    clock: sys::CUstream,
    /// The last one, once the device is open.
    anchor: RefCell<Option<Rc<Anchor>>>,
    /// For each lane, in the order of [`Lane::ALL`]; none before the device is open.
    waiters: Vec<Waiter<Arc<Event>>>,
    /// Events of fences, each used again when nobody has it any more.
    fences: RefCell<Vec<Arc<Event>>>,
    processors: u32,
    limit_bytes: u64,
    memory: Arc<MemoryUse>,
}

/// The error of a call of the driver.
pub(super) fn driver(call: &'static str) -> impl Fn(DriverError) -> BackendError {
    move |error| BackendError::Device {
        call,
        reason: error.error_string().map_or_else(
            |_| format!("error {}", error.0 as u32),
            |text| text.to_string_lossy().into_owned(),
        ),
    }
}

/// A moment of the device whose time on the host is known.
pub(super) struct Anchor {
    pub(super) event: Event,
    pub(super) at: Instant,
}

/// How often the first anchor is tried, for the time that is known best.
const ANCHOR_TRIES: usize = 5;

/// Which stream something is queued on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Upload,
    Keys,
    Compute,
}

impl Lane {
    const ALL: [Self; 3] = [Self::Upload, Self::Keys, Self::Compute];
}

impl Device {
    /// Opens the device of this number.
    pub(super) fn open(ordinal: usize, memory: Arc<MemoryUse>) -> Result<Self, BackendError> {
        let refused = |reason: String| BackendError::Device {
            call: "open the device",
            reason,
        };
        let context =
            cuzk_pinned::cuda::open(ordinal).map_err(|error| refused(error.to_string()))?;
        context
            .bind_to_thread()
            .map_err(driver("cuCtxSetCurrent"))?;
        let number = i32::try_from(ordinal).map_err(|_| refused(format!("no device {ordinal}")))?;
        let (mut raw, mut compute, mut processors) = (null_mut(), null_mut(), 0);
        call("cuzk_device_open", |message| {
            // SAFETY: the four places are live and written before the call returns.
            unsafe {
                border::cuzk_device_open(number, &mut raw, &mut compute, &mut processors, message)
            }
        })?;
        let mut device = Self {
            context,
            raw,
            compute: compute.cast(),
            upload: null_mut(),
            keys: null_mut(),
            clock: null_mut(),
            anchor: RefCell::default(),
            waiters: Vec::new(),
            fences: RefCell::default(),
            processors,
            limit_bytes: 0,
            memory,
        };
        for stream in [&mut device.upload, &mut device.keys, &mut device.clock] {
            *stream = result::stream::create(result::stream::StreamKind::NonBlocking)
                .map_err(driver("cuStreamCreate"))?;
        }
        for lane in Lane::ALL {
            let name = format!("cuzk-{lane:?}-{ordinal}").to_lowercase();
            device.waiters.push(Waiter::start(name)?);
        }
        // What others hold now, and the driver itself, cannot be had.
        let free = device.free_bytes()?;
        device.limit_bytes = free;
        Ok(device)
    }

    /// The handle beyond the border.
    pub(super) fn raw(&self) -> *mut RawDevice {
        self.raw
    }

    /// Number of multiprocessors.
    pub(super) fn processors(&self) -> u32 {
        self.processors
    }

    /// The driver's name for the device.
    pub(super) fn name(&self) -> String {
        self.context
            .name()
            .unwrap_or_else(|_| "unnamed device".to_owned())
    }

    /// The stream of a lane, as the border takes it.
    pub(super) fn stream(&self, lane: Lane) -> sys::CUstream {
        match lane {
            Lane::Upload => self.upload,
            Lane::Keys => self.keys,
            Lane::Compute => self.compute,
        }
    }

    /// Bytes that may still be allocated.
    pub(super) fn room_bytes(&self) -> u64 {
        self.limit_bytes
            .saturating_sub(self.memory.allocated_bytes.load(Ordering::Relaxed))
    }

    /// What its memory is used for.
    pub(super) fn memory(&self) -> &Arc<MemoryUse> {
        &self.memory
    }

    /// Bytes of its memory that no process has.
    pub(super) fn free_bytes(&self) -> Result<u64, BackendError> {
        let (free, _) = result::mem_get_info().map_err(driver("cuMemGetInfo"))?;
        Ok(free as u64)
    }

    /// Allocates device memory, which synchronises the device.
    pub(super) fn allocate(
        &self,
        what: &'static str,
        bytes: u64,
    ) -> Result<DeviceMemory, BackendError> {
        let refused = |free| BackendError::DeviceMemory {
            what,
            asked: bytes,
            free,
            limit: self.limit_bytes,
        };
        if bytes > self.room_bytes() {
            return Err(refused(self.room_bytes()));
        }
        let len = usize::try_from(bytes.max(1)).map_err(|_| refused(self.room_bytes()))?;
        // SAFETY: the context is current on this thread; the memory is written
        // before it is read.
        let start = unsafe { result::malloc_sync(len) }.map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                refused(result::mem_get_info().map_or(0, |(free, _)| free as u64))
            }
            _ => driver("cuMemAlloc")(error),
        })?;
        self.memory
            .allocated_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        self.memory.allocations.fetch_add(1, Ordering::Relaxed);
        Ok(DeviceMemory {
            start,
            bytes,
            context: Arc::clone(&self.context),
            memory: Arc::clone(&self.memory),
        })
    }

    /// Queues a copy to the device.
    ///
    /// # Safety
    /// `source` must stay as it is, and alive, until the copy has run.
    pub(super) unsafe fn copy_in<T>(
        &self,
        lane: Lane,
        to: Region,
        source: &[T],
    ) -> Result<(), BackendError> {
        if source.is_empty() {
            return Ok(());
        }
        assert!(
            size_of_val(source) as u64 <= to.bytes,
            "a copy beyond its region"
        );
        // SAFETY: the region holds the bytes (asserted); the caller keeps `source`.
        unsafe { result::memcpy_htod_async(to.start, source, self.stream(lane)) }
            .map_err(driver("cuMemcpyHtoDAsync"))
    }

    /// Queues a copy from the device.
    ///
    /// # Safety
    /// `to` must stay, and nobody may touch it, until the copy has run.
    pub(super) unsafe fn copy_back(
        &self,
        lane: Lane,
        to: &mut [u8],
        from: Region,
    ) -> Result<(), BackendError> {
        if to.is_empty() {
            return Ok(());
        }
        assert!(to.len() as u64 <= from.bytes, "a copy beyond its region");
        // SAFETY: the region holds the bytes (asserted); the caller keeps `to`.
        unsafe { result::memcpy_dtoh_async(to, from.start, self.stream(lane)) }
            .map_err(driver("cuMemcpyDtoHAsync"))
    }

    /// Copies from the device, and waits for that and all that was queued before,
    /// whatever fails.
    pub(super) fn copy_out<T: Plain>(
        &self,
        lane: Lane,
        to: &mut [T],
        from: Region,
    ) -> Result<(), BackendError> {
        if to.is_empty() {
            return Ok(());
        }
        assert!(
            size_of_val(to) as u64 <= from.bytes,
            "a copy beyond its region"
        );
        // SAFETY: the region holds the bytes (asserted), any of which make a `T`;
        // `to` is borrowed until the stream has been waited for.
        let queued = unsafe { result::memcpy_dtoh_async(to, from.start, self.stream(lane)) };
        let waited = self.wait(lane);
        queued.map_err(driver("cuMemcpyDtoHAsync")).and(waited)
    }

    /// Queues a copy from one place on the device to another of the same size.
    pub(super) fn copy_within(
        &self,
        lane: Lane,
        to: Region,
        from: Region,
    ) -> Result<(), BackendError> {
        assert_eq!(to.bytes, from.bytes, "a copy beyond its region");
        if to.bytes == 0 {
            return Ok(());
        }
        let (to, len) = (to.start, from.bytes as usize);
        // SAFETY: a region lies inside its allocation.
        unsafe { result::memcpy_dtod_async(to, from.start, len, self.stream(lane)) }
            .map_err(driver("cuMemcpyDtoDAsync"))
    }

    /// Queues a fill of `region` with a byte.
    pub(super) fn fill(&self, lane: Lane, region: Region, byte: u8) -> Result<(), BackendError> {
        if region.bytes == 0 {
            return Ok(());
        }
        // SAFETY: a region lies inside its allocation.
        unsafe {
            result::memset_d8_async(region.start, byte, region.bytes as usize, self.stream(lane))
        }
        .map_err(driver("cuMemsetD8Async"))
    }

    /// Waits until a lane is idle.
    pub(super) fn wait(&self, lane: Lane) -> Result<(), BackendError> {
        // SAFETY: the stream lives as long as the device.
        unsafe { result::stream::synchronize(self.stream(lane)) }
            .map_err(driver("cuStreamSynchronize"))
    }

    /// A fence behind all that is queued on a lane.
    pub(super) fn fence(&self, lane: Lane) -> Result<Passed, BackendError> {
        let event = self.fence_event()?;
        self.record(lane, &event)?;
        Ok(self.waiters[lane as usize].wait(event))
    }

    /// An event that nobody waits for.
    pub(super) fn fence_event(&self) -> Result<Arc<Event>, BackendError> {
        let mut fences = self.fences.borrow_mut();
        if let Some(idle) = fences.iter().find(|event| Arc::strong_count(event) == 1) {
            return Ok(Arc::clone(idle));
        }
        let event = Arc::new(self.event()?);
        fences.push(Arc::clone(&event));
        Ok(event)
    }

    /// Waits, beside others, for all that is queued on a lane.
    pub(super) async fn passed(&self, lane: Lane) -> Result<(), BackendError> {
        let fence = self.fence(lane)?;
        fence.await.unwrap_or(Err(BackendError::Lost))
    }

    /// Waits, beside others, for all lanes, after something failed: what was queued may
    /// still use the memory of a job. A device that cannot even do that is lost.
    pub(super) async fn settle(&self) {
        for lane in Lane::ALL {
            if self.passed(lane).await.is_err() && self.wait(lane).is_err() {
                self.memory.is_lost.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Waits for all lanes, and for nobody else.
    pub(super) fn wait_all(&self) {
        for lane in Lane::ALL {
            // After an error of the device nothing is under way.
            let _ = self.wait(lane);
        }
    }

    /// A new event.
    pub(super) fn event(&self) -> Result<Event, BackendError> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC)
            .map_err(driver("cuEventCreate"))?;
        Ok(Event {
            event,
            context: Arc::clone(&self.context),
        })
    }

    /// An anchor for what is queued from now on. Where a new one is due, it is waited for:
    /// microseconds, whatever else the device does.
    pub(super) fn anchor(&self) -> Result<Rc<Anchor>, BackendError> {
        let last = self.anchor.borrow().clone();
        let next = match last {
            Some(last) if last.at.elapsed() < timebase::ANCHOR_AGE_MAX => return Ok(last),
            Some(last) => {
                let (event, seen) = self.seen()?;
                let ms = event.since_ms(&last.event)?;
                let at = timebase::chained(last.at, ms, seen);
                Rc::new(Anchor { event, at })
            }
            None => {
                let mut tries = (0..ANCHOR_TRIES).map(|_| self.seen());
                let first = tries.next().expect("at least one")?;
                let (event, [earliest, latest]) = tries.try_fold(first, |best, next| {
                    let next = next?;
                    let width = |seen: &[Instant; 2]| seen[1] - seen[0];
                    let is_better = width(&next.1) < width(&best.1);
                    Ok::<_, BackendError>(if is_better { next } else { best })
                })?;
                let at = earliest + (latest - earliest) / 2;
                Rc::new(Anchor { event, at })
            }
        };
        *self.anchor.borrow_mut() = Some(Rc::clone(&next));
        Ok(next)
    }

    /// An event that has passed, and two moments between which it did.
    fn seen(&self) -> Result<(Event, [Instant; 2]), BackendError> {
        let event = self.event()?;
        let before = Instant::now();
        // SAFETY: both live.
        unsafe { result::event::record(event.event, self.clock) }
            .map_err(driver("cuEventRecord"))?;
        Event::wait(&event)?;
        Ok((event, [before, Instant::now()]))
    }

    /// Queues an event.
    pub(super) fn record(&self, lane: Lane, event: &Event) -> Result<(), BackendError> {
        // SAFETY: both live.
        unsafe { result::event::record(event.event, self.stream(lane)) }
            .map_err(driver("cuEventRecord"))
    }

    /// Lets a lane go on only after an event.
    pub(super) fn follow(&self, lane: Lane, event: &Event) -> Result<(), BackendError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both live.
        unsafe { result::stream::wait_event(self.stream(lane), event.event, flags) }
            .map_err(driver("cuStreamWaitEvent"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // A drop has nobody to report to, and after an error of the device every
        // call fails.
        let _ = self.context.bind_to_thread();
        self.wait_all();
        self.waiters.clear();
        for stream in [self.upload, self.keys, self.clock] {
            if !stream.is_null() {
                // SAFETY: created by `open`, idle, and used by nobody after this.
                let _ = unsafe { result::stream::destroy(stream) };
            }
        }
        let _ = call("cuzk_device_close", |message| {
            // SAFETY: opened by `open` and closed once.
            unsafe { border::cuzk_device_close(self.raw, message) }
        });
    }
}

/// A type of which any bytes are a value.
///
/// # Safety
/// That must be so.
pub(super) unsafe trait Plain {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers.
unsafe impl Plain for u8 {}

/// An allocation on the device, freed when dropped.
pub(super) struct DeviceMemory {
    start: sys::CUdeviceptr,
    bytes: u64,
    context: Arc<CudaContext>,
    memory: Arc<MemoryUse>,
}

impl DeviceMemory {
    /// All of it.
    pub(super) fn region(&self) -> Region {
        Region {
            start: self.start,
            bytes: self.bytes,
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // As in `Device::drop`, an error has nobody to hear it.
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `Device::allocate` and freed once; freeing waits
        // for what the device still does.
        let _ = unsafe { result::free_sync(self.start) };
        self.memory
            .allocated_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) start: sys::CUdeviceptr,
    bytes: u64,
}

impl Region {
    /// A region of no device, to be divided and not used.
    #[cfg(test)]
    pub(super) fn pretended(bytes: u64) -> Self {
        Self { start: 0, bytes }
    }

    /// Its length.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its address, as the border takes it.
    pub(super) fn address(&self) -> Address {
        self.start as usize as *mut c_void
    }

    /// The part from `from` on, `bytes` long.
    ///
    /// # Panics
    /// If it does not lie inside.
    pub(super) fn part(&self, from: u64, bytes: u64) -> Self {
        let end = from
            .checked_add(bytes)
            .expect("lengths on a device fit in 64 bits");
        assert!(
            end <= self.bytes,
            "a part of {bytes} bytes at {from} of {}",
            self.bytes
        );
        Self {
            start: self.start + from,
            bytes,
        }
    }
}
