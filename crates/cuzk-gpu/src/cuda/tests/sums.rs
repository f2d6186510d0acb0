//! Multiplications and sums against known multiples of the generator, and against
//! plain double-and-add.

use std::fmt::Debug;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use rayon::prelude::*;

use super::device;
use crate::cpu::h::{CSource, Transforms};
use crate::cuda::device::{Device, DeviceMemory, Lane, Region};
use crate::cuda::plan::{COUNTERS_BYTES, Cutting, SCALAR_BYTES, point_bytes, rows_bytes};
use crate::cuda::prove::{Bench, COUNTER_WORDS, Regions, Seat};
use crate::cuda::query::{Entries, Query};
use crate::cuda::rows::RowPoint;
use crate::device::executor::tests::block_on;
use crate::error::BackendError;
use crate::key::Section;

/// Sizes on both sides of a warp, a block, a bound of the windows' choice, and of
/// powers of two.
const SIZES: [usize; 18] = [
    0,
    1,
    2,
    31,
    32,
    33,
    63,
    64,
    65,
    192,
    193,
    237,
    1023,
    1025,
    65_535,
    65_536,
    65_537,
    1 << 20,
];
/// Up to here the sum is also made point by point.
const NAIVE_MAX: usize = 1025;

#[derive(Clone, Copy, Debug)]
enum Scalars {
    Zeros,
    Ones,
    MinusOnes,
    Alternating,
    OnlyFirst,
    OnlyLast,
    Random,
    /// Half zero, a third one, the rest random: a Filecoin witness in small.
    Witness,
}

const SCALARS: [Scalars; 8] = [
    Scalars::Zeros,
    Scalars::Ones,
    Scalars::MinusOnes,
    Scalars::Alternating,
    Scalars::OnlyFirst,
    Scalars::OnlyLast,
    Scalars::Random,
    Scalars::Witness,
];

