//! The buckets of one window and how entries are added into them.

use std::ops::Range;

use blstrs::Scalar;
use ff::PrimeField;
use group::Group;

use crate::cpu::msm::batch::{self, BatchAdder, is_identity};
use crate::cpu::msm::point::{Coordinate, Point};

/// Marks a sum that goes to the scratch points and not to a bucket.
const TO_SCRATCH: u32 = 1 << 31;
/// Marks a point that is subtracted. Point indices stay below this.
pub(super) const NEGATIVE: u32 = 1 << 31;

/// Terms that are added into buckets together.
const SLICE_LEN: usize = 1 << 11;
/// Terms of the next slice whose memory is asked for with each addition.
const PREFETCH_LEN: usize = 3;

/// Terms of a sum whose scalar is neither zero nor one.
#[derive(Default)]
pub(super) struct Entries {
    /// Scalars up to half the modulus, little-endian limbs.
    pub(super) limbs: Vec<[u64; 4]>,
    /// Index of each term's point, with [`NEGATIVE`] where its scalar was above
    /// half the modulus and has been negated.
    pub(super) points: Vec<u32>,
}

/// Bytes of one entry: a scalar and a point's index.
pub(super) const ENTRY_BYTES: usize = 36;

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
    pub(super) fn digit(&self, limbs: &[u64; 4], window: usize) -> i32 {
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
    /// Terms of a slice, then their partial sums.
    sums: Vec<P>,
    segments: Vec<Segment>,
}

/// Most bytes of one thread's [`Scratch`] for rounds of `terms` terms.
pub(super) fn scratch_bytes(terms: usize, windows: Windows, point_bytes: usize) -> usize {
    let sorting = 4 * (2 * terms + windows.buckets());
    let slice = 2 * SLICE_LEN * (point_bytes + size_of::<Segment>());
    sorting + 2 * slice + batch::scratch_bytes(point_bytes)
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
    /// many buckets with one. That goes slice by slice of the sorted terms, so that
    /// the partial sums stay in cache; a slice may end inside a bucket, whose sum
    /// so far then is one more term of the next.
    pub(super) fn accumulate<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Entries> + Clone,
        points: &[P],
        windows: Windows,
        window: usize,
        scratch: &mut Scratch<P>,
    ) {
        sort_by_bucket(entries, windows, window, scratch);
        let (mut from, mut bucket) = (0, 0);
        while from < scratch.order.len() {
            let to = scratch.order.len().min(from + SLICE_LEN);
            bucket = self.gather(points, from..to, bucket, scratch);
            from = to;
            // Points lie anywhere in a key of gigabytes. Their memory is asked for
            // a slice in advance, a few points an addition, or waiting for it
            // would take as long as adding.
            let mut ahead = to..scratch.order.len().min(to + SLICE_LEN);
            while !scratch.segments.is_empty() {
                self.add_pairs(scratch, points, &mut ahead);
            }
        }
    }

    /// Copies a slice of the sorted terms into `scratch.sums`, each bucket's old sum
    /// before its points. `bucket` is where the slice before ended; returns where
    /// this one does.
    fn gather(
        &mut self,
        points: &[P],
        slice: Range<usize>,
        mut bucket: usize,
        scratch: &mut Scratch<P>,
    ) -> usize {
        let Scratch {
            offsets,
            order,
            sums,
            segments,
            ..
        } = scratch;
        sums.clear();
        segments.clear();
        let mut from = slice.start;
        while from < slice.end {
            while offsets[bucket] as usize <= from {
                bucket += 1;
            }
            let to = slice.end.min(offsets[bucket] as usize);
            let start = sums.len();
            if !is_identity(&self.sums[bucket]) {
                sums.push(self.sums[bucket]);
            }
            let terms = &order[from..to];
            sums.extend(terms.iter().map(|&term| signed(points, term)));
            match sums.len() - start {
                1 => self.sums[bucket] = sums[start],
                len => segments.push(Segment {
                    bucket: bucket as u32,
                    start,
                    len,
                }),
            }
            from = to;
        }
        bucket
    }

    /// Halves the number of partial sums of every bucket that still has several,
    /// and meanwhile asks for the memory of the terms `ahead`.
    fn add_pairs(&mut self, scratch: &mut Scratch<P>, points: &[P], ahead: &mut Range<usize>) {
        let Scratch {
            adder,
            order,
            sums,
            segments,
            ..
        } = scratch;
        segments.retain_mut(|segment| {
            let Segment { bucket, start, len } = *segment;
            let halved = len.div_ceil(2);
            for at in 0..len / 2 {
                for term in ahead.by_ref().take(PREFETCH_LEN) {
                    prefetch(&points[(order[term] & !NEGATIVE) as usize]);
                }
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

/// Asks for the memory of a point, where the machine has a way to ask.
#[inline]
fn prefetch<P>(point: &P) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        let start = std::ptr::from_ref(point).cast::<i8>();
        for line in (0..size_of::<P>()).step_by(64) {
            // SAFETY: a prefetch is a hint that touches nothing, and the address
            // lies inside `point`.
            unsafe { _mm_prefetch(start.add(line), _MM_HINT_T1) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = point;
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
