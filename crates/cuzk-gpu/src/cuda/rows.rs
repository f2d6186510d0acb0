//! Points as the device leaves them, to points of the curve.
//!
//! A row is a point in coordinates X, Y, ZZZ, ZZ with x = X / ZZ, y = Y / ZZZ and
//! ZZ^3 = ZZZ^2 (Sutherland's xyzz); both are zero at infinity. In Jacobian
//! coordinates that is (X ZZ, Y ZZZ, ZZ).

use blst::{blst_fp, blst_fp_mul, blst_fp2, blst_fp2_mul};
use blstrs::{G1Projective, G2Projective};
use group::Group;

/// A group whose rows the device makes.
pub(super) trait RowPoint: Group {
    /// 64-bit words of a row.
    const WORDS: usize;

    /// The point of a row.
    fn from_row(row: &[u64]) -> Self;
}

fn element(words: &[u64]) -> blst_fp {
    blst_fp {
        l: words.try_into().expect("six limbs"),
    }
}

fn element2(words: &[u64]) -> blst_fp2 {
    blst_fp2 {
        fp: [element(&words[..6]), element(&words[6..])],
    }
}

impl RowPoint for G1Projective {
    const WORDS: usize = 4 * 6;

    fn from_row(row: &[u64]) -> Self {
        let [x, y, zzz, zz] = [0, 1, 2, 3].map(|at| element(&row[at * 6..][..6]));
        let mut point = Self::identity();
        let raw = point.as_mut();
        // SAFETY: all are live field elements; the results are distinct from them.
        unsafe {
            blst_fp_mul(&mut raw.x, &x, &zz);
            blst_fp_mul(&mut raw.y, &y, &zzz);
        }
        raw.z = zz;
        point
    }
}

impl RowPoint for G2Projective {
    const WORDS: usize = 4 * 12;

    fn from_row(row: &[u64]) -> Self {
        let [x, y, zzz, zz] = [0, 1, 2, 3].map(|at| element2(&row[at * 12..][..12]));
        let mut point = Self::identity();
        let raw = point.as_mut();
        // SAFETY: all are live field elements; the results are distinct from them.
        unsafe {
            blst_fp2_mul(&mut raw.x, &x, &zz);
            blst_fp2_mul(&mut raw.y, &y, &zzz);
        }
        raw.z = zz;
        point
    }
}

/// The sum that rows stand for: chunk by chunk one point a window of
/// `window_bits`, lowest window first.
pub(super) fn combine<P: RowPoint>(rows: &[u64], windows: usize, window_bits: u32) -> P {
    let chunk_words = windows * P::WORDS;
    let mut sum = P::identity();
    for window in (0..windows).rev() {
        for _ in 0..window_bits {
            sum = sum.double();
        }
        for chunk in rows.chunks_exact(chunk_words) {
            sum += P::from_row(&chunk[window * P::WORDS..][..P::WORDS]);
        }
    }
    sum
}