impl Scalars {
    fn of(self, len: usize) -> Vec<Scalar> {
        let mut rng = ChaCha8Rng::seed_from_u64(len as u64);
        (0..len)
            .map(|at| match self {
                Self::Zeros => Scalar::ZERO,
                Self::Ones => Scalar::ONE,
                Self::MinusOnes => -Scalar::ONE,
                Self::Alternating => Scalar::from((at % 2) as u64),
                Self::OnlyFirst if at == 0 => Scalar::random(&mut rng),
                Self::OnlyLast if at + 1 == len => Scalar::random(&mut rng),
                Self::OnlyFirst | Self::OnlyLast => Scalar::ZERO,
                Self::Random => Scalar::random(&mut rng),
                Self::Witness if at.is_multiple_of(2) => Scalar::ZERO,
                Self::Witness if at % 3 != 0 => Scalar::ONE,
                Self::Witness => Scalar::random(&mut rng),
            })
            .collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Points {
    /// Different ones.
    Chain,
    AllEqual,
    /// A point and its negation by turns.
    Opposite,
    IdentityFirst,
    IdentityMiddle,
    IdentityLast,
    AllIdentity,
}

const POINTS: [Points; 7] = [
    Points::Chain,
    Points::AllEqual,
    Points::Opposite,
    Points::IdentityFirst,
    Points::IdentityMiddle,
    Points::IdentityLast,
    Points::AllIdentity,
];

/// Points k G and their k.
struct Known<P: Curve> {
    affine: Vec<P::AffineRepr>,
    multiples: Vec<Scalar>,
}

/// The chain of `len` different points that the others are made from.
fn chain<P: Group<Scalar = Scalar> + Curve>(len: usize) -> Known<P>
where
    P::AffineRepr: Clone,
{
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let (first, step) = (Scalar::random(&mut rng), Scalar::random(&mut rng));
    let mut multiples = vec![first; len];
    for at in 1..len {
        multiples[at] = multiples[at - 1] + step;
    }
    let stride = P::generator() * step;
    let points: Vec<P> = std::iter::successors(Some(P::generator() * first), |p| Some(*p + stride))
        .take(len)
        .collect();
    let mut affine = vec![P::identity().to_affine(); len];
    P::batch_normalize(&points, &mut affine);
    Known { affine, multiples }
}

impl<P: Group<Scalar = Scalar> + Curve> Known<P>
where
    P::AffineRepr: Copy + std::ops::Neg<Output = P::AffineRepr>,
{
    fn of(&self, kind: Points, len: usize) -> Self {
        let identity = P::identity().to_affine();
        let pick = |at: usize| match kind {
            Points::AllEqual => (self.affine[0], self.multiples[0]),
            Points::Opposite if at.is_multiple_of(2) => (self.affine[0], self.multiples[0]),
            Points::Opposite => (-self.affine[0], -self.multiples[0]),
            Points::IdentityFirst if at == 0 => (identity, Scalar::ZERO),
            Points::IdentityMiddle if at == len / 2 => (identity, Scalar::ZERO),
            Points::IdentityLast if at + 1 == len => (identity, Scalar::ZERO),
            Points::AllIdentity => (identity, Scalar::ZERO),
            _ => (self.affine[at], self.multiples[at]),
        };
        let (affine, multiples) = (0..len).map(pick).unzip();
        Self { affine, multiples }
    }
}

/// Memory for sums of one section up to some length.
struct Place {
    memory: DeviceMemory,
    cutting: Cutting,
    section: Section,
    len_max: usize,
    seat: Seat,
}

impl Place {
    fn new(device: &Device, section: Section, len_max: usize, chunk_max: usize) -> Self {
        let cutting = Cutting {
            chunk_max,
            window_bits: None,
            processors: device.processors(),
        };
        let bytes = Self::parts(&cutting, section, len_max).iter().sum();
        Self {
            memory: device.allocate("sums", bytes).expect("room"),
            cutting,
            section,
            len_max,
            seat: {
                let mut seat = Seat::new(device).expect("events");
                let rows = rows_bytes(section, len_max, &cutting);
                seat.prepare(device, rows, &[]).expect("host memory");
                seat
            },
        }
    }

    /// Bytes of points, scalars, scratch, rows and counters.
    fn parts(cutting: &Cutting, section: Section, len: usize) -> [u64; 5] {
        [
            len as u64 * point_bytes(section),
            len as u64 * SCALAR_BYTES,
            cutting.query_bytes(section, len, true, 0),
            rows_bytes(section, len, cutting),
            COUNTERS_BYTES,
        ]
        .map(|bytes| bytes.next_multiple_of(256))
    }

    /// The regions of the parts.
    fn regions(&self) -> [Region; 5] {
        let mut at = 0;
        let parts = Self::parts(&self.cutting, self.section, self.len_max);
        parts.map(|bytes| {
            let region = self.memory.region().part(at, bytes);
            at += bytes;
            region
        })
    }

    /// The sum on the device, of all entries or split by value.
    fn sum<P: RowPoint, A>(
        &self,
        device: &Device,
        points: &[A],
        scalars: &[Scalar],
        is_split: bool,
    ) -> Result<P, BackendError> {
        let [to_points, to_scalars, ..] = self.regions();
        // SAFETY: both are waited for before this function returns.
        unsafe {
            device.copy_in(Lane::Compute, to_points, points)?;
            device.copy_in(Lane::Compute, to_scalars, scalars)?;
        }
        device.wait(Lane::Compute)?;
        self.sum_of(device, scalars.len(), is_split)
    }

    /// The sum of the first `len` entries that are there.
    fn sum_of<P: RowPoint>(
        &self,
        device: &Device,
        len: usize,
        is_split: bool,
    ) -> Result<P, BackendError> {
        let [points, scalars, scratch, rows, counters] = self.regions();
        let to_points = points.part(0, len as u64 * point_bytes(self.section));
        let to_scalars = scalars.part(0, len as u64 * SCALAR_BYTES);
        let regions = Regions {
            a: to_scalars,
            b: to_scalars.part(0, 0),
            c: to_scalars.part(0, 0),
            assignment: to_scalars,
            spare: to_scalars.part(0, 0),
            rows,
            counters,
            scratch,
        };
        let bench = Bench {
            device,
            regions: &regions,
            cutting: self.cutting,
            clock: &self.seat.clock,
            host: &self.seat.host,
            inputs_len: 0,
            c_source: CSource::Product,
            transforms: Transforms::Six,
            is_split,
            watch: None,
        };
        let query = Query {
            section: self.section,
            count: len,
            points: to_points,
            index: None,
            rows,
            host_at: COUNTER_WORDS,
        };
        let made = block_on(query.sum(&bench, to_scalars, Entries::Nothing));
        // The words of the seat are written until then, also after an error.
        device.wait(Lane::Compute)?;
        Ok(made?.0.rows::<P>(&self.seat.host).total())
    }
}

fn compare<P>(section: Section, sizes: &[usize])
where
    P: RowPoint + Group<Scalar = Scalar> + Curve + Debug,
    P::AffineRepr: Copy
        + std::ops::Neg<Output = P::AffineRepr>
        + std::ops::Mul<Scalar, Output = P>
        + PrimeCurveAffine,
{
    let Some(device) = device() else { return };
    let len_max = sizes.iter().copied().max().unwrap_or(0);
    let place = Place::new(&device, section, len_max, 1 << 24);
    let chain = chain::<P>(len_max);
    for &len in sizes {
        for kind in POINTS {
            let points = chain.of(kind, len);
            for values in SCALARS {
                // Whole sums of equal digits are one thread's work: slow, and the
                // same code at any length.
                let is_slow = len > 70_000 && !matches!(values, Scalars::Random | Scalars::Witness);
                let scalars = values.of(len);
                let factor: Scalar = scalars
                    .iter()
                    .zip(&points.multiples)
                    .map(|(s, k)| s * k)
                    .sum();
                let expected = P::generator() * factor;
                for is_split in [true, false] {
                    if is_slow && !is_split {
                        continue;
                    }
                    let sum: P = place
                        .sum(&device, &points.affine, &scalars, is_split)
                        .expect("a sum");
                    assert_eq!(
                        sum, expected,
                        "{section} {len} {kind:?} {values:?} {is_split}"
                    );
                }
                if len <= NAIVE_MAX && matches!(values, Scalars::Random) {
                    let naive: P = points
                        .affine
                        .iter()
                        .zip(&scalars)
                        .map(|(p, s)| *p * *s)
                        .sum();
                    assert_eq!(naive, expected, "{section} {len} {kind:?} {values:?}");
                }
            }
        }
    }
}

#[test]
fn gpu_sums_in_g1_are_the_known_multiples() {
    assert_eq!(size_of::<G1Affine>() as u64, point_bytes(Section::L));
    compare::<G1Projective>(Section::L, &SIZES);
}

#[test]
fn gpu_sums_in_g2_are_the_known_multiples() {
    assert_eq!(size_of::<G2Affine>() as u64, point_bytes(Section::BG2));
    compare::<G2Projective>(Section::BG2, &SIZES);
}

/// Several chunks, the last of them short.
#[test]
fn gpu_sums_in_chunks_are_the_known_multiples() {
    let Some(device) = device() else { return };
    let len = 10_007;
    let place = Place::new(&device, Section::L, len, 1024);
    let known = chain::<G1Projective>(len);
    for values in SCALARS {
        let scalars = values.of(len);
        let factor: Scalar = scalars
            .iter()
            .zip(&known.multiples)
            .map(|(s, k)| s * k)
            .sum();
        for is_split in [true, false] {
            let sum: G1Projective = place
                .sum(&device, &known.affine, &scalars, is_split)
                .expect("a sum");
            assert_eq!(
                sum,
                G1Projective::generator() * factor,
                "{values:?} {is_split}"
            );
        }
    }
}

/// As many as the largest circuits have, with the plan of it. Points and scalars repeat
/// with lengths that share no factor, so that no two chunks are the same.
#[test]
fn gpu_a_sum_of_2_27_is_the_known_multiple() {
    const LEN: usize = 1 << 27;
    let Some(device) = device() else { return };
    let cutting = Cutting {
        chunk_max: 1 << 24,
        window_bits: None,
        processors: device.processors(),
    };
    let bytes: u64 = Place::parts(&cutting, Section::L, LEN).iter().sum();
    println!("{:?}, {bytes} bytes in all", cutting.cut(LEN));
    if bytes > device.room_bytes() {
        println!("skipped: {} bytes are free", device.room_bytes());
        return;
    }
    let place = Place::new(&device, Section::L, LEN, 1 << 24);
    let known = chain::<G1Projective>(1 << 16);
    let scalars = Scalars::Random.of((1 << 18) - 1);
    let [to_points, to_scalars, ..] = place.regions();
    repeat(&device, to_points, &known.affine, LEN);
    repeat(&device, to_scalars, &scalars, LEN);
    let factor: Scalar = (0..LEN)
        .into_par_iter()
        .with_min_len(1 << 16)
        .map(|at| scalars[at % scalars.len()] * known.multiples[at % known.multiples.len()])
        .sum();
    let sum: G1Projective = place.sum_of(&device, LEN, false).expect("a sum");
    assert_eq!(sum, G1Projective::generator() * factor);
}

/// Fills a region with `len` values, those of `period` again and again.
fn repeat<T: Copy>(device: &Device, to: Region, period: &[T], len: usize) {
    let value_bytes = size_of::<T>() as u64;
    for start in (0..len).step_by(period.len()) {
        let piece = &period[..period.len().min(len - start)];
        let bytes = piece.len() as u64 * value_bytes;
        let to = to.part(start as u64 * value_bytes, bytes);
        // SAFETY: waited for below.
        unsafe { device.copy_in(Lane::Compute, to, piece) }.expect("a copy");
    }
    device.wait(Lane::Compute).expect("copies");
}

/// A value that is not below the group's order is an error, not a sum.
#[test]
fn gpu_unreduced_scalars_are_refused() {
    let Some(device) = device() else { return };
    let place = Place::new(&device, Section::L, 64, 1 << 24);
    let known = chain::<G1Projective>(64);
    let order: [u64; 4] = [
        0xffff_ffff_0000_0001,
        0x53bd_a402_fffe_5bfe,
        0x3339_d808_09a1_d805,
        0x73ed_a753_299d_7d48,
    ];
    for wrong in [order, [u64::MAX; 4]] {
        let mut scalars = Scalars::Random.of(64);
        // SAFETY: any limbs are a value in memory; arithmetic never sees this one.
        scalars[17] = unsafe { std::mem::transmute::<[u64; 4], Scalar>(wrong) };
        for is_split in [true, false] {
            let error = place
                .sum::<G1Projective, _>(&device, &known.affine, &scalars, is_split)
                .expect_err("a value that is no scalar");
            assert!(
                matches!(error, BackendError::Unreduced { count: 1, .. }),
                "{error}"
            );
        }
    }
}
