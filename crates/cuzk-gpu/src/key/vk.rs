//! Verifying keys, at the start of a key file or in a file of their own.

use std::path::Path;

use bellperson::groth16::VerifyingKey;
use blstrs::{Bls12, G1Affine};

use crate::error::KeyError;
use crate::key::PointCheck;
use crate::key::file::KeyFile;
use crate::key::point::{self, Point, read_points, zeroed_points};
use crate::key::section::{self, FIXED_BYTES, FIXED_POINT_BYTES, Section, Span};
use crate::key::writer::Sink;

/// Reads a verifying key from a file of its own (`.vk`).
///
/// # Errors
/// As for [`Key::open`](crate::Key::open).
pub fn read_vk(path: &Path) -> Result<VerifyingKey<Bls12>, KeyError> {
    let file = KeyFile::open(path)?;
    let ic = section::read_ic_span(&file)?;
    section::check_trailing(&file, ic.end())?;
    decode(&file, &ic)
}

/// Writes a verifying key to a file of its own (`.vk`), which must not exist.
///
/// # Errors
/// As for [`KeyWriter`](crate::key::KeyWriter).
pub fn write_vk(path: &Path, vk: &VerifyingKey<Bls12>) -> Result<(), KeyError> {
    let mut sink = Sink::create(path)?;
    encode(vk, &mut sink)?;
    sink.publish()
}

/// Decodes the verifying key that a file begins with. Every point is checked to
/// be in its subgroup: proofs are judged by this key.
pub(crate) fn decode(file: &KeyFile, ic_span: &Span) -> Result<VerifyingKey<Bls12>, KeyError> {
    let mut bytes = [0; FIXED_BYTES];
    file.read_at(&mut bytes, 0)?;
    let mut fixed = FixedPoints {
        file,
        bytes: &bytes,
        index: 0,
        offset: 0,
    };
    let alpha_g1 = fixed.next()?;
    let beta_g1 = fixed.next()?;
    let beta_g2 = fixed.next()?;
    let gamma_g2 = fixed.next()?;
    let delta_g1 = fixed.next()?;
    let delta_g2 = fixed.next()?;
    let mut ic = zeroed_points::<G1Affine>(ic_span.count);
    read_points(file, ic_span, 0, &mut ic, PointCheck::Subgroup)?;
    Ok(VerifyingKey {
        alpha_g1,
        beta_g1,
        beta_g2,
        gamma_g2,
        delta_g1,
        delta_g2,
        ic,
    })
}

/// A walk over the fixed points.
struct FixedPoints<'a> {
    file: &'a KeyFile,
    bytes: &'a [u8],
    index: usize,
    offset: usize,
}

impl FixedPoints<'_> {
    fn next<P: Point>(&mut self) -> Result<P, KeyError> {
        debug_assert_eq!(FIXED_POINT_BYTES[self.index], P::BYTES);
        let encoded = &self.bytes[self.offset..self.offset + P::BYTES];
        let point =
            point::decode(encoded, PointCheck::Subgroup).map_err(|what| KeyError::Point {
                path: self.file.path().to_owned(),
                section: Section::VerifyingKey,
                index: self.index as u64,
                offset: self.offset as u64,
                what,
            })?;
        self.index += 1;
        self.offset += P::BYTES;
        Ok(point)
    }
}

/// Writes a verifying key as a key file begins with it.
///
/// # Errors
/// [`KeyError::Point`] for a point at infinity, and what the sink meets.
pub(crate) fn encode(vk: &VerifyingKey<Bls12>, sink: &mut Sink) -> Result<(), KeyError> {
    encode_fixed(0, &vk.alpha_g1, sink)?;
    encode_fixed(1, &vk.beta_g1, sink)?;
    encode_fixed(2, &vk.beta_g2, sink)?;
    encode_fixed(3, &vk.gamma_g2, sink)?;
    encode_fixed(4, &vk.delta_g1, sink)?;
    encode_fixed(5, &vk.delta_g2, sink)?;
    sink.write_count(Section::Ic, vk.ic.len())?;
    sink.write_points(Section::Ic, 0, &vk.ic)
}

fn encode_fixed<P: Point>(index: u64, point: &P, sink: &mut Sink) -> Result<(), KeyError> {
    sink.write_points(Section::VerifyingKey, index, std::slice::from_ref(point))
}
