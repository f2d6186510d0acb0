//! A circuit that is proved on the device, whose proof is known from the processor.

use std::sync::Arc;

use bellperson::groth16::Parameters;
use blstrs::{Bls12, Scalar};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::page_locked;
use super::proofs::{bytes, circuit, cpu, cuda_job};
use crate::Pending;
use crate::column::{CColumn, Column};
use crate::cpu::Job;
use crate::cpu::h::CSource;
use crate::cpu::tests::circuit::Assignment;
use crate::cpu::tests::{column, job, meaningless_key};
use crate::cuda::CudaJob;
use crate::key::KeyTier;

/// A circuit, one of its keys, and the processor's proof.
pub(super) struct Case {
    pub(super) assignment: Assignment,
    pub(super) job: Job<Parameters<Bls12>>,
    expected: Vec<u8>,
}

impl Case {
    pub(super) fn new(log: u32, key_seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(u64::from(log));
        let assignment = Assignment::of(circuit(&mut rng, log));
        let key = Arc::new(meaningless_key(&assignment.shape(), key_seed));
        let new = || {
            let key = Arc::clone(&key);
            let (r, s) = (Scalar::from(3), Scalar::from(key_seed));
            job(&assignment, CColumn::Scratch, key, r, s)
        };
        let proved = cpu().submit_job(new()).done();
        Self {
            expected: bytes(&proved.expect("a request that fits").proof),
            job: new(),
            assignment,
        }
    }

    /// With columns in the heap.
    pub(super) fn cuda_job(&self) -> CudaJob {
        cuda_job(&self.assignment, &self.job, CSource::Product)
    }

    /// With columns in page-locked memory.
    pub(super) fn direct(&self) -> CudaJob {
        let mut job = self.cuda_job();
        let columns = &mut job.columns;
        for column in [&mut columns.a, &mut columns.b, &mut columns.aux] {
            *column = locked(column);
        }
        job
    }

    /// With columns where it is said.
    pub(super) fn placed(&self, is_page_locked: bool) -> CudaJob {
        match is_page_locked {
            true => self.direct(),
            false => self.cuda_job(),
        }
    }

    /// With a value that is no scalar, which only a sum over the assignment finds.
    pub(super) fn wrong_job(&self, at: usize) -> CudaJob {
        let mut job = self.cuda_job();
        let mut aux = job.columns.aux.scalars().to_vec();
        // SAFETY: any limbs are a value in memory; arithmetic never sees this one.
        aux[at] = unsafe { std::mem::transmute::<[u64; 4], Scalar>([u64::MAX; 4]) };
        job.columns.aux = column(&aux, aux.len());
        job
    }

    /// Waits for a proof of it; where its key was.
    pub(super) fn check(&self, mut pending: Pending, what: &str) -> Option<KeyTier> {
        assert!(pending.columns_read().is_some(), "the columns come back");
        let proved = pending.done().expect("a request that fits");
        assert!(bytes(&proved.proof) == self.expected, "{what}");
        proved.tier
    }

    /// Waits for a proof of it, with its key on the device.
    pub(super) fn check_resident(&self, pending: Pending, what: &str) {
        let tier = self.check(pending, what);
        assert_eq!(tier, Some(KeyTier::Resident), "{what}");
    }
}

fn locked(column: &Column) -> Column {
    let len = column.len();
    let bytes = Column::bytes(len).expect("a small column").max(1);
    let buffers = page_locked(&[bytes]).expect("there is a device");
    let buffer = buffers.into_iter().next().expect("as many as asked");
    let mut locked = Column::new(buffer, len);
    locked.scalars_mut().copy_from_slice(column.scalars());
    locked
}
