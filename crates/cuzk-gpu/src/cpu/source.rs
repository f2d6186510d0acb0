//! Where the prover takes a key's points from.

use std::ops::Deref;

use bellperson::groth16::VerifyingKey;
use blstrs::{Bls12, G1Affine, G2Affine};

use crate::error::KeyError;
use crate::key::{Key, Section};

/// A proving key, section by section. The prover holds one section at a time.
pub trait PointSource: Send + Sync {
    /// The verifying key.
    fn vk(&self) -> &VerifyingKey<Bls12>;

    /// Number of points in a section, known without decoding it.
    fn count(&self, section: Section) -> usize;

    /// All points of a G1 section: [`Section::H`], [`Section::L`], [`Section::A`] or
    /// [`Section::BG1`].
    ///
    /// # Errors
    /// If the section can no longer be read.
    fn g1(&self, section: Section) -> Result<impl Deref<Target = [G1Affine]>, KeyError>;

    /// All points of [`Section::BG2`].
    ///
    /// # Errors
    /// If the section can no longer be read.
    fn g2(&self) -> Result<impl Deref<Target = [G2Affine]>, KeyError>;
}

impl PointSource for Key {
    fn vk(&self) -> &VerifyingKey<Bls12> {
        self.vk()
    }

    fn count(&self, section: Section) -> usize {
        self.count(section)
    }

    fn g1(&self, section: Section) -> Result<impl Deref<Target = [G1Affine]>, KeyError> {
        self.g1(section)
    }

    fn g2(&self) -> Result<impl Deref<Target = [G2Affine]>, KeyError> {
        self.g2()
    }
}
