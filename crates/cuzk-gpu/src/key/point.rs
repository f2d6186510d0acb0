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
    BLST_ERROR, blst_p1_affine, blst_p1_affine_in_g1, blst_p1_deserialize, blst_p2_affine,
    blst_p2_affine_in_g2, blst_p2_deserialize,
};
use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;
use rayon::prelude::*;

use crate::error::{KeyError, PointFault};
use crate::key::file::KeyFile;
use crate::key::section::{G1_BYTES, G2_BYTES, Span};

/// Set in the first byte of a point in the shorter, compressed encoding.
const COMPRESSED_FLAG: u8 = 0x80;
/// Set in the first byte of the point at infinity.
const INFINITY_FLAG: u8 = 0x40;
/// Set in the first byte of a compressed point for the larger of two roots.
const SIGN_FLAG: u8 = 0x20;

/// Points that one task reads and decodes at a time: buffers of 384 or 768 KiB.
const CHUNK_POINTS: usize = 4096;

/// A point of G1 or G2 as key files hold them.
pub(crate) trait Point: PrimeCurveAffine + Send + Sync + 'static {
    /// Bytes of a point in a file.
    const BYTES: usize;

    /// Decodes a point that is on the curve; it may lie outside the subgroup.
    fn decode(bytes: &[u8]) -> Result<Self, PointFault>;

    /// Whether a point on the curve is in the prime-order subgroup.
    fn is_in_subgroup(&self) -> bool;

    /// Encodes the point into `bytes`, [`Self::BYTES`](Point::BYTES) long.
    fn encode(&self, bytes: &mut [u8]);
}

/// Refuses infinity and every flag: key files hold neither infinity nor
/// compressed points, though the decoders underneath would take both.
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

fn check_decoded(outcome: BLST_ERROR) -> Result<(), PointFault> {
    match outcome {
        BLST_ERROR::BLST_SUCCESS => Ok(()),
        BLST_ERROR::BLST_POINT_NOT_ON_CURVE => Err(PointFault::NotOnCurve),
        // Said of points with x = 0, which have order three.
        BLST_ERROR::BLST_POINT_NOT_IN_GROUP => Err(PointFault::NotInSubgroup),
        _ => Err(PointFault::Encoding),
    }
}

impl Point for G1Affine {
    const BYTES: usize = G1_BYTES;

    fn decode(bytes: &[u8]) -> Result<Self, PointFault> {
        assert_eq!(bytes.len(), Self::BYTES, "bytes of one G1 point");
        check_flags(bytes)?;
        let mut point = Self::identity();
        let out: *mut blst_p1_affine = point.as_mut();
        // SAFETY: `out` is a live point and `bytes` holds the 96 bytes that the
        // function reads, as asserted above.
        check_decoded(unsafe { blst_p1_deserialize(out, bytes.as_ptr()) })?;
        Ok(point)
    }

    fn is_in_subgroup(&self) -> bool {
        // SAFETY: the reference is a live affine point.
        unsafe { blst_p1_affine_in_g1(self.as_ref()) }
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.to_uncompressed());
    }
}

impl Point for G2Affine {
    const BYTES: usize = G2_BYTES;

    fn decode(bytes: &[u8]) -> Result<Self, PointFault> {
        assert_eq!(bytes.len(), Self::BYTES, "bytes of one G2 point");
        check_flags(bytes)?;
        let mut point = Self::identity();
        let out: *mut blst_p2_affine = point.as_mut();
        // SAFETY: `out` is a live point and `bytes` holds the 192 bytes that the
        // function reads, as asserted above.
        check_decoded(unsafe { blst_p2_deserialize(out, bytes.as_ptr()) })?;
        Ok(point)
    }

    fn is_in_subgroup(&self) -> bool {
        // SAFETY: the reference is a live affine point.
        unsafe { blst_p2_affine_in_g2(self.as_ref()) }
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.to_uncompressed());
    }
}

/// Decodes the points from `start` on into `points`, in parallel.
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
    file.check_length()?;
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
                    chunk[at] = P::decode(bytes)?;
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
    subgroup: bool,
) -> Result<(), KeyError> {
    let fault = (0..span.count.div_ceil(CHUNK_POINTS))
        .into_par_iter()
        .map_init(Vec::new, |buffer, at| {
            let first = at * CHUNK_POINTS;
            let range = first..span.count.min(first + CHUNK_POINTS);
            each_encoded::<P>(file, span, range, buffer, |_, bytes| {
                check_point::<P>(bytes, subgroup).map(drop)
            })
        })
        .find_map_first(Result::err);
    fault.map_or(Ok(()), Err)
}

/// Decodes a point, with the subgroup check if asked for.
pub(crate) fn check_point<P: Point>(bytes: &[u8], subgroup: bool) -> Result<P, PointFault> {
    let point = P::decode(bytes)?;
    if subgroup && !point.is_in_subgroup() {
        return Err(PointFault::NotInSubgroup);
    }
    Ok(point)
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
