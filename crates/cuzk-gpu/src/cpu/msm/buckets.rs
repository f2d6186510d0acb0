//! The buckets of one window and how entries are added into them.

use blstrs::Scalar;
use ff::PrimeField;
use group::Group;

use crate::cpu::msm::batch::{BatchAdder, is_identity};
use crate::cpu::msm::point::{Coordinate, Point};

/// Marks a sum that goes to the scratch points and not to a bucket.
const TO_SCRATCH: u32 = 1 << 31;
/// Marks a point that is subtracted. Point indices stay below this.
pub(super) const NEGATIVE: u32 = 1 << 31;

/// Terms of a sum whose scalar is neither zero nor one.
#[derive(Default)]
pub(super) struct Entries {
    /// Scalars up to half the modulus, little-endian limbs.
    pub(super) limbs: Vec<[u64; 4]>,
    /// Index of each term's point, with [`NEGATIVE`] where its scalar was above
    /// half the modulus and has been negated.
    pub(super) points: Vec<u32>,
}

/// Bits of the largest scalar in [`Entries`]: half the modulus has 254.
const SCALAR_BITS: u32 = Scalar::NUM_BITS - 1;

/// How scalars are cut into signed digits of `bits` bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    pub(super) bits: u32,
    pub(super) count: usize,
}

impl Windows {
    /// The cut into digits of `bits` bits. One bit more than the scalars have is
    /// covered, so that the last digit is never negative.
    pub(super) fn new(bits: u32) -> Self {
        Self {
            bits,
            count: (SCALAR_BITS + 1).div_ceil(bits) as usize,
        }
    }

    /// Number of buckets of a window: digits reach `2^(bits - 1)` either way.
    pub(super) fn buckets(&self) -> usize {
        1 << (self.bits - 1)
    }

    /// The digit of `window`, from `-2^(bits - 1)` to `2^(bits - 1)`: the window's
    /// bits plus the highest bit below them, less `2^bits` if its own highest bit
    /// is set (Booth's recoding, so no carry runs through the windows).
    #[inline]
    fn digit(&self, limbs: &[u64; 4], window: usize) -> i32 {
        let below = window as u32 * self.bits;
        let mask = (1u64 << (self.bits + 1)) - 1;
        let taken = if below == 0 {
            limbs[0] << 1
        } else {
            let first = below - 1;
            let (limb, bit) = ((first / 64) as usize, first % 64);
            let low = limbs.get(limb).map_or(0, |limb| limb >> bit);
            let high = match bit {
                0 => 0,
                _ => limbs.get(limb + 1).map_or(0, |limb| limb << (64 - bit)),
            };
            low | high
        } & mask;
        let digit = ((taken + 1) >> 1) as i32;
        if taken >> self.bits == 1 {
            digit - (1 << self.bits)
        } else {
            digit
        }
    }
}

/// Working memory of one thread, kept from one call to the next.
pub(super) struct Scratch<P: Point> {
    adder: BatchAdder<P>,
    /// Buckets' positions in `order`.
    offsets: Vec<u32>,
    digits: Vec<i32>,
    /// Point indices sorted by bucket.
    order: Vec<u32>,
    /// Partial sums of buckets with more than two terms.
    sums: Vec<P>,
    segments: Vec<Segment>,
}

/// Partial sums of one bucket, in `sums[start..start + len]`.
#[derive(Clone, Copy)]
struct Segment {
    bucket: u32,
    start: usize,
    len: usize,
}

impl<P: Point> Scratch<P> {
    pub(super) fn new() -> Self {
        Self {
            adder: BatchAdder::new(),
            offsets: Vec::new(),
            digits: Vec::new(),
            order: Vec::new(),
            sums: Vec::new(),
            segments: Vec::new(),
        }
    }
}

/// The buckets of one window: bucket `d - 1` is the sum of the points with digit
/// `d`, less those with digit `-d`.
pub(super) struct Buckets<P> {
    sums: Vec<P>,
}

impl<P: Point> Buckets<P> {
    pub(super) fn new(windows: Windows) -> Self {
        Self {
            sums: vec![P::identity(); windows.buckets()],
        }
    }

