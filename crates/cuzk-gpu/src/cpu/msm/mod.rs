//! Multi-scalar multiplication: the sum of points times scalars, in G1 and G2.
//!
//! Half of a Filecoin witness is zero and nearly all the rest is one, so terms are
//! told apart first: zeros are skipped, the points of ones are added as they are,
//! and what is left goes through Pippenger's method with signed digits and affine
//! bucket sums (`buckets`, `batch`).
//!
//! Any number of terms and any points will do, identities, repeated and opposite
//! ones included. Memory beside the arguments stays within [`work_bytes`] whatever
//! the number of terms: scalars are converted a block at a time and buckets are
//! kept from block to block.

mod batch;
mod buckets;
mod point;
#[cfg(test)]
mod tests;

use std::sync::Mutex;

use blst::{blst_fr, blst_fr_from};
use blstrs::Scalar;
use ff::Field;
use group::Group;
use rayon::prelude::*;

use crate::cpu::msm::buckets::{Buckets, ENTRY_BYTES, Entries, NEGATIVE, Scratch, Windows};
pub use crate::cpu::msm::point::Point;
use crate::shape::Bitmap;

/// Scalars told apart by one thread in one go.
const BLOCK_LEN: usize = 1 << 13;
/// Entries of a group that are collected before they are added into buckets.
const ROUND_LEN: usize = 1 << 16;
/// Widest digit: 2^16 buckets in each of 15 windows, 94 MB in G1.
const WINDOW_BITS_MAX: u32 = 17;

/// Which scalars have a point.
#[derive(Clone, Copy, Debug)]
pub enum Density<'a> {
    /// Every one.
    Full,
    /// Those whose bit is set; points stand in the order of the set bits.
    Set(&'a Bitmap),
}

impl Density<'_> {
    /// Number of points that go with `scalars` scalars.
    pub fn points(&self, scalars: usize) -> usize {
        match self {
            Density::Full => scalars,
            Density::Set(bitmap) => bitmap.ones(),
        }
    }
}

/// Most bytes that [`msm`] takes on `threads` threads for up to `terms` points of
/// `point_bytes` bytes: buckets, entries waiting for a round, and each thread's
/// scratch.
pub fn work_bytes(terms: usize, threads: usize, point_bytes: usize) -> u64 {
    // What is expected of a block is extrapolated from whole blocks.
    let terms = terms.div_ceil(BLOCK_LEN) * BLOCK_LEN;
    let waiting = (groups(threads) * ROUND_LEN + superblock(threads)).min(terms);
    // Vectors that grow may be twice as long as they are full.
    let entries = 2 * waiting * ENTRY_BYTES;
    let with_groups = |groups| {
        let windows = cheapest_windows(terms as u64, groups);
        let buckets = groups * windows.count * windows.buckets() * point_bytes;
        buckets + threads * buckets::scratch_bytes(waiting, windows, point_bytes)
    };
    let rest = (1..=groups(threads)).map(with_groups).max().unwrap_or(0);
    (entries + rest) as u64
}

/// The windows with which `groups` sets of buckets sum `expected` entries with the
/// fewest multiplications: six and a half an affine addition, and for each bucket
/// one mixed and one full projective addition.
fn cheapest_windows(expected: u64, groups: usize) -> Windows {
    (2..=WINDOW_BITS_MAX)
        .map(Windows::new)
        .min_by_key(|windows| {
            let buckets = (windows.buckets() * groups) as u64;
            windows.count as u64 * (expected * 13 + buckets * 54)
        })
        .expect("the range is not empty")
}

