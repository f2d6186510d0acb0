//! Number-theoretic transforms over the scalar field, in place and in parallel.
//!
//! A polynomial of degree below `n = 2^k` lives in one slice of `n` scalars, as
//! coefficients or as evaluations at the powers of `omega`, the `n`-th root of
//! unity that bellperson uses too (`ROOT_OF_UNITY ^ 2^(32 - k)`), or at those
//! points times the field's multiplicative generator (the coset).
//!
//! The two kernels never reorder: [`Domain::interpolate`] leaves the coefficients
//! in bit-reversed order and [`Domain::evaluate`] takes them so. Work between the
//! two that treats every coefficient alike needs no permutation. Both recurse, so
//! that from some depth on a block stays in one core's cache.

use blst::{blst_fr, blst_fr_ct_bfly};
use blstrs::Scalar;
use ff::{Field, PrimeField};
use rayon::prelude::*;

/// Blocks of this many scalars (1 MiB) are transformed by one thread.
const SERIAL_LEN: usize = 1 << 15;
/// Scalars in one parallel piece of a pass.
const PIECE_LEN: usize = 1 << 12;
/// Bits of a row and of a column index in a tile of the bit reversal.
const TILE_BITS: u32 = 5;

/// Where a polynomial is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// At the powers of `omega`.
    Subgroup,
    /// At the powers of `omega` times the multiplicative generator.
    Coset,
}

/// The transforms of one size, with their twiddle factors: `len` scalars, that is
/// 32 bytes for each scalar of a column. A domain is built for a proof and dropped
/// before a key section is read, so it never adds to the peak.
pub struct Domain {
    len: usize,
    /// `omega(2 * half) ^ j` at index `half + j`, for each power of two `half`
    /// below `len` and each `j < half`. Index 0 is unused.
    twiddles: Vec<Scalar>,
}

impl Domain {
    /// The transforms of `len` scalars, or `None` unless `len` is a power of two
    /// up to 2^32, the largest the field has a root of unity for.
    pub fn new(len: usize) -> Option<Self> {
        if !len.is_power_of_two() || len.ilog2() > Scalar::S {
            return None;
        }
        let mut twiddles = vec![Scalar::ZERO; len];
        let half = len / 2;
        fill_powers(&mut twiddles[half..], root_of_unity(len.ilog2()));
        let mut level = half;
        while level > 1 {
            let (lower, upper) = twiddles.split_at_mut(level);
            lower[level / 2..]
                .par_iter_mut()
                .with_min_len(PIECE_LEN)
                .zip(upper[..level].par_chunks(2))
                .for_each(|(twiddle, pair)| *twiddle = pair[0]);
            level /= 2;
        }
        Some(Self { len, twiddles })
    }

    /// Number of scalars.
    #[allow(
        clippy::len_without_is_empty,
        reason = "a domain has at least one point"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Coefficients to evaluations, both in natural order.
    ///
    /// # Panics
    /// If `values` does not have the domain's length, like all transforms here.
    pub fn forward(&self, values: &mut [Scalar], points: Points) {
        bit_reverse(values);
        if points == Points::Coset {
            self.shift(&mut [values], Scalar::MULTIPLICATIVE_GENERATOR);
        }
        self.evaluate(values);
    }

    /// Evaluations to coefficients, both in natural order.
    pub fn inverse(&self, values: &mut [Scalar], points: Points) {
        self.interpolate(values);
        if points == Points::Coset {
            self.shift(&mut [values], generator_inverse());
        }
        let scale = self.len_inverse();
        values
            .par_iter_mut()
            .with_min_len(PIECE_LEN)
            .for_each(|value| *value *= scale);
        bit_reverse(values);
    }

    /// Evaluations at the subgroup, in natural order, to `len` times the
    /// coefficients, in bit-reversed order.
    pub fn interpolate(&self, values: &mut [Scalar]) {
        assert_eq!(values.len(), self.len, "a column of the domain's length");
        self.split_all(values);
    }

    /// Coefficients in bit-reversed order to evaluations in natural order.
    pub fn evaluate(&self, values: &mut [Scalar]) {
        assert_eq!(values.len(), self.len, "a column of the domain's length");
        self.merge_all(values);
    }

