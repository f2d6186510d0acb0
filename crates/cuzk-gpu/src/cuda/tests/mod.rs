//! The device against plain definitions and the CPU backend. Tests that need a
//! device print *skipped* where there is none, and fail instead under
//! `CUZK_REQUIRE_GPU=1`.

mod keys;
mod multiples;
mod proofs;
mod sizes;
mod sums;
mod transforms;

use std::num::NonZeroUsize;
use std::sync::Arc;

use blstrs::Scalar;
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_pinned::cuda::CudaBacking;
use cuzk_pinned::{AcquireRequest, PinnedBacking, PinnedPool, PoolOptions};

use super::CudaBackend;
use super::device::{Device, MemoryUse, Plain};
use crate::{DeviceBuffers, DeviceOptions};

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
    opened(Device::open(0, None, Arc::new(MemoryUse::default())))
}

/// Two page-locked buffers.
fn staging() -> Option<[PinnedBacking; 2]> {
    let context = opened(cuzk_pinned::cuda::open(0))?;
    let pool = PinnedPool::new(
        Budget::new(1 << 30),
        CudaBacking::new(context, THREADS),
        PoolOptions::STANDARD,
    );
    let request = AcquireRequest {
        buffers: &[STAGING_BYTES; 2],
        bytes: 0,
        consumer: Consumer("staging"),
        wait: Wait::with_priority(Priority::NORMAL),
    };
    let acquired = pool.try_acquire(&request).expect("a budget with room");
    let mut buffers = acquired.buffers.into_iter();
    Some([0; 2].map(|_| buffers.next().expect("two buffers")))
}

/// A backend on the first device.
fn backend(change: impl FnOnce(&mut DeviceOptions)) -> Option<CudaBackend> {
    let mut options = DeviceOptions::new(0, THREADS, 4);
    change(&mut options);
    let buffers = DeviceBuffers {
        keys: staging()?,
        columns: None,
    };
    opened(CudaBackend::start(options, buffers))
}
