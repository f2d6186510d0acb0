//! Points between file and memory.
//!
//! In a file a point is its coordinates, big-endian, 48 bytes a field element, G2
//! coordinates with the coefficient of `u` first; the top three bits of the first
//! byte are flags. In memory it is the coordinates' Montgomery limbs, and all
//! zeros is the point at infinity.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use blst::{
    blst_fp, blst_fp_from_uint64, blst_p1_affine_in_g1, blst_p1_affine_on_curve,
    blst_p2_affine_in_g2, blst_p2_affine_on_curve,
};
use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;
use rayon::prelude::*;

use crate::error::{KeyError, PointFault};
use crate::key::PointCheck;
use crate::key::file::KeyFile;
use crate::key::section::{G1_BYTES, G2_BYTES, Span};

/// Set in the first byte of a point in the shorter, compressed encoding.
const COMPRESSED_FLAG: u8 = 0x80;
/// Set in the first byte of the point at infinity.
const INFINITY_FLAG: u8 = 0x40;
/// Set in the first byte of a compressed point for the larger of two roots.
const SIGN_FLAG: u8 = 0x20;

/// The base field's modulus, most significant word first.
const MODULUS: [u64; 6] = [
    0x1a01_11ea_397f_e69a,
    0x4b1b_a7b6_434b_acd7,
    0x6477_4b84_f385_12bf,
    0x6730_d2a0_f6b0_f624,
    0x1eab_fffe_b153_ffff,
    0xb9fe_ffff_ffff_aaab,
];
/// Bytes of an encoded element of the base field.
const ELEMENT_BYTES: usize = 48;

/// Points that one task reads and decodes at a time: buffers of 384 or 768 KiB.
const CHUNK_POINTS: usize = 4096;

/// A point of G1 or G2 as key files hold them.
pub(crate) trait Point: PrimeCurveAffine + Send + Sync + 'static {
    /// Bytes of a point in a file.
    const BYTES: usize;

    /// Takes a point's coordinates from its encoding without flags.
    fn from_coordinates(bytes: &[u8]) -> Result<Self, PointFault>;

    /// Whether the coordinates satisfy the curve equation.
    fn is_on_curve(&self) -> bool;

    /// Whether a point on the curve is in the prime-order subgroup.
    fn is_in_subgroup(&self) -> bool;

    /// Encodes the point into `bytes`, [`Self::BYTES`](Point::BYTES) long.
    fn encode(&self, bytes: &mut [u8]);
}

impl Point for G1Affine {
    const BYTES: usize = G1_BYTES;

    fn from_coordinates(bytes: &[u8]) -> Result<Self, PointFault> {
        let mut point = Self::identity();
        let raw = point.as_mut();
        raw.x = field_element(bytes, 0)?;
        raw.y = field_element(bytes, 1)?;
        Ok(point)
    }

    fn is_on_curve(&self) -> bool {
        // SAFETY: the reference is to a live affine point.
        unsafe { blst_p1_affine_on_curve(self.as_ref()) }
    }

    fn is_in_subgroup(&self) -> bool {
        // SAFETY: the reference is to a live affine point.
        unsafe { blst_p1_affine_in_g1(self.as_ref()) }
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.to_uncompressed());
    }
}

impl Point for G2Affine {
    const BYTES: usize = G2_BYTES;

    fn from_coordinates(bytes: &[u8]) -> Result<Self, PointFault> {
        let mut point = Self::identity();
        let raw = point.as_mut();
        raw.x.fp = [field_element(bytes, 1)?, field_element(bytes, 0)?];
        raw.y.fp = [field_element(bytes, 3)?, field_element(bytes, 2)?];
        Ok(point)
    }

    fn is_on_curve(&self) -> bool {
        // SAFETY: the reference is to a live affine point.
        unsafe { blst_p2_affine_on_curve(self.as_ref()) }
    }

    fn is_in_subgroup(&self) -> bool {
        // SAFETY: the reference is to a live affine point.
        unsafe { blst_p2_affine_in_g2(self.as_ref()) }
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.to_uncompressed());
    }
}

/// Decodes a point. Flags, coordinates that are not field elements and infinity
/// are refused always; `check` says what more is.
///
/// The curve library's own decoder takes compressed points and infinity too, and
/// always checks the curve, which is more than half the work.
pub(crate) fn decode<P: Point>(bytes: &[u8], check: PointCheck) -> Result<P, PointFault> {
    check_flags(bytes)?;
    let point = P::from_coordinates(bytes)?;
    // (0, 0) is not on the curve, but is infinity in memory.
    if point.is_identity().into() {
        return Err(PointFault::NotOnCurve);
    }
    if check != PointCheck::None && !point.is_on_curve() {
        return Err(PointFault::NotOnCurve);
    }
    if check == PointCheck::Subgroup && !point.is_in_subgroup() {
        return Err(PointFault::NotInSubgroup);
    }
    Ok(point)
}

