//! One proof on the device.

use std::ops::Range;

use bellperson::groth16::VerifyingKey;
use blstrs::{Bls12, G1Projective, G2Projective, Scalar};
use cuzk_pinned::StagingRing;

use super::border::{self, RawScalar, call};
use super::device::{Device, Event, Lane, Region};
use super::plan::{Counts, Cutting, QUERIES, SCALAR_BYTES};
use super::points::PointBytes;
use super::query::{Made, Query};
use super::resident::{ResidentKey, ResidentShape, Staging};
use super::rows::RowPoint;
use super::watch::{show_quotient, show_uploaded};
use crate::backend::{PhaseTimes, Proved};
use crate::column::{Column, Columns};
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::ntt::vanishing_inverse;
use crate::error::BackendError;
use crate::groth16::{Statement, Sums, assemble};
use crate::key::{KeyTier, Section};
use crate::shape::CircuitSizes;
use crate::watch::{Watch, show_sums};

/// Where a proof works on the device.
pub(super) struct Regions {
    pub(super) a: Region,
    pub(super) b: Region,
    pub(super) c: Region,
    pub(super) assignment: Region,
    pub(super) rows: Region,
    pub(super) counters: Region,
    pub(super) scratch: Region,
}

/// What a proof is made with.
pub(super) struct Bench<'a> {
    pub(super) device: &'a Device,
    pub(super) regions: &'a Regions,
    pub(super) cutting: Cutting,
    pub(super) clock: &'a Clock,
    pub(super) c_source: CSource,
    pub(super) transforms: Transforms,
    /// Whether zeros and ones are taken out before a multiplication.
    pub(super) is_split: bool,
    /// Who is shown the intermediates.
    pub(super) watch: Option<&'a dyn Watch>,
}

/// Events between the phases of a proof.
pub(super) struct Clock(Vec<Event>);

/// What ends at each event of the clock but the first.
const PHASES: [&str; 7] = [
    "upload", "ntt", "msm_h", "msm_l", "msm_a", "msm_b_g1", "msm_b_g2",
];

impl Clock {
    pub(super) fn new(device: &Device) -> Result<Self, BackendError> {
        let events = (0..=PHASES.len()).map(|_| device.event());
        Ok(Self(events.collect::<Result<_, _>>()?))
    }

    fn times(&self) -> Result<PhaseTimes, BackendError> {
        let times = PHASES.iter().zip(self.0.windows(2));
        let times = times.map(|(&name, pair)| Ok((name, pair[1].since_ms(&pair[0])?)));
        Ok(PhaseTimes(times.collect::<Result<_, BackendError>>()?))
    }
}

/// Copies the columns to the device; they may be written again when this returns.
/// Those that are not page-locked go through `ring`, if there is one.
pub(super) fn upload(
    bench: &Bench<'_>,
    ring: Option<&mut StagingRing>,
    columns: &Columns,
    inputs: &[Scalar],
    sizes: &CircuitSizes,
) -> Result<(), BackendError> {
    let device = bench.device;
    let passed = &bench.clock.0[1];
    let mut ring = ring;
    let outcome = device
        .record(Lane::Upload, &bench.clock.0[0])
        .and_then(|()| queue_upload(bench, ring.as_deref_mut(), columns, inputs, sizes))
        .and_then(|()| device.record(Lane::Upload, passed))
        .and_then(|()| passed.wait());
    if outcome.is_err() {
        // Some copies may be under way: nothing reads the columns after this.
        let _ = device.wait(Lane::Upload);
    }
    if let Some(ring) = ring {
        ring.finish();
    }
    outcome?;
    device.follow(Lane::Compute, passed)
}

fn queue_upload(
    bench: &Bench<'_>,
    mut ring: Option<&mut StagingRing>,
    columns: &Columns,
    inputs: &[Scalar],
    sizes: &CircuitSizes,
) -> Result<(), BackendError> {
    let device = bench.device;
    let regions = bench.regions;
    let column = sizes.domain() as u64 * SCALAR_BYTES;
    let mut padded = |to: Region, from: &Column| {
        copy_column(device, ring.as_deref_mut(), to, from)?;
        let used = from.len() as u64 * SCALAR_BYTES;
        device.fill(Lane::Upload, to.part(used, to.bytes() - used), 0)
    };
    padded(regions.a.part(0, column), &columns.a)?;
    padded(regions.b.part(0, column), &columns.b)?;
    if let Some(c) = &columns.c {
        padded(regions.c.part(0, column), c)?;
    }
    let used = inputs.len() as u64 * SCALAR_BYTES;
    let aux = sizes.aux as u64 * SCALAR_BYTES;
    padded(regions.assignment.part(used, aux), &columns.aux)?;
    // SAFETY: `upload` waits for the lane before its borrows end.
    unsafe { device.copy_in(Lane::Upload, regions.assignment, inputs) }
}