    /// Adds the points of all entries into the buckets of `window`.
    ///
    /// Terms are sorted by bucket and added in pairs, so that all additions of a
    /// round are independent and one bucket with all the terms costs no more than
    /// many buckets with one.
    pub(super) fn accumulate<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Entries> + Clone,
        points: &[P],
        windows: Windows,
        window: usize,
        scratch: &mut Scratch<P>,
    ) {
        sort_by_bucket(entries, windows, window, scratch);
        self.first_round(points, scratch);
        while !scratch.segments.is_empty() {
            self.next_round(scratch);
        }
    }

    /// Adds the sorted points in pairs, each bucket's old sum before its points.
    fn first_round(&mut self, points: &[P], scratch: &mut Scratch<P>) {
        let Scratch {
            adder,
            offsets,
            order,
            sums,
            segments,
            ..
        } = scratch;
        sums.clear();
        segments.clear();
        let mut first = 0;
        for (bucket, &end) in offsets.iter().enumerate() {
            let terms = &order[first as usize..end as usize];
            first = end;
            let Some((&lead, rest)) = terms.split_first() else {
                continue;
            };
            let lead = signed(points, lead);
            let old = self.sums[bucket];
            let (mut left, rest, len) = if is_identity(&old) {
                (lead, rest, terms.len())
            } else {
                // The old sum and the first point are the first pair.
                (old, terms, terms.len() + 1)
            };
            let Some((&right, rest)) = rest.split_first() else {
                self.sums[bucket] = left;
                continue;
            };
            let mut right = signed(points, right);
            let start = sums.len();
            let halved = len.div_ceil(2);
            if halved > 1 {
                sums.resize(start + halved, P::identity());
                segments.push(Segment {
                    bucket: bucket as u32,
                    start,
                    len: halved,
                });
            }
            let target = |at: usize| match halved {
                1 => bucket as u32,
                _ => TO_SCRATCH | (start + at) as u32,
            };
            let pairs = rest.chunks_exact(2);
            if let [last] = pairs.remainder() {
                sums[start + halved - 1] = signed(points, *last);
            }
            for (at, next) in pairs.map(Some).chain([None]).enumerate() {
                if let Some(sum) = adder.add(&left, &right, target(at)) {
                    store(&mut self.sums, sums, target(at), sum);
                }
                if adder.is_full() {
                    adder.flush(|target, sum| store(&mut self.sums, sums, target, sum));
                }
                if let Some(next) = next {
                    left = signed(points, next[0]);
                    right = signed(points, next[1]);
                }
            }
        }
        adder.flush(|target, sum| store(&mut self.sums, sums, target, sum));
    }

    /// Halves the number of partial sums of every bucket that still has several.
    fn next_round(&mut self, scratch: &mut Scratch<P>) {
        let Scratch {
            adder,
            sums,
            segments,
            ..
        } = scratch;
        segments.retain_mut(|segment| {
            let Segment { bucket, start, len } = *segment;
            let halved = len.div_ceil(2);
            for at in 0..len / 2 {
                let target = match halved {
                    1 => bucket,
                    _ => TO_SCRATCH | (start + at) as u32,
                };
                // The adder keeps its own copy of both, so a sum may be stored
                // over points of this round that have been queued already.
                let (left, right) = (sums[start + 2 * at], sums[start + 2 * at + 1]);
                if let Some(sum) = adder.add(&left, &right, target) {
                    store(&mut self.sums, sums, target, sum);
                }
                if adder.is_full() {
                    adder.flush(|target, sum| store(&mut self.sums, sums, target, sum));
                }
            }
            if len % 2 == 1 {
                sums[start + halved - 1] = sums[start + len - 1];
            }
            segment.len = halved;
            halved > 1
        });
        adder.flush(|target, sum| store(&mut self.sums, sums, target, sum));
    }

    /// The window's value: each bucket times its digit.
    pub(super) fn total(&self) -> P::Curve {
        let mut running = P::Curve::identity();
        let mut total = P::Curve::identity();
        for sum in self.sums.iter().rev() {
            if !is_identity(sum) {
                running += sum;
            }
            total += running;
        }
        total
    }
}

/// Fills `scratch.order` and `scratch.offsets`: afterwards an offset is the end of
/// its bucket.
fn sort_by_bucket<'a, P: Point>(
    entries: impl Iterator<Item = &'a Entries> + Clone,
    windows: Windows,
    window: usize,
    scratch: &mut Scratch<P>,
) {
    let Scratch {
        offsets,
        digits,
        order,
        ..
    } = scratch;
    offsets.clear();
    offsets.resize(windows.buckets(), 0);
    digits.clear();
    for limbs in entries.clone().flat_map(|entries| &entries.limbs) {
        let digit = windows.digit(limbs, window);
        if digit != 0 {
            offsets[digit.unsigned_abs() as usize - 1] += 1;
        }
        digits.push(digit);
    }
    let mut start = 0;
    for offset in offsets.iter_mut() {
        let count = *offset;
        *offset = start;
        start += count;
    }
    order.clear();
    order.resize(start as usize, 0);
    let points = entries.flat_map(|entries| &entries.points);
    for (&digit, &point) in digits.iter().zip(points) {
        if digit != 0 {
            let offset = &mut offsets[digit.unsigned_abs() as usize - 1];
            order[*offset as usize] = if digit < 0 { point ^ NEGATIVE } else { point };
            *offset += 1;
        }
    }
}

/// The point of a term, negated where the term says so.
#[inline]
fn signed<P: Point>(points: &[P], term: u32) -> P {
    let point = points[(term & !NEGATIVE) as usize];
    if term & NEGATIVE == 0 {
        point
    } else {
        P::from_coordinates(*point.x(), point.y().neg())
    }
}

/// Stores a sum where its target says.
#[inline]
fn store<P>(buckets: &mut [P], scratch: &mut [P], target: u32, sum: P) {
    if target & TO_SCRATCH == 0 {
        buckets[target as usize] = sum;
    } else {
        scratch[(target & !TO_SCRATCH) as usize] = sum;
    }
}