fn check_flags(bytes: &[u8]) -> Result<(), PointFault> {
    let flags = bytes[0] & (COMPRESSED_FLAG | INFINITY_FLAG | SIGN_FLAG);
    if flags == 0 {
        return Ok(());
    }
    let is_infinity = bytes[0] == INFINITY_FLAG && bytes[1..].iter().all(|byte| *byte == 0);
    Err(if is_infinity {
        PointFault::Infinity
    } else {
        PointFault::Encoding
    })
}

/// The field element at `index` of an encoded point.
fn field_element(bytes: &[u8], index: usize) -> Result<blst_fp, PointFault> {
    let bytes = &bytes[ELEMENT_BYTES * index..][..ELEMENT_BYTES];
    let mut words = [0; MODULUS.len()];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
        *word = u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    }
    if words >= MODULUS {
        return Err(PointFault::Encoding);
    }
    words.reverse();
    let mut element = blst_fp::default();
    // SAFETY: `element` is live and `words` holds the six words that are read.
    unsafe { blst_fp_from_uint64(&mut element, words.as_ptr()) };
    Ok(element)
}

/// Decodes the points from `start` on into `points`, in parallel, each checked
/// as `check` says.
///
/// # Errors
/// The first point that cannot be decoded, by index; then `points` is partly
/// written.
///
/// # Panics
/// If the section has fewer points than that, or points of the other group.
pub(crate) fn read_points<P: Point>(
    file: &KeyFile,
    span: &Span,
    start: usize,
    points: &mut [P],
    check: PointCheck,
) -> Result<(), KeyError> {
    assert_eq!(span.section.point_bytes(), P::BYTES, "{}", span.section);
    let end = start.checked_add(points.len());
    assert!(
        end.is_some_and(|end| end <= span.count),
        "{} points from {start} of section {}, which has {}",
        points.len(),
        span.section,
        span.count
    );
    file.check_written()?;
    let fault = points
        .par_chunks_mut(CHUNK_POINTS)
        .enumerate()
        .map_init(Vec::new, |buffer, (at, chunk)| {
            let first = start + at * CHUNK_POINTS;
            each_encoded::<P>(
                file,
                span,
                first..first + chunk.len(),
                buffer,
                |at, bytes| {
                    chunk[at] = decode(bytes, check)?;
                    Ok(())
                },
            )
        })
        .find_map_first(Result::err);
    fault.map_or(Ok(()), Err)
}

/// Decodes every point of a section in parallel and keeps none.
///
/// # Errors
/// The first point that is wrong, by index.
pub(crate) fn check_points<P: Point>(
    file: &KeyFile,
    span: &Span,
    check: PointCheck,
) -> Result<(), KeyError> {
    let fault = (0..span.count.div_ceil(CHUNK_POINTS))
        .into_par_iter()
        .map_init(Vec::new, |buffer, at| {
            let first = at * CHUNK_POINTS;
            let range = first..span.count.min(first + CHUNK_POINTS);
            each_encoded::<P>(file, span, range, buffer, |_, bytes| {
                decode::<P>(bytes, check).map(drop)
            })
        })
        .find_map_first(Result::err);
    fault.map_or(Ok(()), Err)
}

/// Reads the points of `range` into `buffer` and hands each to `visit`, with its
/// index in the range.
fn each_encoded<P: Point>(
    file: &KeyFile,
    span: &Span,
    range: Range<usize>,
    buffer: &mut Vec<u8>,
    mut visit: impl FnMut(usize, &[u8]) -> Result<(), PointFault>,
) -> Result<(), KeyError> {
    buffer.resize(range.len() * P::BYTES, 0);
    file.read_at(buffer, span.point_offset(range.start))?;
    for (at, bytes) in buffer.chunks_exact(P::BYTES).enumerate() {
        visit(at, bytes).map_err(|what| {
            let index = range.start + at;
            KeyError::Point {
                path: file.path().to_owned(),
                section: span.section,
                index: index as u64,
                offset: span.point_offset(index),
                what,
            }
        })?;
    }
    Ok(())
}

/// `len` points at infinity, in memory that the system hands out as zeros: its
/// pages are first touched by whoever writes the points, in parallel.
pub(crate) fn zeroed_points<P: Point>(len: usize) -> Vec<P> {
    let points: Box<[MaybeUninit<P>]> = Box::new_zeroed_slice(len);
    // SAFETY: `Point` is implemented for the affine points of blstrs only, plain
    // limbs for which all zeros is a valid value.
    unsafe { points.assume_init() }.into_vec()
}

/// Like [`zeroed_points`], to be shared once written.
pub(crate) fn zeroed_shared_points<P: Point>(len: usize) -> Arc<[P]> {
    let points: Arc<[MaybeUninit<P>]> = Arc::new_zeroed_slice(len);
    // SAFETY: as in `zeroed_points`.
    unsafe { points.assume_init() }
}
