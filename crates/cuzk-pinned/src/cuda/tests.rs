//! Refusals and errors with a registrar of the tests' own; with a device also
//! what the driver really does.

mod nodes;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, result};
use cuzk_budget::{Budget, Consumer, Priority, Wait};

use super::*;
use crate::{
    AcquireError, AcquireRequest, Backing, CudaError, Fence, PageLock, PageLocker, PinnedPool,
    PoolOptions, StagingOptions, StagingRing,
};

const THREADS: NonZero<usize> = NonZero::new(3).unwrap();
const OPTIONS: RegisterOptions = RegisterOptions {
    chunk_bytes: 4 * PAGE_BYTES,
    threads: THREADS,
    pages: Pages::Huge,
};

fn request(buffers: &[usize]) -> AcquireRequest<'_> {
    AcquireRequest {
        buffers,
        bytes: 0,
        consumer: Consumer("tests"),
        wait: Wait::with_priority(Priority::NORMAL),
    }
}

/// Keeps books instead of locking; one call of each kind may fail.
#[derive(Clone, Debug, Default)]
struct Books(Arc<Mutex<BooksState>>);

#[derive(Debug, Default)]
struct BooksState {
    locked: BTreeMap<usize, usize>,
    registered: usize,
    unregistered: usize,
    register_fails_at: usize,
    unregister_fails_at: usize,
}

impl Books {
    fn locked_bytes(&self) -> Vec<usize> {
        self.0.lock().unwrap().locked.values().copied().collect()
    }
}

impl PageLock for Books {
    unsafe fn lock(&self, start: NonNull<u8>, bytes: usize) -> Result<(), String> {
        let mut books = self.0.lock().unwrap();
        books.registered += 1;
        if books.registered == books.register_fails_at {
            return Err("refused by the test".to_owned());
        }
        let before = books.locked.insert(start.addr().get(), bytes);
        assert_eq!(before, None, "locked twice");
        Ok(())
    }

    unsafe fn unlock(&self, start: NonNull<u8>) -> Result<(), String> {
        let mut books = self.0.lock().unwrap();
        books.unregistered += 1;
        let was_locked = books.locked.remove(&start.addr().get());
        assert!(was_locked.is_some(), "nothing locked starts here");
        if books.unregistered == books.unregister_fails_at {
            return Err("not unlocked".to_owned());
        }
        Ok(())
    }
}

fn pool(books: &Books, budget: &Budget) -> PinnedPool {
    let backing = RegisteredBacking::with_lock(Box::new(books.clone()), OPTIONS).unwrap();
    PinnedPool::new(budget.clone(), backing, PoolOptions::STANDARD)
}

#[test]
fn a_buffer_is_locked_in_chunks_and_unlocked_whole() {
    let books = Books::default();
    let budget = Budget::new(1 << 30);
    let pool = pool(&books, &budget);
    let page = PAGE_BYTES;
    let mut acquired = pool.try_acquire(&request(&[10 * page - 1])).unwrap();
    assert!(pool.is_page_locked());
    let mut locked = books.locked_bytes();
    locked.sort_unstable();
    assert_eq!(locked, [2 * page, 4 * page, 4 * page]);
    assert_eq!(acquired.buffers[0].capacity(), 10 * page);
    assert!(acquired.buffers[0].as_bytes().iter().all(|&byte| byte == 0));
    acquired.buffers[0].as_bytes_mut().fill(7);
    drop(acquired);
    assert_eq!(books.locked_bytes().len(), 3, "idle buffers stay locked");
    assert_eq!(pool.trim(u64::MAX), 10 * page as u64);
    assert_eq!(books.locked_bytes(), []);
    assert_eq!(budget.usage().used_bytes, 0);
}

#[test]
fn a_refused_chunk_gives_everything_back_with_an_error_that_names_it() {
    for fails_at in 1..=3 {
        let books = Books::default();
        books.0.lock().unwrap().register_fails_at = fails_at;
        let budget = Budget::new(1 << 30);
        let pool = pool(&books, &budget);
        let asked = [9 * PAGE_BYTES];
        let error = pool.try_acquire(&request(&asked)).unwrap_err();
        let AcquireError::Backing { index: 0, source } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(source.backing, "registered");
        let place = format!("chunk {}, ", fails_at - 1);
        assert!(source.reason.starts_with(&place), "{error}");
        assert!(source.reason.ends_with("refused by the test"), "{error}");
        assert_eq!(books.locked_bytes(), []);
        assert_eq!(budget.usage().used_bytes, 0);
        assert_eq!(pool.stats().refusals, 1);
        pool.try_acquire(&request(&asked)).unwrap();
    }
}

