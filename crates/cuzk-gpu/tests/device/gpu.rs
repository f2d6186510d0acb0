//! The first device: backends on it, and proofs that are made or refused there.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::{CudaContext, result};
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_gpu::cuda::{CudaBackend, CudaJob};
use cuzk_gpu::{BackendError, DeviceBuffers, DeviceOptions, Pending};
use cuzk_pinned::cuda::{RegisterOptions, RegisteredBacking};
use cuzk_pinned::{AcquireRequest, PinnedPool, PoolOptions, StagingRing};

use crate::case::bytes;

const THREADS: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// Small, so that keys and columns of small circuits take several turns.
const STAGING_BYTES: usize = 1 << 14;
const CHUNK_BYTES: usize = 1 << 12;
/// Of the device, for one backend.
pub(crate) const ARENA_BYTES: u64 = 256 << 20;
/// Longest that any proof here may take, by far.
const WAIT_MAX: Duration = Duration::from_secs(60);

static TURN: Mutex<()> = Mutex::new(());

/// The device, and page-locked memory for backends on it.
pub(crate) struct Gpu {
    context: Arc<CudaContext>,
    pool: PinnedPool,
    _turn: MutexGuard<'static, ()>,
}

impl Gpu {
    /// The first device once no other test uses it; `None` where there is none and none
    /// is required.
    pub(crate) fn find() -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        match cuzk_pinned::cuda::open(0) {
            Ok(context) => {
                let options = RegisterOptions::with_threads(THREADS);
                let backing = RegisteredBacking::new(Arc::clone(&context), options);
                let backing = backing.expect("options that it offers");
                Some(Self {
                    pool: PinnedPool::new(Budget::new(1 << 30), backing, PoolOptions::STANDARD),
                    context,
                    _turn: turn,
                })
            }
            Err(error) => {
                let required = std::env::var("CUZK_REQUIRE_GPU").is_ok_and(|value| value == "1");
                assert!(!required, "{error}");
                println!("skipped: {error}");
                None
            }
        }
    }

    /// Page-locked memory of a backend, columns' chunks included.
    pub(crate) fn buffers(&self) -> DeviceBuffers {
        self.buffers_of(STAGING_BYTES, CHUNK_BYTES)
    }

    fn buffers_of(&self, staging: usize, chunk: usize) -> DeviceBuffers {
        let request = AcquireRequest {
            buffers: &[staging, staging, chunk, chunk, chunk],
            bytes: 0,
            consumer: Consumer("staging"),
            wait: Wait::with_priority(Priority::NORMAL),
        };
        let acquired = self.pool.try_acquire(&request).expect("a budget with room");
        let mut buffers = acquired.buffers.into_iter();
        let mut next = || buffers.next().expect("as many as asked");
        DeviceBuffers {
            keys: [next(), next()],
            columns: Some(StagingRing::from_buffers([next(), next(), next()], THREADS)),
            host_keys: None,
        }
    }

    /// Opens a backend with these buffers.
    pub(crate) fn open_with(&self, buffers: DeviceBuffers) -> Result<CudaBackend, BackendError> {
        CudaBackend::start(options(ARENA_BYTES), buffers)
    }

    /// Opens a backend for large circuits, which must go well.
    pub(crate) fn open_large(&self, arena_bytes: u64) -> CudaBackend {
        let buffers = self.buffers_of(1 << 20, 1 << 20);
        CudaBackend::start(options(arena_bytes), buffers).expect("a device that works")
    }

    /// Opens a backend, which must go well.
    pub(crate) fn open(&self) -> CudaBackend {
        self.open_with(self.buffers()).expect("a device that works")
    }

    /// Opens a backend on which keys come in pieces, for two proofs a pass, and assignments
    /// after the transforms; it must go well.
    pub(crate) fn open_late(&self) -> CudaBackend {
        let options = DeviceOptions {
            is_assignment_late: true,
            key_batch: 2,
            ..options(ARENA_BYTES)
        };
        CudaBackend::start(options, self.buffers()).expect("a device that works")
    }

    /// Bytes that the driver has free.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.context.bind_to_thread().expect("a live context");
        result::mem_get_info().expect("a live context").0 as u64
    }
}

fn options(arena_bytes: u64) -> DeviceOptions {
    DeviceOptions {
        memory_bytes_max: Some(arena_bytes),
        ..DeviceOptions::new(0, THREADS, 4)
    }
}

/// Makes a proof. Whatever becomes of it, its columns come back and it ends.
pub(crate) fn outcome(backend: &CudaBackend, job: CudaJob) -> Result<Vec<u8>, BackendError> {
    end(backend.submit_job(job))
}

/// Makes proofs that are all there at once.
pub(crate) fn outcomes<const N: usize>(
    backend: &CudaBackend,
    jobs: [CudaJob; N],
) -> [Result<Vec<u8>, BackendError>; N] {
    jobs.map(|job| backend.submit_job(job)).map(end)
}

fn end(mut pending: Pending) -> Result<Vec<u8>, BackendError> {
    let done = pending.done_within(WAIT_MAX).unwrap_or_else(|| {
        // Dropping the proof would wait for it.
        eprintln!("a proof has not ended in {WAIT_MAX:?}");
        std::process::abort()
    });
    assert!(pending.columns_read().is_some(), "the columns come back");
    done.map(|proved| bytes(&proved.proof))
}

/// Makes a proof that must go well.
pub(crate) fn proved(backend: &CudaBackend, job: CudaJob) -> Vec<u8> {
    outcome(backend, job).expect("a request that fits on a device that works")
}