/// The sum of `points[i]` times the `i`-th scalar that has a point, on the current
/// rayon pool.
///
/// # Panics
/// If the number of points is not what the density says, if a bitmap and the
/// scalars differ in length, or if there are 2^31 points or more.
pub fn msm<P: Point>(points: &[P], scalars: &[Scalar], density: Density<'_>) -> P::Curve {
    if let Density::Set(bitmap) = density {
        assert_eq!(bitmap.len(), scalars.len(), "a bit for each scalar");
    }
    assert_eq!(
        points.len(),
        density.points(scalars.len()),
        "a point for each scalar of the density"
    );
    assert!(points.len() < NEGATIVE as usize, "point indices of 31 bits");

    let threads = rayon::current_num_threads();
    let groups = groups(threads);
    let firsts = first_points(scalars.len(), density);
    let mut ones = P::Curve::identity();
    let mut pending: Vec<Entries> = Vec::new();
    let mut pending_len = 0;
    let mut pippenger: Option<Pippenger<P>> = None;

    let mut taken = 0;
    for blocks in firsts.chunks(superblock(threads) / BLOCK_LEN) {
        let first_scalar = taken * BLOCK_LEN;
        let sorted: Vec<(P::Curve, Entries)> = blocks
            .par_iter()
            .enumerate()
            .map(|(at, &first_point)| {
                let start = first_scalar + at * BLOCK_LEN;
                let end = scalars.len().min(start + BLOCK_LEN);
                sort_block(points, first_point, &scalars[start..end], start, density)
            })
            .collect();
        taken += blocks.len();
        for (sum, entries) in sorted {
            ones += sum;
            pending_len += entries.points.len();
            pending.push(entries);
        }
        let is_last = taken == firsts.len();
        if pending_len >= groups * ROUND_LEN || (is_last && pending_len > 0) {
            let pippenger = pippenger.get_or_insert_with(|| {
                // What is left is taken to look like what has been seen.
                let expected = pending_len as u128 * firsts.len() as u128 / taken as u128;
                Pippenger::new(expected as u64, pending_len, groups)
            });
            pippenger.accumulate(&pending, points);
            pending.clear();
            pending_len = 0;
        }
    }
    match pippenger {
        Some(pippenger) => ones + pippenger.total(),
        None => ones,
    }
}

/// Sets of buckets: one for each 16 threads, about one thread a window.
fn groups(threads: usize) -> usize {
    threads.div_ceil(16)
}

/// Scalars that all threads together tell apart between two rounds.
fn superblock(threads: usize) -> usize {
    threads * 2 * BLOCK_LEN
}

/// The index of the first point of each block of scalars.
fn first_points(scalars: usize, density: Density<'_>) -> Vec<usize> {
    let blocks = scalars.div_ceil(BLOCK_LEN);
    match density {
        Density::Full => (0..blocks).map(|block| block * BLOCK_LEN).collect(),
        Density::Set(bitmap) => bitmap
            .words()
            .chunks(BLOCK_LEN / 64)
            .scan(0, |next, words| {
                let first = *next;
                *next += words
                    .iter()
                    .map(|word| word.count_ones() as usize)
                    .sum::<usize>();
                Some(first)
            })
            .collect(),
    }
}

/// Tells the scalars of one block apart: the sum of the points of ones, and the
/// entries for Pippenger's method. `start` is the index of the block's first scalar.
fn sort_block<P: Point>(
    points: &[P],
    first_point: usize,
    scalars: &[Scalar],
    start: usize,
    density: Density<'_>,
) -> (P::Curve, Entries) {
    let mut ones: Vec<&P> = Vec::new();
    let mut entries = Entries::default();
    let mut sort = |point: usize, scalar: &Scalar| {
        if *scalar == Scalar::ONE {
            ones.push(&points[point]);
        } else if !scalar.is_zero_vartime() {
            let (limbs, is_negated) = halved(*scalar);
            entries.limbs.push(limbs);
            let sign = if is_negated { NEGATIVE } else { 0 };
            entries.points.push(point as u32 | sign);
        }
    };
    match density {
        Density::Full => {
            for (at, scalar) in scalars.iter().enumerate() {
                sort(first_point + at, scalar);
            }
        }
        Density::Set(bitmap) => {
            let mut point = first_point;
            let words = &bitmap.words()[start / 64..];
            for (scalars, &word) in scalars.chunks(64).zip(words) {
                let mut rest = word;
                while rest != 0 {
                    sort(point, &scalars[rest.trailing_zeros() as usize]);
                    point += 1;
                    rest &= rest - 1;
                }
            }
        }
    }
    (P::sum(&ones), entries)
}