/// Queues the copies of one column.
fn copy_column(
    device: &Device,
    ring: Option<&mut StagingRing>,
    to: Region,
    from: &Column,
) -> Result<(), BackendError> {
    let buffer = from.buffer();
    let bytes = &buffer.as_bytes()[..from.len() * SCALAR_BYTES as usize];
    if let (false, Some(ring)) = (buffer.is_page_locked(), ring) {
        return ring.copy(bytes, |chunk, offset| {
            let passed = device.event()?;
            let to = to.part(offset as u64, chunk.len() as u64);
            // SAFETY: the ring keeps the chunk until the event has passed.
            let copied = unsafe { device.copy_in(Lane::Upload, to, chunk) };
            let queued = copied.and_then(|()| device.record(Lane::Upload, &passed));
            if let Err(error) = queued {
                // The chunk goes back without a fence.
                let _ = device.wait(Lane::Upload);
                return Err(error);
            }
            Ok(passed)
        });
    }
    for range in buffer.copy_ranges() {
        let end = range.end.min(bytes.len());
        if range.start < end {
            let part = &bytes[range.start..end];
            // SAFETY: `upload` waits for the lane before its borrows end.
            unsafe {
                device.copy_in(
                    Lane::Upload,
                    to.part(range.start as u64, part.len() as u64),
                    part,
                )
            }?;
        }
    }
    Ok(())
}

/// Where the points of a proof's key are.
pub(super) enum KeyPoints<'a> {
    /// On the device.
    Resident(&'a ResidentKey),
    /// In their source: brought to `place` piece by piece, as they are used.
    Streamed {
        source: &'a dyn PointBytes,
        staging: &'a mut Staging,
        place: Region,
        piece_len: usize,
    },
}

impl KeyPoints<'_> {
    fn tier(&self) -> KeyTier {
        match self {
            Self::Resident(_) => KeyTier::Resident,
            Self::Streamed { .. } => KeyTier::File,
        }
    }

    /// How many of a query's points are there at a time.
    fn piece_len(&self, count: usize) -> usize {
        match self {
            Self::Resident(_) => count,
            Self::Streamed { piece_len, .. } => *piece_len,
        }
    }

    /// The points of a range, on the device. Those of another range are gone.
    fn bring(
        &mut self,
        device: &Device,
        section: Section,
        range: Range<usize>,
    ) -> Result<Region, BackendError> {
        match self {
            Self::Resident(key) => Ok(key.points(section)),
            Self::Streamed {
                source,
                staging,
                place,
                ..
            } => {
                // The sum of the piece before, of this query or the one before, still
                // reads the place.
                device.wait(Lane::Compute)?;
                staging.load(device, *source, section, range, *place)?;
                Ok(*place)
            }
        }
    }
}

/// Proves what [`upload`] brought.
pub(super) fn prove(
    bench: &Bench<'_>,
    statement: &Statement<'_>,
    vk: &VerifyingKey<Bls12>,
    key: &mut KeyPoints<'_>,
    shape: &ResidentShape,
) -> Result<Proved, BackendError> {
    let device = bench.device;
    let passed = |phase: usize| device.record(Lane::Compute, &bench.clock.0[phase]);
    let sizes = &statement.shape.sizes;
    if let Some(watch) = bench.watch {
        show_uploaded(device, watch, bench.regions, sizes)?;
    }
    quotient(bench, sizes)?;
    passed(2)?;
    if let Some(watch) = bench.watch {
        show_quotient(device, watch, bench.regions, sizes)?;
    }
    let mut queries = Queries {
        bench,
        key,
        shape,
        sizes,
        counts: Counts::of(statement.shape),
    };
    let h = queries.sum::<G1Projective>(Section::H)?;
    passed(3)?;
    let l = queries.sum::<G1Projective>(Section::L)?;
    passed(4)?;
    let a = queries.sum::<G1Projective>(Section::A)?;
    passed(5)?;
    let b_g1 = queries.sum::<G1Projective>(Section::BG1)?;
    passed(6)?;
    let b_g2 = queries.sum::<G2Projective>(Section::BG2)?;
    passed(7)?;
    let mut sums = Sums {
        h: h.total(device)?,
        l: l.total(device)?,
        a: a.total(device)?,
        b_g1: b_g1.total(device)?,
        b_g2: b_g2.total(device)?,
    };
    if let Some(watch) = bench.watch {
        show_sums(watch, &mut sums);
    }
    Ok(Proved {
        proof: assemble(vk, &sums, statement.r, statement.s),
        phases: bench.clock.times()?,
        tier: Some(key.tier()),
    })
}