#[test]
fn an_error_of_a_free_is_returned_by_the_next_allocation() {
    let books = Books::default();
    books.0.lock().unwrap().unregister_fails_at = 1;
    let pool = pool(&books, &Budget::new(1 << 30));
    drop(pool.try_acquire(&request(&[PAGE_BYTES])).unwrap());
    pool.trim(u64::MAX);
    let error = pool.try_acquire(&request(&[PAGE_BYTES])).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("an earlier free failed: not unlocked"),
        "{error}"
    );
    pool.try_acquire(&request(&[PAGE_BYTES])).unwrap();
}

#[test]
fn chunks_are_whole_pages_below_64_gib() {
    let made = |chunk_bytes| {
        let options = RegisterOptions {
            chunk_bytes,
            ..OPTIONS
        };
        RegisteredBacking::with_lock(Box::new(Books::default()), options).map(|_| ())
    };
    assert_eq!(made(PAGE_BYTES), Ok(()));
    assert_eq!(made((64 << 30) - PAGE_BYTES), Ok(()));
    for chunk_bytes in [0, 1, PAGE_BYTES + 1, 64 << 30, usize::MAX] {
        let error = made(chunk_bytes).unwrap_err();
        assert!(matches!(error, CudaError::ChunkBytes { .. }), "{error:?}");
        assert!(error.to_string().contains(&chunk_bytes.to_string()));
    }
}

#[test]
fn sizes_are_rounded_to_pages_and_odd_ones_refused() {
    let backing = RegisteredBacking::with_lock(Box::new(Books::default()), OPTIONS).unwrap();
    assert_eq!(backing.rounded(1), Some(PAGE_BYTES));
    assert_eq!(backing.rounded(PAGE_BYTES), Some(PAGE_BYTES));
    assert_eq!(backing.rounded(PAGE_BYTES + 1), Some(2 * PAGE_BYTES));
    assert_eq!(backing.rounded(isize::MAX as usize), None);
    assert_eq!(backing.rounded(usize::MAX), None);
    for bytes in [0, 1, PAGE_BYTES + 1] {
        assert_eq!(backing.allocate(bytes).unwrap_err().bytes, bytes);
    }
    let more_than_there_is = (1 << 62) - PAGE_BYTES;
    let error = backing.allocate(more_than_there_is).unwrap_err();
    assert_eq!(error.bytes, more_than_there_is);
}

#[test]
fn what_is_missing_is_named() {
    match driver_version() {
        Err(error) => {
            assert_eq!(error, CudaError::NoDriver);
            assert_eq!(open(0).map(|_| ()), Err(CudaError::NoDriver));
            assert!(error.to_string().contains("libcuda.so.1"));
        }
        Ok(version) => {
            let error = open(usize::MAX).map(|_| ()).unwrap_err();
            assert!(!matches!(error, CudaError::NoDriver), "{version}: {error}");
        }
    }
    let old = CudaError::OldDriver {
        version: 12_040,
        version_min: DRIVER_VERSION_MIN,
    };
    assert_eq!(
        old.to_string(),
        "the CUDA driver supports CUDA 12.4, 13.0 or newer is needed (driver r580 for 13.0)"
    );
}

/// The first device. Without one a test says that it is skipped, or fails if
/// one is required.
fn device() -> Option<Arc<CudaContext>> {
    match open(0) {
        Ok(context) => Some(context),
        Err(error) => {
            let is_required = std::env::var("CUZK_REQUIRE_GPU").is_ok_and(|value| value == "1");
            assert!(!is_required, "a GPU is required: {error}");
            println!("skipped: {error}");
            None
        }
    }
}