/// The modulus of the scalar field, little-endian limbs.
const MODULUS: [u64; 4] = [
    0xffff_ffff_0000_0001,
    0x53bd_a402_fffe_5bfe,
    0x3339_d808_09a1_d805,
    0x73ed_a753_299d_7d48,
];

/// The scalar, or its negation where that is smaller, as an integer; and whether
/// it was negated.
#[inline]
fn halved(scalar: Scalar) -> ([u64; 4], bool) {
    let mut integer = blst_fr::default();
    // SAFETY: both are live field elements.
    unsafe { blst_fr_from(&mut integer, &blst_fr::from(scalar)) };
    let negated = subtract(&MODULUS, &integer.l);
    let is_smaller = negated.iter().rev().lt(integer.l.iter().rev());
    if is_smaller {
        (negated, true)
    } else {
        (integer.l, false)
    }
}

/// `left - right`, where `right` is not larger.
#[inline]
fn subtract(left: &[u64; 4], right: &[u64; 4]) -> [u64; 4] {
    let mut result = [0; 4];
    let mut borrow = false;
    for at in 0..4 {
        let (difference, under) = left[at].overflowing_sub(right[at]);
        let (difference, under_again) = difference.overflowing_sub(u64::from(borrow));
        result[at] = difference;
        borrow = under || under_again;
    }
    result
}

/// Buckets of all windows, in `groups` sets that different threads fill.
struct Pippenger<P: Point> {
    windows: Windows,
    /// Set by set, each with its windows from the lowest on.
    buckets: Vec<Buckets<P>>,
    scratches: Mutex<Vec<Scratch<P>>>,
}

impl<P: Point> Pippenger<P> {
    /// For about `expected` entries, of which the first round has `first`.
    fn new(expected: u64, first: usize, groups: usize) -> Self {
        // A round smaller than a set's share needs no more than one set.
        let groups = groups.min(first.div_ceil(ROUND_LEN).max(1));
        let windows = cheapest_windows(expected, groups);
        Self {
            windows,
            buckets: (0..groups * windows.count)
                .into_par_iter()
                .map(|_| Buckets::new(windows))
                .collect(),
            scratches: Mutex::default(),
        }
    }

    /// Adds one round of entries.
    fn accumulate(&mut self, blocks: &[Entries], points: &[P]) {
        let (windows, buckets) = (self.windows, &mut self.buckets);
        let scratches = &self.scratches;
        let groups = buckets.len() / windows.count;
        let share = blocks.len().div_ceil(groups);
        buckets
            .par_iter_mut()
            .enumerate()
            .for_each(|(at, buckets)| {
                let (group, window) = (at / windows.count, at % windows.count);
                let start = blocks.len().min(group * share);
                let end = blocks.len().min(start + share);
                // A panic of another thread may have poisoned the lock; what is in
                // the list is whole all the same.
                let lock = || {
                    scratches
                        .lock()
                        .unwrap_or_else(|poison| poison.into_inner())
                };
                let kept = lock().pop();
                let mut scratch = kept.unwrap_or_else(Scratch::new);
                buckets.accumulate(
                    blocks[start..end].iter(),
                    points,
                    windows,
                    window,
                    &mut scratch,
                );
                lock().push(scratch);
            });
    }

    /// The sum over all windows.
    fn total(&self) -> P::Curve {
        let totals: Vec<P::Curve> = self.buckets.par_iter().map(Buckets::total).collect();
        let mut sum = P::Curve::identity();
        for window in (0..self.windows.count).rev() {
            for _ in 0..self.windows.bits {
                sum = sum.double();
            }
            for group in totals.chunks(self.windows.count) {
                sum += group[window];
            }
        }
        sum
    }
}
