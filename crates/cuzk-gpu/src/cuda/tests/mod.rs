//! The device against plain definitions and the CPU backend. Tests that need a
//! device print *skipped* where there is none, and fail instead under
//! `CUZK_REQUIRE_GPU=1`.

mod case;
mod endurance;
mod holdings;
mod keys;
mod late;
mod multiples;
mod passes;
mod pieces;
mod proofs;
mod reading;
mod sizes;
mod slots;
mod small;
mod sums;
mod transforms;
mod twins;

use std::num::NonZeroUsize;
use std::sync::Arc;

use blstrs::Scalar;
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_pinned::cuda::CudaBacking;
use cuzk_pinned::{AcquireRequest, PinnedBacking, PinnedPool, PoolOptions, StagingRing};

use super::CudaBackend;
use super::device::{Device, MemoryUse, Plain};
use crate::{DeviceBuffers, DeviceOptions, KeyMemory};

const THREADS: NonZeroUsize = NonZeroUsize::new(4).unwrap();
const STAGING_BYTES: usize = 1 << 20;

// SAFETY: any four limbs are a scalar in memory, as `Column` relies on too.
unsafe impl Plain for Scalar {}

/// What `open` gives, or nothing where there is no device and none is required.
fn opened<T>(result: Result<T, impl std::fmt::Display>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let required = std::env::var("CUZK_REQUIRE_GPU").is_ok_and(|value| value == "1");
            assert!(!required, "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

/// The first device, on this thread.
fn device() -> Option<Device> {
    opened(Device::open(0, Arc::new(MemoryUse::default())))
}

/// Page-locked buffers.
fn page_locked(bytes: &[usize]) -> Option<Vec<PinnedBacking>> {
    let context = opened(cuzk_pinned::cuda::open(0))?;
    let pool = PinnedPool::new(
        Budget::new(1 << 30),
        CudaBacking::new(context, THREADS),
        PoolOptions::STANDARD,
    );
    let request = AcquireRequest {
        buffers: bytes,
        bytes: 0,
        consumer: Consumer("staging"),
        wait: Wait::with_priority(Priority::NORMAL),
    };
    let acquired = pool.try_acquire(&request).expect("a budget with room");
    Some(acquired.buffers.into_iter().collect())
}

/// A backend on the first device.
fn backend(change: impl FnOnce(&mut DeviceOptions)) -> Option<CudaBackend> {
    backend_with(change, None, None)
}

/// A backend with chunks for columns that are not page-locked, and memory for keys that
/// have no room on the device.
fn backend_with(
    change: impl FnOnce(&mut DeviceOptions),
    columns: Option<StagingRing>,
    host_keys: Option<KeyMemory>,
) -> Option<CudaBackend> {
    let mut options = DeviceOptions::new(0, THREADS, 4);
    // Tests run side by side: none may take the whole device.
    options.memory_bytes_max = Some(4 << 30);
    change(&mut options);
    let keys = page_locked(&[STAGING_BYTES; 2])?;
    let buffers = DeviceBuffers {
        keys: keys.try_into().expect("as many as asked"),
        columns,
        host_keys,
    };
    opened(CudaBackend::start(options, buffers))
}
