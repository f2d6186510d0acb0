//! Many multiples of one point, for key generation: there all points of a key are
//! multiples of the two generators.
//!
//! A scalar is written in signed digits of `w` bits, `|digit| <= 2^(w-1)`, and a
//! table holds `d * 2^(w i)` times the base for each window `i` and each positive
//! digit `d`. A product is then one table entry a window, with its sign. Scalars
//! past half the group order are negated first, so that 255 bits in all are
//! enough, carry included. Scalars are taken a batch at a time, and each window's
//! additions share one field inversion.
//!
//! A product is about `255 / w` additions of six field multiplications each.
//! Nothing here runs in constant time: the scalars of test keys are no secret.

mod affine;
mod tables;

#[cfg(test)]
mod tests;

use std::fmt;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::PrimeField;
use rayon::prelude::*;

pub use affine::{AffinePoint, Coordinate};
use affine::{BatchAdder, shifted_bases};
pub use tables::{Block, Multiples, Multiplier, OnCpu};

/// The table of a G1 base.
pub type FixedBaseG1 = FixedBase<G1Affine>;
/// The table of a G2 base.
pub type FixedBaseG2 = FixedBase<G2Affine>;

/// Smallest window: one bit more than a sign.
pub const WINDOW_BITS_MIN: u32 = 2;
/// Largest window: a table of 654 MB in G1, twice that in G2.
pub const WINDOW_BITS_MAX: u32 = 20;

/// Largest window that [`window_bits_for`] chooses: a table of 94 MB in G1, twice
/// that in G2.
pub const WINDOW_BITS_DEFAULT_MAX: u32 = 17;

/// Bits that the digits of a scalar cover: 254 of the absolute value and a carry.
const DIGIT_BITS: u32 = 255;
/// Scalars that share an inversion; their sums, addends and differences, about
/// 330 KB in G1, stay in a core's second-level cache.
const BATCH_SCALARS: usize = 1024;

/// Multiples of one base: `windows * 2^(window_bits - 1)` affine points.
pub struct FixedBase<P> {
    window_bits: u32,
    windows: usize,
    /// Window after window, each the multiples 1, 2, … 2^(window_bits - 1) of its
    /// shifted base.
    table: Vec<P>,
}

/// The window for which a table and `count` products of it take the fewest
/// additions. It is at most [`WINDOW_BITS_DEFAULT_MAX`]; a larger one, given
/// directly, saves an eighth more for seven times the memory.
pub fn window_bits_for(count: usize) -> u32 {
    let additions = |bits: u32| {
        let products = windows(bits) as u128 * count as u128;
        products + table_len(bits) as u128
    };
    (WINDOW_BITS_MIN..=WINDOW_BITS_DEFAULT_MAX)
        .min_by_key(|bits| additions(*bits))
        .expect("the range holds a window")
}

fn windows(window_bits: u32) -> usize {
    DIGIT_BITS.div_ceil(window_bits) as usize
}

fn table_len(window_bits: u32) -> usize {
    windows(window_bits) << (window_bits - 1)
}

impl<P: AffinePoint + Send + Sync> FixedBase<P> {
    /// Computes the table, in parallel over its windows.
    ///
    /// # Panics
    /// If `window_bits` is outside [`WINDOW_BITS_MIN`]`..=`[`WINDOW_BITS_MAX`].
    pub fn new(base: P, window_bits: u32) -> Self {
        assert!(
            (WINDOW_BITS_MIN..=WINDOW_BITS_MAX).contains(&window_bits),
            "a window of {window_bits} bits"
        );
        let windows = windows(window_bits);
        let multiples = 1 << (window_bits - 1);
        let bases = shifted_bases(base, window_bits, windows);
        let mut table = vec![P::identity(); table_len(window_bits)];
        table
            .par_chunks_exact_mut(multiples)
            .zip(&bases)
            .for_each(|(row, base)| fill_multiples(row, *base));
        Self {
            window_bits,
            windows,
            table,
        }
    }

    /// Bits of a window.
    pub fn window_bits(&self) -> u32 {
        self.window_bits
    }

    /// Bytes of the table.
    pub fn table_bytes(&self) -> u64 {
        size_of_val(self.table.as_slice()) as u64
    }

    /// Writes `scalar * base` to `products`, scalar for scalar, in parallel. Zero
    /// scalars give the point at infinity.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn mul_many(&self, scalars: &[Scalar], products: &mut [P]) {
        assert_eq!(scalars.len(), products.len(), "a product for each scalar");
        // Few scalars are spread over the threads, with smaller batches.
        let share = scalars.len().div_ceil(rayon::current_num_threads());
        let batch = share.clamp(1, BATCH_SCALARS);
        scalars
            .par_chunks(batch)
            .zip(products.par_chunks_mut(batch))
            .for_each_init(
                || Batch::new(self.windows * batch),
                |work, (scalars, products)| self.mul_batch(scalars, products, work),
            );
    }

    fn mul_batch(&self, scalars: &[Scalar], products: &mut [P], work: &mut Batch<P>) {
        let len = scalars.len();
        let digits = &mut work.digits[..self.windows * len];
        for (index, scalar) in scalars.iter().enumerate() {
            let slots = digits[index..].iter_mut().step_by(len);
            write_digits(scalar, self.window_bits, slots);
        }
        products.fill(P::identity());
        let multiples = 1 << (self.window_bits - 1);
        let rows = self.table.chunks_exact(multiples);
        for (row, digits) in rows.zip(digits.chunks_exact(len)) {
            // Fetched before anything is computed with them, so that the memory's
            // latencies overlap.
            work.addends.clear();
            work.addends
                .extend(digits.iter().map(|digit| absolute_multiple(row, *digit)));
            for (addend, digit) in work.addends.iter_mut().zip(digits) {
                *addend = addend.negated_if(*digit < 0);
            }
            work.adder.add(products, &work.addends);
        }
    }
}