/// Uploads `bytes` in copies of at most `copy_bytes` and downloads them again.
fn round_trip(context: &CudaContext, bytes: &[u8], copy_bytes: usize) -> Vec<u8> {
    context.bind_to_thread().unwrap();
    let mut back = vec![0; bytes.len()];
    // SAFETY: device memory of this length, freed after copies that have ended.
    unsafe {
        let device = result::malloc_sync(bytes.len()).unwrap();
        for (at, piece) in bytes.chunks(copy_bytes).enumerate() {
            let place = device + (at * copy_bytes) as u64;
            result::memcpy_htod_sync(place, piece).unwrap();
        }
        result::memcpy_dtoh_sync(&mut back, device).unwrap();
        result::free_sync(device).unwrap();
    }
    back
}

fn fill_and_round_trip(
    context: &Arc<CudaContext>,
    backing: impl Backing + 'static,
    copy_bytes: usize,
) {
    let budget = Budget::new(1 << 30);
    let pool = PinnedPool::new(budget.clone(), backing, PoolOptions::STANDARD);
    // 8 MiB and a page: no power of two, and two thousand chunks of `OPTIONS`.
    let asked = [(8 << 20) + PAGE_BYTES, 1];
    let mut acquired = pool.try_acquire(&request(&asked)).unwrap();
    for (buffer, asked_bytes) in acquired.buffers.iter_mut().zip(asked) {
        assert_eq!(buffer.len(), asked_bytes);
        assert!(buffer.is_page_locked());
        assert!(buffer.as_bytes().iter().all(|&byte| byte == 0));
        for (byte, value) in buffer.as_bytes_mut().iter_mut().zip((0..251).cycle()) {
            *byte = value;
        }
        assert_eq!(
            round_trip(context, buffer.as_bytes(), copy_bytes),
            buffer.as_bytes()
        );
    }
    drop(acquired);
    pool.trim(u64::MAX);
    assert_eq!(budget.usage().used_bytes, 0);
}

#[test]
fn gpu_allocated_memory_round_trips() {
    if let Some(context) = device() {
        fill_and_round_trip(
            &context,
            CudaBacking::new(Arc::clone(&context), THREADS),
            usize::MAX,
        );
    }
}

/// The driver cuts small allocations from blocks of its own, not always at a page.
#[test]
fn gpu_small_allocations_begin_on_pages_and_do_not_overlap() {
    let Some(context) = device() else { return };
    let backing = CudaBacking::new(context, THREADS);
    let taken: Vec<_> = (1..=48)
        .cycle()
        .take(192)
        .map(|pages| {
            (
                backing.allocate(pages * PAGE_BYTES).unwrap(),
                pages * PAGE_BYTES,
            )
        })
        .collect();
    let mut ranges: Vec<_> = taken
        .iter()
        .map(|(start, bytes)| start.addr().get()..start.addr().get() + bytes)
        .collect();
    ranges.sort_by_key(|range| range.start);
    assert!(
        ranges
            .iter()
            .all(|range| range.start.is_multiple_of(PAGE_BYTES))
    );
    assert!(ranges.is_sorted_by(|left, right| left.end <= right.start));
    for (start, bytes) in taken {
        // SAFETY: allocated above, of this length, and freed once.
        unsafe { backing.free(start, bytes) };
    }
    // An error of one of the frees would come here.
    let last = backing.allocate(PAGE_BYTES).unwrap();
    // SAFETY: allocated above, of this length, and freed once.
    unsafe { backing.free(last, PAGE_BYTES) };
}

#[test]
fn gpu_registered_memory_round_trips_chunk_by_chunk() {
    if let Some(context) = device() {
        let backing = RegisteredBacking::new(Arc::clone(&context), OPTIONS).unwrap();
        fill_and_round_trip(&context, backing, OPTIONS.chunk_bytes);
    }
}

#[test]
fn gpu_a_refused_allocation_is_an_error_and_the_next_is_fine() {
    if let Some(context) = device() {
        let backing = CudaBacking::new(Arc::clone(&context), THREADS);
        let error = backing.allocate(1 << 60).unwrap_err();
        assert_eq!((error.backing, error.bytes), ("cuda", 1 << 60));
        assert!(error.reason.starts_with("CUDA_ERROR_"), "{error}");
        context.synchronize().unwrap();
        fill_and_round_trip(&context, backing, usize::MAX);
    }
}

