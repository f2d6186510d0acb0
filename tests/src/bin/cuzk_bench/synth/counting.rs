//! What a piece of work costs beside time: allocations, the most bytes that it had
//! allocated at once, and instructions where the system counts them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Off while anything is timed: who allocates most would be slowed most.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes of what was moved, or might have been, to a larger place.
static REALLOCATED_BYTES: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);
static PEAK_BYTES: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, counted.
struct Counting;

impl Counting {
    fn add(allocations: u64, bytes: i64) {
        if IS_COUNTING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
            let now = BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
            PEAK_BYTES.fetch_max(now, Ordering::Relaxed);
        }
    }
}

// SAFETY: every call goes to the system's allocator as it came, and its answer back.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::add(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract, which is the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::add(0, -(layout.size() as i64));
        // SAFETY: the caller keeps the contract, which is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        Self::add(1, new_size as i64 - layout.size() as i64);
        if IS_COUNTING.load(Ordering::Relaxed) {
            REALLOCATED_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract, which is the system's.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// What a piece of work cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Allocations and reallocations.
    pub(crate) allocations: u64,
    /// Bytes that reallocations moved, or might have.
    pub(crate) reallocated_bytes: u64,
    /// The most bytes that it had allocated at once.
    pub(crate) peak_bytes: u64,
    /// Bytes that what it gave still has allocated.
    pub(crate) held_bytes: u64,
    /// Instructions outside of the system, of all threads that it started.
    pub(crate) instructions: Option<u64>,
}

/// Runs a piece of work that is not timed, and counts.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let instructions = Instructions::start();
    for counter in [&BYTES, &PEAK_BYTES] {
        counter.store(0, Ordering::Relaxed);
    }
    for counter in [&ALLOCATIONS, &REALLOCATED_BYTES] {
        counter.store(0, Ordering::Relaxed);
    }
    IS_COUNTING.store(true, Ordering::Relaxed);
    let done = work();
    IS_COUNTING.store(false, Ordering::Relaxed);
    let cost = Cost {
        allocations: ALLOCATIONS.load(Ordering::Relaxed),
        reallocated_bytes: REALLOCATED_BYTES.load(Ordering::Relaxed),
        peak_bytes: PEAK_BYTES.load(Ordering::Relaxed).max(0) as u64,
        held_bytes: BYTES.load(Ordering::Relaxed).max(0) as u64,
        instructions: instructions.and_then(Instructions::stop),
    };
    (done, cost)
}

/// Time that the processors have spent on this process, of all its threads; none where the
/// system does not tell.
pub(crate) fn processor_time() -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec`, which outlives the call.
    let told = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
    (told == 0).then(|| Duration::new(seconds, nanoseconds))
}

/// The kernel's counter of this thread and those that it starts.
struct Instructions(File);

/// `perf_event_attr` of the kernel's interface, up to its first extension.
#[repr(C)]
struct Event {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    read: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    address: u64,
}

impl Instructions {
    const HARDWARE: u32 = 0;
    const INSTRUCTIONS: u64 = 1;
    const INHERIT: u64 = 1 << 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

    /// None where the system or the machine has no such counter.
    fn start() -> Option<Self> {
        let event = Event {
            kind: Self::HARDWARE,
            size: size_of::<Event>() as u32,
            config: Self::INSTRUCTIONS,
            period: 0,
            sample: 0,
            read: 0,
            flags: Self::INHERIT | Self::EXCLUDE_KERNEL | Self::EXCLUDE_HYPERVISOR,
            wakeup: 0,
            breakpoint: 0,
            address: 0,
        };
        let (this_thread, any_core, no_group, no_flags) = (0, -1, -1, 0_u64);
        // SAFETY: the kernel reads `size` bytes of the event, which outlives the call.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const event,
                this_thread,
                any_core,
                no_group,
                no_flags,
            )
        };
        let descriptor = i32::try_from(descriptor).ok().filter(|&fd| fd >= 0)?;
        // SAFETY: the call gave this descriptor to us, and nobody else has it.
        Some(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    fn stop(mut self) -> Option<u64> {
        let mut count = [0; 8];
        self.0.read_exact(&mut count).ok()?;
        Some(u64::from_ne_bytes(count))
    }
}