    /// Multiplies coefficient `i` of each column by `factor ^ i`; the columns are
    /// in bit-reversed order. This moves evaluations to another coset.
    pub fn shift(&self, columns: &mut [&mut [Scalar]], factor: Scalar) {
        let bits = self.len.ilog2();
        let low_bits = bits.min(PIECE_LEN.ilog2());
        let low_len = 1usize << low_bits;
        // Bit reversal splits: the low bits of a position are the high bits of the
        // coefficient's index. One table serves every piece.
        let mut table = vec![Scalar::ZERO; low_len];
        let step = factor.pow_vartime([1u64 << (bits - low_bits)]);
        fill_powers(&mut table, step);
        bit_reverse(&mut table);
        for column in columns {
            assert_eq!(column.len(), self.len, "a column of the domain's length");
            column
                .par_chunks_mut(low_len)
                .enumerate()
                .for_each(|(high, piece)| {
                    let high = reverse_bits(high, bits - low_bits);
                    let first = factor.pow_vartime([high as u64]);
                    for (value, power) in piece.iter_mut().zip(&table) {
                        *value *= first * power;
                    }
                });
        }
    }

    /// `1 / len`, what [`Domain::interpolate`] leaves to its caller.
    pub fn len_inverse(&self) -> Scalar {
        Scalar::from(self.len as u64)
            .invert()
            .expect("a power of two is not a multiple of the modulus")
    }

    /// `1 / Z` on the coset of this domain.
    pub fn vanishing_inverse(&self) -> Scalar {
        vanishing_inverse(self.len)
    }

    /// Decimation in frequency: natural order in, bit-reversed order out.
    fn split_all(&self, values: &mut [Scalar]) {
        if values.len() <= SERIAL_LEN {
            let mut block = values.len();
            while block > 1 {
                for values in values.chunks_exact_mut(block) {
                    let (low, high) = values.split_at_mut(block / 2);
                    self.split(low, high, 0, block / 2);
                }
                block /= 2;
            }
            return;
        }
        let half = values.len() / 2;
        let (low, high) = values.split_at_mut(half);
        low.par_chunks_mut(PIECE_LEN)
            .zip(high.par_chunks_mut(PIECE_LEN))
            .enumerate()
            .for_each(|(piece, (low, high))| self.split(low, high, piece * PIECE_LEN, half));
        rayon::join(|| self.split_all(low), || self.split_all(high));
    }

    /// Decimation in time: bit-reversed order in, natural order out.
    fn merge_all(&self, values: &mut [Scalar]) {
        if values.len() <= SERIAL_LEN {
            let mut half = 1;
            while half < values.len() {
                for values in values.chunks_exact_mut(2 * half) {
                    let (low, high) = values.split_at_mut(half);
                    self.merge(low, high, 0, half);
                }
                half *= 2;
            }
            return;
        }
        let half = values.len() / 2;
        let (low, high) = values.split_at_mut(half);
        rayon::join(|| self.merge_all(low), || self.merge_all(high));
        low.par_chunks_mut(PIECE_LEN)
            .zip(high.par_chunks_mut(PIECE_LEN))
            .enumerate()
            .for_each(|(piece, (low, high))| self.merge(low, high, piece * PIECE_LEN, half));
    }

    /// `(u, v) -> (u + v, (u - v) / omega^j)` for `j` from `first` on.
    fn split(&self, low: &mut [Scalar], high: &mut [Scalar], first: usize, half: usize) {
        let mut pairs = low.iter_mut().zip(high);
        if first == 0
            && let Some((u, v)) = pairs.next()
        {
            let difference = *u - *v;
            *u += *v;
            *v = difference;
        }
        // omega^-j = -omega^(half - j): the table is read backwards and the
        // difference taken the other way round.
        let first = first.max(1);
        let backwards = self.twiddles[half + 1..2 * half + 1 - first].iter().rev();
        for ((u, v), twiddle) in pairs.zip(backwards) {
            let difference = *v - *u;
            *u += *v;
            *v = difference * twiddle;
        }
    }

    /// `(u, v) -> (u + v omega^j, u - v omega^j)` for `j` from `first` on.
    fn merge(&self, low: &mut [Scalar], high: &mut [Scalar], first: usize, half: usize) {
        let mut first = first;
        let mut pairs = low.iter_mut().zip(high);
        if first == 0
            && let Some((u, v)) = pairs.next()
        {
            let difference = *u - *v;
            *u += *v;
            *v = difference;
            first = 1;
        }
        for ((u, v), twiddle) in pairs.zip(&self.twiddles[half + first..2 * half]) {
            butterfly(u, v, twiddle);
        }
    }
}