/// The queries of one proof.
struct Queries<'a, 'k> {
    bench: &'a Bench<'a>,
    key: &'a mut KeyPoints<'k>,
    shape: &'a ResidentShape,
    sizes: &'a CircuitSizes,
    counts: Counts,
}

/// A sum under way: what is added up, and what still lies on the device.
struct Sum<P> {
    done: P,
    made: Option<Made>,
}

impl<P: RowPoint> Sum<P> {
    fn total(&self, device: &Device) -> Result<P, BackendError> {
        match &self.made {
            None => Ok(self.done),
            Some(made) => Ok(self.done + made.total::<P>(device)?),
        }
    }
}

impl Queries<'_, '_> {
    /// Queues the sum of a query. Of several pieces all but the last are waited for,
    /// since the next one takes their place.
    fn sum<P: RowPoint>(&mut self, section: Section) -> Result<Sum<P>, BackendError> {
        let (bench, device) = (self.bench, self.bench.device);
        let count = self.counts.of_section(section);
        let at = QUERIES.iter().position(|&query| query == section);
        let at = at.expect("a query") as u64;
        let share = bench.regions.rows.bytes() / QUERIES.len() as u64;
        let rows = bench.regions.rows.part(at * share, share);
        let mut sum = Sum {
            done: P::identity(),
            made: None,
        };
        for start in (0..count).step_by(self.key.piece_len(count).max(1)) {
            let len = self.key.piece_len(count).min(count - start);
            if let Some(made) = sum.made.take() {
                sum.done += made.total::<P>(device)?;
            }
            let query = Query {
                section,
                count: len,
                points: self.key.bring(device, section, start..start + len)?,
                index: self
                    .shape
                    .index(section)
                    .map(|index| index.part(start as u64 * 4, len as u64 * 4)),
                rows,
            };
            sum.made = Some(match section {
                Section::H => {
                    let scalars = bench
                        .regions
                        .a
                        .part(start as u64 * SCALAR_BYTES, len as u64 * SCALAR_BYTES);
                    query.whole(bench, scalars, bench.regions.scratch)?
                }
                _ => query.sum(bench, self.scalars(section, start, len))?,
            });
        }
        Ok(sum)
    }

    /// Where a piece's scalars are, or what its indices point into.
    fn scalars(&self, section: Section, start: usize, len: usize) -> Region {
        let assignment = self.bench.regions.assignment;
        let scalars = |from: usize, len: usize| {
            assignment.part(from as u64 * SCALAR_BYTES, len as u64 * SCALAR_BYTES)
        };
        match section {
            // Entries are the auxiliary variables in their order.
            Section::L => scalars(self.sizes.inputs + start, len),
            _ => scalars(0, self.sizes.inputs + self.sizes.aux),
        }
    }
}

/// Queues the transforms: evaluations of A and B (and C) in, coefficients of h out.
fn quotient(bench: &Bench<'_>, sizes: &CircuitSizes) -> Result<(), BackendError> {
    match sizes.domain() {
        // Nothing to divide: h has no coefficient that is used.
        1 => Ok(()),
        len => quotient_of(bench, len),
    }
}

/// The same for columns of `len` scalars, at least two.
pub(super) fn quotient_of(bench: &Bench<'_>, len: usize) -> Result<(), BackendError> {
    let column = len as u64 * SCALAR_BYTES;
    let [a, b, c] =
        [&bench.regions.a, &bench.regions.b, &bench.regions.c].map(|region| region.part(0, column));
    let vanishing_inverse = raw_scalar(&vanishing_inverse(len));
    let transforms = match bench.transforms {
        Transforms::Six => 6,
        Transforms::Seven => 7,
    };
    call("the quotient polynomial", |message| {
        // SAFETY: three regions of `len` scalars, written by the upload that the
        // compute lane follows.
        unsafe {
            border::cuzk_quotient(
                bench.device.raw(),
                a.address(),
                b.address(),
                c.address(),
                len.ilog2(),
                u32::from(bench.c_source == CSource::Synthesised),
                transforms,
                &vanishing_inverse,
                message,
            )
        }
    })
}

fn raw_scalar(scalar: &Scalar) -> RawScalar {
    // SAFETY: a scalar is four 64-bit limbs in memory, of the size of the words
    // (asserted beside the border).
    let words = unsafe { std::mem::transmute::<Scalar, [u32; 8]>(*scalar) };
    RawScalar { words }
}
