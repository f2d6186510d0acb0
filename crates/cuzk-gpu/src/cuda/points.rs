//! Where the device takes a key's points from.

use std::mem::size_of;

use bellperson::groth16::{Parameters, VerifyingKey};
use blstrs::{Bls12, G1Affine, G2Affine, G2Projective, Scalar};

use crate::cpu::PointSource;
use crate::cpu::msm::{Density, msm};
use crate::error::{KeyError, PointFault};
use crate::key::{Key, Section};

/// How a point's bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As in key files: the device decodes and checks them.
    File,
    /// As in memory.
    Memory,
}

/// A proving key whose points are read as bytes, 96 a point in G1 and 192 in G2.
pub trait PointBytes: Send + Sync {
    /// The verifying key.
    fn vk(&self) -> &VerifyingKey<Bls12>;

    /// Number of points in a section.
    fn count(&self, section: Section) -> usize;

    /// How the bytes are written.
    fn encoding(&self) -> Encoding;

    /// Fills `bytes` with the points from `start` on.
    ///
    /// # Errors
    /// If the section can no longer be read.
    fn read(&self, section: Section, start: usize, bytes: &mut [u8]) -> Result<(), KeyError>;

    /// The error of a wrong point.
    fn fault(&self, section: Section, index: u64, what: PointFault) -> KeyError;

    /// The sum over [`Section::BG2`], times a scalar each, on the current rayon pool.
    ///
    /// # Errors
    /// If the section can no longer be read.
    fn b_g2_sum(&self, scalars: &[Scalar]) -> Result<G2Projective, KeyError>;
}

impl PointBytes for Key {
    fn vk(&self) -> &VerifyingKey<Bls12> {
        Key::vk(self)
    }

    fn count(&self, section: Section) -> usize {
        Key::count(self, section)
    }

    fn encoding(&self) -> Encoding {
        Encoding::File
    }

    fn read(&self, section: Section, start: usize, bytes: &mut [u8]) -> Result<(), KeyError> {
        self.read_encoded(section, start, bytes)
    }

    fn fault(&self, section: Section, index: u64, what: PointFault) -> KeyError {
        self.point_error(section, index, what)
    }

    fn b_g2_sum(&self, scalars: &[Scalar]) -> Result<G2Projective, KeyError> {
        Ok(msm::<G2Affine>(&self.g2()?, scalars, Density::Full))
    }
}

/// Bellperson's own parameters, all in memory: small keys of tests.
impl PointBytes for Parameters<Bls12> {
    fn vk(&self) -> &VerifyingKey<Bls12> {
        &self.vk
    }

    fn count(&self, section: Section) -> usize {
        PointSource::count(self, section)
    }

    fn encoding(&self) -> Encoding {
        Encoding::Memory
    }

    fn read(&self, section: Section, start: usize, bytes: &mut [u8]) -> Result<(), KeyError> {
        let all = match section {
            Section::H => as_bytes(&self.h),
            Section::L => as_bytes(&self.l),
            Section::A => as_bytes(&self.a),
            Section::BG1 => as_bytes(&self.b_g1),
            Section::BG2 => {
                let from = start * size_of::<G2Affine>();
                bytes.copy_from_slice(&as_bytes2(&self.b_g2)[from..][..bytes.len()]);
                return Ok(());
            }
            other => panic!("{other} is not a query"),
        };
        bytes.copy_from_slice(&all[start * size_of::<G1Affine>()..][..bytes.len()]);
        Ok(())
    }

    fn fault(&self, section: Section, index: u64, what: PointFault) -> KeyError {
        unreachable!("points in memory are not decoded: {section} {index} {what}")
    }

    fn b_g2_sum(&self, scalars: &[Scalar]) -> Result<G2Projective, KeyError> {
        Ok(msm::<G2Affine>(&self.b_g2, scalars, Density::Full))
    }
}

fn as_bytes(points: &[G1Affine]) -> &[u8] {
    // SAFETY: an affine point is two coordinates of six limbs without padding (its
    // size is asserted beside the border), and any byte may be read.
    unsafe { std::slice::from_raw_parts(points.as_ptr().cast(), size_of_val(points)) }
}

fn as_bytes2(points: &[G2Affine]) -> &[u8] {
    // SAFETY: as above, with coordinates of twelve limbs.
    unsafe { std::slice::from_raw_parts(points.as_ptr().cast(), size_of_val(points)) }
}