impl<P> fmt::Debug for FixedBase<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedBase")
            .field("window_bits", &self.window_bits)
            .field("windows", &self.windows)
            .finish_non_exhaustive()
    }
}

/// One thread's working memory.
struct Batch<P: AffinePoint> {
    /// Digits of the batch, window after window.
    digits: Vec<i32>,
    addends: Vec<P>,
    adder: BatchAdder<P>,
}

impl<P: AffinePoint> Batch<P> {
    fn new(digits: usize) -> Self {
        Self {
            digits: vec![0; digits],
            addends: Vec::new(),
            adder: BatchAdder::new(),
        }
    }
}

/// `|digit|` times the base of a row.
fn absolute_multiple<P: AffinePoint>(row: &[P], digit: i32) -> P {
    match digit.unsigned_abs() as usize {
        0 => P::identity(),
        magnitude => row[magnitude - 1],
    }
}

/// For each window of unsigned digits the multiples 0, 1, 2, … of the shifted base:
/// `2^window_bits` points a window, for devices, which gain nothing by a sign.
#[cfg(feature = "cuda")]
pub(crate) fn unsigned_table<P: AffinePoint + Send + Sync>(base: P, window_bits: u32) -> Vec<P> {
    let windows = windows(window_bits);
    let multiples = 1 << window_bits;
    let bases = shifted_bases(base, window_bits, windows);
    let mut table = vec![P::identity(); windows * multiples];
    table
        .par_chunks_exact_mut(multiples)
        .zip(&bases)
        .for_each(|(row, base)| fill_multiples(&mut row[1..], *base));
    table
}

/// Fills `row` with the multiples 1, 2, … of `base`: the known ones plus the
/// largest of them are as many again.
fn fill_multiples<P: AffinePoint>(row: &mut [P], base: P) {
    row[0] = base;
    let mut adder = BatchAdder::new();
    let mut known = 1;
    while known < row.len() {
        let (have, rest) = row.split_at_mut(known);
        let new = rest.len().min(known);
        let largest = have[known - 1];
        for (sums, known) in rest[..new]
            .chunks_mut(BATCH_SCALARS)
            .zip(have.chunks(BATCH_SCALARS))
        {
            sums.copy_from_slice(&known[..sums.len()]);
            adder.add(sums, &vec![largest; sums.len()]);
        }
        known += new;
    }
}

/// Writes the signed digits of a scalar, lowest window first.
fn write_digits<'a>(scalar: &Scalar, window_bits: u32, slots: impl Iterator<Item = &'a mut i32>) {
    let (limbs, is_negated) = absolute(scalar);
    let half = 1_u64 << (window_bits - 1);
    let mut carry = 0;
    for (slot, window) in slots.zip(0..) {
        let raw = bits(&limbs, window * window_bits, window_bits) + carry;
        carry = u64::from(raw > half);
        // At most 2^20 either way.
        let digit = raw as i32 - ((carry as i32) << window_bits);
        *slot = if is_negated { -digit } else { digit };
    }
    debug_assert_eq!(carry, 0, "the top window has a bit to spare");
}

/// The smaller of a scalar and its negative, below 2^254, as little-endian limbs,
/// and whether it is the negative.
fn absolute(scalar: &Scalar) -> ([u64; 4], bool) {
    let positive = limbs(scalar);
    let negative = limbs(&-scalar);
    if negative.iter().rev().lt(positive.iter().rev()) {
        (negative, true)
    } else {
        (positive, false)
    }
}

fn limbs(scalar: &Scalar) -> [u64; 4] {
    let bytes = scalar.to_repr();
    std::array::from_fn(|at| {
        let limb = bytes[8 * at..8 * at + 8].try_into();
        u64::from_le_bytes(limb.expect("eight bytes"))
    })
}

/// `count` bits from bit `start` on, `count < 64`; bits past the end are zero.
fn bits(limbs: &[u64; 4], start: u32, count: u32) -> u64 {
    let (at, shift) = ((start / 64) as usize, start % 64);
    let low = limbs.get(at).map_or(0, |limb| limb >> shift);
    let high = match limbs.get(at + 1) {
        Some(limb) if shift != 0 => limb << (64 - shift),
        _ => 0,
    };
    (low | high) & ((1 << count) - 1)
}
