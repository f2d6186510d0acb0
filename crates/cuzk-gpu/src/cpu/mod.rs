//! The CPU backend: Groth16 on a rayon pool, on any machine.
//!
//! A proof takes three columns of the domain's length and one of the auxiliary
//! assignment; transforms run in place (`ntt`, `h`), and key sections are read one
//! at a time for their sums (`msm`, `prove`). Proofs run one after the other on
//! threads of the backend's own (`worker`); a panic ends its proof and nothing
//! else.

pub mod h;
pub mod msm;
pub mod ntt;
pub mod prove;
mod source;
mod wiring;
mod worker;

#[cfg(test)]
pub(crate) mod tests;

use std::mem::size_of;
use std::num::NonZeroUsize;

use blstrs::{G1Affine, G2Affine, Scalar};

use crate::backend::Pending;
use crate::column::{CColumn, ColumnLayout};
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::worker::Worker;
use crate::error::BackendError;
use crate::key::{KeyTier, Section};
use crate::shape::CircuitSizes;

pub use crate::cpu::source::PointSource;
pub use crate::cpu::worker::Job;

/// How the CPU backend works.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Threads of the backend's pool.
    pub threads: NonZeroUsize,
    /// Proofs that may wait behind the one under way; one more is refused.
    pub queue_len_max: usize,
    /// Whether C is computed or taken from synthesis.
    pub c_source: CSource,
    /// How many transforms make the quotient polynomial.
    pub transforms: Transforms,
}

impl CpuOptions {
    /// The least work and memory traffic: C as a product, six transforms.
    pub fn new(threads: NonZeroUsize, queue_len_max: usize) -> Self {
        Self {
            threads,
            queue_len_max,
            c_source: CSource::Product,
            transforms: Transforms::Six,
        }
    }
}

/// Groth16 on the CPU.
pub struct CpuBackend {
    options: CpuOptions,
    worker: Worker,
}

impl CpuBackend {
    /// Starts the backend's threads.
    ///
    /// # Errors
    /// [`BackendError::Start`] if the system refuses a thread.
    pub fn new(options: CpuOptions) -> Result<Self, BackendError> {
        Ok(Self {
            options,
            worker: Worker::start(&options)?,
        })
    }

    /// Starts a proof with points from any source and returns at once. Columns
    /// come back in every case but a lost backend, whatever becomes of the proof.
    pub fn submit_job<S: PointSource + 'static>(&self, job: Job<S>) -> Pending {
        self.worker.submit(job, self.options)
    }

    /// What the third column is for.
    pub fn third_column(&self) -> CColumn {
        match self.options.c_source {
            CSource::Product => CColumn::Scratch,
            CSource::Synthesised => CColumn::Synthesised,
        }
    }

    /// The columns of a circuit: three of the domain's length, and the auxiliary
    /// assignment.
    pub fn column_layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        ColumnLayout {
            rows: sizes.domain(),
            aux: sizes.aux,
            c: self.third_column(),
        }
    }

    /// Bytes that a proof takes at its peak beside its columns: the twiddle
    /// factors of the transforms, or later the largest decoded section of the key
    /// with the working memory of its sum, whichever is more. Points of a resident
    /// key are counted where they are kept, not here.
    pub fn peak_bytes<S: PointSource>(
        &self,
        sizes: &CircuitSizes,
        source: &S,
        tier: KeyTier,
    ) -> u64 {
        let threads = self.options.threads.get();
        let twiddles = sizes.domain() as u64 * size_of::<Scalar>() as u64;
        let peak = |section| {
            let point_bytes = match section {
                Section::BG2 => size_of::<G2Affine>(),
                _ => size_of::<G1Affine>(),
            };
            let sum = msm::work_bytes(source.count(section), threads, point_bytes);
            match tier {
                KeyTier::File => source.section_bytes(section).saturating_add(sum),
                KeyTier::Pinned | KeyTier::Resident => sum,
            }
        };
        [
            Section::H,
            Section::L,
            Section::A,
            Section::BG1,
            Section::BG2,
        ]
        .map(peak)
        .into_iter()
        .fold(twiddles, u64::max)
    }
}