/// `(u, v) -> (u + v twiddle, u - v twiddle)`.
fn butterfly(u: &mut Scalar, v: &mut Scalar, twiddle: &Scalar) {
    let u: *mut Scalar = u;
    let v: *mut Scalar = v;
    let twiddle: *const Scalar = twiddle;
    // SAFETY: `Scalar` is a transparent wrapper of `blst_fr`, and the three
    // references are live, `u` and `v` being exclusive and distinct.
    unsafe { blst_fr_ct_bfly(u.cast::<blst_fr>(), v.cast(), twiddle.cast()) }
}

/// The root of unity of order `2^log_len` that bellperson uses.
fn root_of_unity(log_len: u32) -> Scalar {
    (log_len..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square())
}

/// `1 / Z` on the coset, where the vanishing polynomial `Z = x^len - 1` of a domain is
/// the same everywhere.
pub(crate) fn vanishing_inverse(len: usize) -> Scalar {
    (Scalar::MULTIPLICATIVE_GENERATOR.pow_vartime([len as u64]) - Scalar::ONE)
        .invert()
        .expect("the generator is outside every subgroup of a domain's order")
}

/// The inverse of the coset's shift.
pub(crate) fn generator_inverse() -> Scalar {
    Scalar::MULTIPLICATIVE_GENERATOR
        .invert()
        .expect("the generator is not zero")
}

/// Writes the powers of `base` from its zeroth on.
fn fill_powers(powers: &mut [Scalar], base: Scalar) {
    powers
        .par_chunks_mut(PIECE_LEN)
        .enumerate()
        .for_each(|(piece, powers)| {
            let mut power = base.pow_vartime([(piece * PIECE_LEN) as u64]);
            for slot in powers {
                *slot = power;
                power *= base;
            }
        });
}

/// The low `bits` bits of `index` in reverse.
fn reverse_bits(index: usize, bits: u32) -> usize {
    if bits == 0 {
        0
    } else {
        index.reverse_bits() >> (usize::BITS - bits)
    }
}

/// Moves the scalar at each index to the index with its bits in reverse.
///
/// # Panics
/// If the length is not a power of two.
pub fn bit_reverse(values: &mut [Scalar]) {
    assert!(values.len().is_power_of_two(), "a power of two of scalars");
    let bits = values.len().ilog2();
    if bits < 2 * TILE_BITS {
        for index in 0..values.len() {
            let other = reverse_bits(index, bits);
            if index < other {
                values.swap(index, other);
            }
        }
        return;
    }
    // An index is (row, middle, column). Reversal takes the tile of one middle to
    // the tile of the reversed middle, transposed; rows are contiguous, so memory
    // is read in pieces of 2^TILE_BITS scalars and not one by one.
    let middle_bits = bits - 2 * TILE_BITS;
    let tiles = Tiles {
        start: values.as_mut_ptr(),
        middle_bits,
    };
    (0..1usize << middle_bits)
        .into_par_iter()
        .for_each(|middle| {
            let other = reverse_bits(middle, middle_bits);
            if middle <= other {
                // SAFETY: the tiles of all middles cover `values` without overlap,
                // and of a pair of mirrored middles only the smaller one comes here.
                unsafe { tiles.exchange(middle, other) };
            }
        });
}

/// The tiles of a column under bit reversal.
struct Tiles {
    start: *mut Scalar,
    middle_bits: u32,
}

// SAFETY: each pair of tiles is touched by one thread only, see `bit_reverse`.
unsafe impl Sync for Tiles {}

impl Tiles {
    /// Exchanges two mirrored tiles, or mirrors one in place.
    ///
    /// # Safety
    /// Nobody else may touch the two tiles meanwhile, and both indices must be
    /// below `2^middle_bits`.
    unsafe fn exchange(&self, middle: usize, other: usize) {
        const SIDE: usize = 1 << TILE_BITS;
        let at = |row: usize, middle: usize, column: usize| {
            (row << (self.middle_bits + TILE_BITS)) | (middle << TILE_BITS) | column
        };
        for row in 0..SIDE {
            for column in 0..SIDE {
                let here = at(row, middle, column);
                let there = at(
                    reverse_bits(column, TILE_BITS),
                    other,
                    reverse_bits(row, TILE_BITS),
                );
                if middle != other || here < there {
                    // SAFETY: both indices are below the column's length, since
                    // each part is below its own power of two.
                    unsafe { std::ptr::swap(self.start.add(here), self.start.add(there)) };
                }
            }
        }
    }
}
