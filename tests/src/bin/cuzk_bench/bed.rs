//! What proofs are measured on: keys, page-locked memory, a device.

#[cfg(feature = "cuda")]
mod device;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use cuzk_budget::{Consumer, Priority, Wait};
use cuzk_gpu::{Key, KeyChecks, PointCheck};
use cuzk_pinned::{AcquireRequest, PinnedBacking, PinnedPool};

#[cfg(feature = "cuda")]
pub(crate) use device::{Bed, Laid, name, pool, start};

/// Buffers of a pool that has room for them.
pub(crate) fn buffers(pool: &PinnedPool, bytes: &[usize]) -> Result<Vec<PinnedBacking>> {
    let request = AcquireRequest {
        buffers: bytes,
        bytes: 0,
        consumer: Consumer("measurement"),
        wait: Wait::with_priority(Priority::NORMAL),
    };
    Ok(pool.try_acquire(&request)?.buffers.into_iter().collect())
}

/// A key file that was made here. Where a device brings its points, it checks them.
pub(crate) fn open_key(path: &Path) -> Result<Arc<Key>> {
    let checks = KeyChecks {
        points: PointCheck::None,
        digest: None,
    };
    Ok(Arc::new(Key::open(path, &checks)?))
}
