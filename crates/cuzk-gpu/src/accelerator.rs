//! Devices, for programs built with and without CUDA: which there are, and a backend
//! on one of them.

use std::num::NonZeroUsize;
use std::sync::Arc;

use cuzk_pinned::{PinnedBacking, StagingRing};

use crate::backend::Backend;
use crate::cpu::h::{CSource, Transforms};
use crate::error::BackendError;

/// More slots than any device has use for: while one computes, the columns of the next
/// are there, and four proofs may share a pass of their key while four upload.
pub const DEVICE_SLOTS_MAX: usize = 8;

/// Bits of the windows of multiplications on a device.
pub const DEVICE_WINDOW_BITS: std::ops::RangeInclusive<u32> = 10..=20;

/// How a backend on a device works.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// Number of the device, as the driver counts those that are visible.
    pub ordinal: usize,
    /// Bytes of device memory to take at the start; all that is free, less half a GiB
    /// for the driver, if `None`.
    pub memory_bytes_max: Option<u64>,
    /// Proofs that may wait behind the one that is computed, in slots or before them; one
    /// more is refused.
    pub queue_len_max: usize,
    /// Proofs that have a place on the device at the same time, 1 to
    /// [`DEVICE_SLOTS_MAX`]: while one is
    /// computed, the columns of the next are uploaded. Fewer where the device has no
    /// room for so many beside their keys.
    pub slots: usize,
    /// Whether a key stays on the device where it has room there. Without, every key is
    /// streamed, from page-locked memory or its file.
    pub is_key_resident: bool,
    /// Proofs of one key that go through it together where it is streamed: each piece is
    /// brought once for all of them. They must be in slots at the same time; with twice as
    /// many slots the next ones upload meanwhile.
    pub key_batch: usize,
    /// Most points of a piece of a key that is streamed, as a logarithm, 5 to 24; half as
    /// many in G2. Four pieces have a place on the device, or three, at 96 bytes a point.
    pub key_piece_log_max: u32,
    /// Whether the assignment is always uploaded after the transforms, to where column b was,
    /// and keys are streamed: what proofs come to by themselves on a device whose memory holds
    /// none of their circuit otherwise.
    pub is_assignment_late: bool,
    /// Whether a proof begins when its first column is on the device, and not when all are.
    pub is_early: bool,
    /// Threads of the host that read a key's points, or sort and sum where they are told
    /// to.
    pub load_threads: NonZeroUsize,
    /// Whether C is computed or taken from synthesis.
    pub c_source: CSource,
    /// How many transforms make the quotient polynomial.
    pub transforms: Transforms,
    /// Whether zeros and ones are taken out before a multiplication.
    pub is_split: bool,
    /// Whether threads of the host sort scalars by value, for keys that are on the
    /// device, and not the device itself. It takes 12 bytes of host memory an entry.
    pub is_split_on_host: bool,
    /// Whether the sum over the key's section `b_g2` is made by threads of the host, from
    /// its points there, while the device makes the others. It takes 32 bytes of host
    /// memory a point beside the work, and 192 where the key is in its file. The device has
    /// its place for the section all the same.
    pub is_b_g2_on_host: bool,
    /// Bits of a multiplication's windows, of [`DEVICE_WINDOW_BITS`]; chosen by its size if
    /// `None`.
    pub window_bits: Option<u32>,
    /// Most entries that a multiplication takes at a time: a multiple of 32.
    pub chunk_len_max: usize,
}

impl DeviceOptions {
    /// The least work and memory traffic on a device.
    pub fn new(ordinal: usize, load_threads: NonZeroUsize, queue_len_max: usize) -> Self {
        Self {
            ordinal,
            memory_bytes_max: None,
            queue_len_max,
            slots: 2,
            is_key_resident: true,
            key_batch: 1,
            is_early: true,
            is_assignment_late: false,
            key_piece_log_max: 24,
            load_threads,
            c_source: CSource::Product,
            transforms: Transforms::Six,
            is_split: true,
            is_split_on_host: false,
            is_b_g2_on_host: false,
            window_bits: None,
            chunk_len_max: 1 << 24,
        }
    }
}

/// A device that the driver shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Its number among the visible ones.
    pub ordinal: usize,
    /// The driver's name for it.
    pub name: String,
    /// Its identity, in the form of `nvidia-smi` (`GPU-259100ba-…`).
    pub uuid: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Node of the host's memory that it is connected to, where the host shows one.
    pub numa_node: Option<u32>,
    /// Why it cannot be used, if it cannot.
    pub unusable: Option<String>,
}

/// The devices that the driver shows, usable or not.
///
/// # Errors
/// Why there can be none, in words: no driver, an old one, a program without device
/// code.
pub fn devices() -> Result<Vec<DeviceReport>, String> {
    #[cfg(feature = "cuda")]
    return crate::cuda::devices();
    #[cfg(not(feature = "cuda"))]
    Err(WITHOUT_CUDA.to_owned())
}

/// Page-locked memory through which a backend brings things to its device.
pub struct DeviceBuffers {
    /// For keys, whose points pass through them as the file has them: two of the same
    /// length, one read into while the other is copied. 64 MiB each is what the engine
    /// takes; 192 bytes, a point of G2, is the least. The device has a place as long for each.
    pub keys: [PinnedBacking; 2],
    /// For columns that are not page-locked themselves; without it they are copied from
    /// where they lie, slowly.
    pub columns: Option<StagingRing>,
    /// For keys that have no room on the device; without it each proof reads them from
    /// their files.
    pub host_keys: Option<KeyMemory>,
}

/// Page-locked memory that keys stay in, decoded, between proofs.
#[derive(Clone)]
pub struct KeyMemory {
    /// Most bytes to take, all keys together.
    pub bytes_max: u64,
    /// Takes buffers of these lengths, all or none; they go back when they are dropped.
    /// Called on threads of the backend.
    pub take: Arc<TakeBuffers>,
}

/// Takes buffers of these lengths; `None` where they are refused.
pub type TakeBuffers = dyn Fn(&[usize]) -> Option<Vec<PinnedBacking>> + Send + Sync;

/// A backend on a device. The crate's front page has an example.
///
/// # Errors
/// [`BackendError::Device`] with what is missing, [`BackendError::DeviceMemory`] where
/// others leave less than is asked, and [`BackendError::Start`].
pub fn open_device(
    options: DeviceOptions,
    buffers: DeviceBuffers,
) -> Result<Arc<dyn Backend>, BackendError> {
    #[cfg(feature = "cuda")]
    return Ok(Arc::new(crate::cuda::CudaBackend::start(options, buffers)?));
    #[cfg(not(feature = "cuda"))]
    {
        drop(buffers);
        Err(BackendError::Device {
            call: "open the device",
            reason: format!("device {}: {WITHOUT_CUDA}", options.ordinal),
        })
    }
}

#[cfg(not(feature = "cuda"))]
const WITHOUT_CUDA: &str = "this program was built without CUDA (`cargo xtask cuda build --release -- -p cuzk-daemon` \
     builds one with it)";

#[cfg(all(test, not(feature = "cuda")))]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_cuda_says_so() {
        let why = devices().expect_err("no device without CUDA");
        assert!(why.starts_with("this program was built without CUDA"));
        assert!(why.contains("cargo xtask cuda build"), "{why}");
    }
}
