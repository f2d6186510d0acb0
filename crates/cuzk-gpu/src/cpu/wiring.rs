//! The CPU backend behind the engine's seam: proofs with points from a key file.

use std::mem::size_of;
use std::ops::Deref;

use bellperson::groth16::VerifyingKey;
use blstrs::{Bls12, G1Affine, G2Affine};

use crate::backend::{Backend, Pending, ProveRequest};
use crate::column::{CColumn, ColumnLayout};
use crate::cpu::{CpuBackend, Job, PointSource};
use crate::error::KeyError;
use crate::key::{Key, KeyTier, Section};
use crate::shape::CircuitSizes;

impl PointSource for Key {
    fn vk(&self) -> &VerifyingKey<Bls12> {
        Key::vk(self)
    }

    fn count(&self, section: Section) -> usize {
        Key::count(self, section)
    }

    fn section_bytes(&self, section: Section) -> u64 {
        let point_bytes = match section {
            Section::BG2 => size_of::<G2Affine>(),
            _ => size_of::<G1Affine>(),
        };
        Key::count(self, section) as u64 * point_bytes as u64
    }

    fn g1(&self, section: Section) -> Result<impl Deref<Target = [G1Affine]>, KeyError> {
        Key::g1(self, section)
    }

    fn g2(&self) -> Result<impl Deref<Target = [G2Affine]>, KeyError> {
        Key::g2(self)
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn c_column(&self) -> CColumn {
        self.third_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        self.column_layout(sizes)
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        self.peak_bytes(sizes, key, tier)
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        self.submit_job(Job {
            columns: request.columns,
            inputs: request.inputs,
            shape: request.shape,
            source: request.key,
            r: request.r,
            s: request.s,
            watch: request.watch,
        })
    }
}
