//! Where the prover takes a key's points from.

use std::ops::Deref;

use bellperson::groth16::{Parameters, VerifyingKey};
use blstrs::{Bls12, G1Affine, G2Affine};

use crate::error::KeyError;
use crate::key::Section;

/// A proving key, section by section. The prover holds one section at a time.
pub trait PointSource: Send + Sync {
    /// The verifying key.
    fn vk(&self) -> &VerifyingKey<Bls12>;

    /// Number of points in a section, known without decoding it.
    fn count(&self, section: Section) -> usize;

    /// Host memory in bytes that a section's points take while they are handed out,
    /// if they are not in memory all the time anyway.
    fn section_bytes(&self, section: Section) -> u64;

    /// All points of a G1 section: [`Section::H`], [`Section::L`], [`Section::A`] or
    /// [`Section::BG1`].
    ///
    /// # Errors
    /// If the section can no longer be read.
    ///
    /// # Panics
    /// If the section is another one.
    fn g1(&self, section: Section) -> Result<impl Deref<Target = [G1Affine]>, KeyError>;

    /// All points of [`Section::BG2`].
    ///
    /// # Errors
    /// If the section can no longer be read.
    fn g2(&self) -> Result<impl Deref<Target = [G2Affine]>, KeyError>;
}

/// Bellperson's own parameters, all in memory: small keys of tests and examples.
impl PointSource for Parameters<Bls12> {
    fn vk(&self) -> &VerifyingKey<Bls12> {
        &self.vk
    }

    fn count(&self, section: Section) -> usize {
        match section {
            Section::VerifyingKey => 6,
            Section::Ic => self.vk.ic.len(),
            Section::H => self.h.len(),
            Section::L => self.l.len(),
            Section::A => self.a.len(),
            Section::BG1 => self.b_g1.len(),
            Section::BG2 => self.b_g2.len(),
        }
    }

    fn section_bytes(&self, _: Section) -> u64 {
        0
    }

    fn g1(&self, section: Section) -> Result<impl Deref<Target = [G1Affine]>, KeyError> {
        Ok(match section {
            Section::H => self.h.as_slice(),
            Section::L => self.l.as_slice(),
            Section::A => self.a.as_slice(),
            Section::BG1 => self.b_g1.as_slice(),
            Section::Ic => self.vk.ic.as_slice(),
            other => panic!("{other} is not a section of G1 points"),
        })
    }

    fn g2(&self) -> Result<impl Deref<Target = [G2Affine]>, KeyError> {
        Ok(self.b_g2.as_slice())
    }
}