/// An upload that has ended when it is told of.
struct Uploaded;

impl Fence for Uploaded {
    fn wait(&self) {}

    fn has_passed(&self) -> bool {
        true
    }
}

#[test]
fn gpu_heap_memory_locked_for_one_use_round_trips() {
    if let Some(context) = device() {
        let pool = PinnedPool::heap(Budget::new(1 << 30));
        let lock = DriverLock::new(Arc::clone(&context));
        let locker = Arc::new(PageLocker::new(lock, 512 * PAGE_BYTES));
        for _ in 0..2 {
            // No whole pages, and more than one chunk.
            let mut acquired = pool.try_acquire(&request(&[(8 << 20) + 5])).unwrap();
            let buffer = &mut acquired.buffers[0];
            for (byte, value) in buffer.as_bytes_mut().iter_mut().zip((0..251).cycle()) {
                *byte = value;
            }
            buffer.lock_pages(&locker).unwrap();
            for range in buffer.copy_ranges() {
                let bytes = &buffer.as_bytes()[range];
                assert_eq!(round_trip(&context, bytes, usize::MAX), bytes);
            }
        }
    }
}

#[test]
fn gpu_staged_memory_round_trips() {
    if let Some(context) = device() {
        let backing = CudaBacking::new(Arc::clone(&context), THREADS);
        let pool = PinnedPool::new(Budget::new(1 << 30), backing, PoolOptions::STANDARD);
        let options = StagingOptions {
            chunk_bytes: NonZero::new(1 << 20).unwrap(),
            ..StagingOptions::with_threads(THREADS)
        };
        let mut ring = StagingRing::new(&pool, options).unwrap();
        assert!(ring.is_page_locked());
        let source: Vec<u8> = (0..251).cycle().take((9 << 20) + 7).collect();
        let mut back = vec![0; source.len()];
        ring.copy(&source, |chunk, offset| {
            let arrived = round_trip(&context, chunk, usize::MAX);
            back[offset..offset + chunk.len()].copy_from_slice(&arrived);
            Ok::<_, CudaError>(Uploaded)
        })
        .unwrap();
        assert_eq!(back, source);
    }
}

/// Has the driver refuse the last chunk, which is locked already.
#[derive(Debug)]
struct Twice {
    driver: DriverLock,
    chunk_bytes: usize,
}

impl PageLock for Twice {
    unsafe fn lock(&self, start: NonNull<u8>, bytes: usize) -> Result<(), String> {
        // SAFETY: the caller's promise for the first call; the second breaks
        // no memory, it is refused; what the first locked is unlocked then.
        unsafe {
            self.driver.lock(start, bytes)?;
            if bytes == self.chunk_bytes {
                return Ok(());
            }
            let refused = self.driver.lock(start, bytes);
            self.driver.unlock(start)?;
            refused
        }
    }

    unsafe fn unlock(&self, start: NonNull<u8>) -> Result<(), String> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.driver.unlock(start) }
    }
}

#[test]
fn gpu_a_refused_registration_is_an_error_and_leaves_no_trace() {
    if let Some(context) = device() {
        let register = Twice {
            driver: DriverLock::new(Arc::clone(&context)),
            chunk_bytes: OPTIONS.chunk_bytes,
        };
        let backing = RegisteredBacking::with_lock(Box::new(register), OPTIONS).unwrap();
        let error = backing.allocate(9 * PAGE_BYTES).unwrap_err();
        assert!(error.reason.starts_with("chunk 2, "), "{error}");
        assert!(error.reason.contains("CUDA_ERROR_"), "{error}");
        context.synchronize().unwrap();
        context.check_err().unwrap();
        // Whole chunks are locked once and go through.
        let start = backing.allocate(8 * PAGE_BYTES).unwrap();
        // SAFETY: allocated just now.
        unsafe { backing.free(start, 8 * PAGE_BYTES) };
    }
}

#[test]
fn gpu_a_device_that_is_not_there_is_named() {
    if device().is_some() {
        let error = open(1_000_000).map(|_| ()).unwrap_err();
        assert!(matches!(error, CudaError::NoDevice { ordinal: 1_000_000, count } if count > 0));
    }
}
