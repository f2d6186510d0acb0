//! The first device: backends on it, and proofs that are made or refused there.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::{CudaContext, result};
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_gpu::cuda::{CudaBackend, CudaJob};
use cuzk_gpu::{BackendError, DeviceBuffers, DeviceOptions};
use cuzk_pinned::cuda::CudaBacking;
use cuzk_pinned::{AcquireRequest, PinnedPool, PoolOptions, StagingRing};

use crate::case::bytes;

const THREADS: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// Small, so that keys and columns of small circuits take several turns.
const STAGING_BYTES: usize = 1 << 16;
const CHUNK_BYTES: usize = 1 << 12;
/// Device memory of a backend: not all, since other processes have backends too.
const ARENA_BYTES: u64 = 256 << 20;
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
            Ok(context) => Some(Self {
                pool: PinnedPool::new(
                    Budget::new(1 << 30),
                    CudaBacking::new(Arc::clone(&context), THREADS),
                    PoolOptions::STANDARD,
                ),
                context,
                _turn: turn,
            }),
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
        let request = AcquireRequest {
            buffers: &[
                STAGING_BYTES,
                STAGING_BYTES,
                CHUNK_BYTES,
                CHUNK_BYTES,
                CHUNK_BYTES,
            ],
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
        let mut options = DeviceOptions::new(0, THREADS, 4);
        options.memory_bytes_max = Some(ARENA_BYTES);
        CudaBackend::start(options, buffers)
    }

    /// Opens a backend, which must go well.
    pub(crate) fn open(&self) -> CudaBackend {
        self.open_with(self.buffers()).expect("a device that works")
    }

    /// Bytes that the driver has free.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.context.bind_to_thread().expect("a live context");
        result::mem_get_info().expect("a live context").0 as u64
    }
}

/// Makes a proof. Whatever becomes of it, its columns come back and it ends.
pub(crate) fn outcome(backend: &CudaBackend, job: CudaJob) -> Result<Vec<u8>, BackendError> {
    let mut pending = backend.submit_job(job);
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
