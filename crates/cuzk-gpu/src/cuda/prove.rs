//! One proof on the device.

use std::ops::Range;
use std::sync::Arc;

use bellperson::groth16::{Proof, VerifyingKey};
use blstrs::{Bls12, G1Projective, G2Projective, Scalar};

use super::border::{self, RawScalar, call};
use super::clock::{Clock, sum_of};
use super::device::{Device, Lane, Region};
use super::holdings::Held;
use super::host_words::HostWords;
use super::key_points::KeyPoints;
use super::plan::{Counts, Cutting, Piece, QUERIES, SCALAR_BYTES, Way, rows_bytes};
use super::query::{Entries, Found, Lists, Made, Query, Rows};
use super::resident::ResidentShape;
use super::rows::RowPoint;
use super::staging::Staging;
use super::upload::Arrivals;
use super::watch::{show_assignment, show_columns, show_quotient};
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::ntt::vanishing_inverse;
use crate::device::sorted::{Sorted, SortedQueries};
use crate::device::turn::Taken;
use crate::device::waiter::Passed;
use crate::error::BackendError;
use crate::groth16::{Statement, Sums, assemble};
use crate::key::{KeyTier, Section};
use crate::phase::Phase;
use crate::shape::CircuitSizes;
use crate::watch::{Watch, show_sums};

/// Where a proof works on the device.
pub(super) struct Regions {
    pub(super) a: Region,
    pub(super) b: Region,
    pub(super) c: Region,
    /// That of b, where the assignment comes after the transforms.
    pub(super) assignment: Region,
    /// What is free after the transforms, for gathered points and scalars.
    pub(super) spare: Region,
    pub(super) rows: Region,
    pub(super) counters: Region,
    pub(super) scratch: Region,
}

/// Words of the host for the counters of a split, before those for rows and then inputs.
pub(super) const COUNTER_WORDS: usize = 2;

/// What a proof is made with.
pub(super) struct Bench<'a> {
    pub(super) device: &'a Device,
    pub(super) regions: &'a Regions,
    pub(super) cutting: Cutting,
    pub(super) clock: &'a Clock,
    /// Counters, then rows, then the inputs.
    pub(super) host: &'a HostWords,
    pub(super) inputs_len: usize,
    pub(super) c_source: CSource,
    pub(super) transforms: Transforms,
    /// Whether zeros and ones are taken out before a multiplication.
    pub(super) is_split: bool,
    /// Who is shown the intermediates.
    pub(super) watch: Option<&'a dyn Watch>,
}

impl Bench<'_> {
    /// The public inputs, as words.
    pub(super) fn inputs(&self) -> &[u64] {
        &self.host.words()[inputs_at(self.regions.rows.bytes())..][..self.inputs_len * 4]
    }
}

/// Behind the words for rows of so many bytes: sums may be fetched before the inputs are
/// uploaded.
fn inputs_at(rows_bytes: u64) -> usize {
    COUNTER_WORDS + rows_bytes as usize / 8
}

/// What a slot has for life: its events, and its words of the host.
pub(super) struct Seat {
    pub(super) clock: Clock,
    pub(super) host: HostWords,
}

/// Words of the host that a slot begins with: rows of most circuits.
const HOST_WORDS: usize = 1 << 17;

impl Seat {
    pub(super) fn new(device: &Device) -> Result<Self, BackendError> {
        Ok(Self {
            clock: Clock::new(device)?,
            host: HostWords::new(device, HOST_WORDS)?,
        })
    }

    /// Begins with another proof: makes room for rows of so many bytes, and puts the inputs
    /// in it.
    pub(super) fn prepare(
        &mut self,
        device: &Device,
        rows_bytes: u64,
        inputs: &[Scalar],
    ) -> Result<(), BackendError> {
        self.clock.restart(device)?;
        let inputs_at = inputs_at(rows_bytes);
        let words = inputs_at + inputs.len() * 4;
        if words > self.host.len() {
            self.host = HostWords::new(device, words.next_power_of_two())?;
        }
        let to = &mut self.host.words_mut()[inputs_at..];
        for (words, scalar) in to.chunks_exact_mut(4).zip(inputs) {
            // SAFETY: a scalar is four 64-bit limbs in memory.
            words.copy_from_slice(&unsafe { std::mem::transmute::<Scalar, [u64; 4]>(*scalar) });
        }
        Ok(())
    }
}

/// A proof all of which is queued. Another may compute behind it.
pub(super) struct Queued {
    /// Of the pieces of each query.
    made: [Vec<Made>; QUERIES.len()],
    tier: KeyTier,
    /// After the last of it.
    computed: Passed,
    /// After the last piece of the key was brought and kept.
    brought: Option<Passed>,
}

impl Queued {
    /// Waits for it.
    pub(super) async fn computed(self, bench: &Bench<'_>) -> Result<Computed, BackendError> {
        self.computed.await.unwrap_or(Err(BackendError::Lost))?;
        if let Some(brought) = self.brought {
            brought.await.unwrap_or(Err(BackendError::Lost))?;
        }
        let host = bench.host;
        let [h, l, a, b_g1, b_g2] = &self.made;
        let [h, l, a, b_g1] = [h, l, a, b_g1].map(|made| fetched::<G1Projective>(made, host));
        Ok(Computed {
            h,
            l,
            a,
            b_g1,
            b_g2: fetched::<G2Projective>(b_g2, host),
            b_g2_on_host: None,
            phases: bench.clock.phases()?,
            tier: self.tier,
        })
    }
}

/// What is left of a proof to do on the host.
pub(super) struct Computed {
    h: Vec<Rows>,
    l: Vec<Rows>,
    a: Vec<Rows>,
    b_g1: Vec<Rows>,
    b_g2: Vec<Rows>,
    /// The sum over `b_g2`, if the host made it.
    pub(super) b_g2_on_host: Option<G2Projective>,
    pub(super) phases: Vec<Phase>,
    pub(super) tier: KeyTier,
}

impl Computed {
    /// The proof.
    pub(super) fn finish(
        &self,
        vk: &VerifyingKey<Bls12>,
        r: Scalar,
        s: Scalar,
        watch: Option<&dyn Watch>,
    ) -> Proof<Bls12> {
        let mut sums = Sums {
            h: total(&self.h),
            l: total(&self.l),
            a: total(&self.a),
            b_g1: total(&self.b_g1),
            b_g2: self.b_g2_on_host.unwrap_or_else(|| total(&self.b_g2)),
        };
        if let Some(watch) = watch {
            show_sums(watch, &mut sums);
        }
        assemble(vk, &sums, r, s)
    }
}

/// Queues the transforms of what [`upload`](super::upload::upload) brings; column a is
/// there, the others are waited for when their turn comes. Whoever calls it has the turn to
/// compute.
pub(super) async fn transform(
    bench: &Bench<'_>,
    arrivals: &mut Arrivals,
    sizes: &CircuitSizes,
) -> Result<(), BackendError> {
    let device = bench.device;
    let is_late = arrivals.is_late();
    if let Some(watch) = bench.watch {
        arrivals.before_transforms().await?;
        show_columns(device, watch, bench.regions, sizes)?;
        if !is_late {
            show_assignment(device, watch, bench.regions, sizes)?;
        }
    }
    let begun = bench.clock.begin(device, Lane::Compute)?;
    quotient_left(bench, sizes.domain())?;
    bench.clock.end(device, begun, "ntt", 0)?;
    arrivals.columns().await?;
    let begun = bench.clock.begin(device, Lane::Compute)?;
    quotient(bench, sizes.domain())?;
    bench.clock.end(device, begun, "ntt", 0)?;
    arrivals.transformed(device)?;
    let Some(watch) = bench.watch else {
        return Ok(());
    };
    if is_late {
        // The turn is kept, which no upload waits for.
        arrivals.all().await?;
        show_assignment(device, watch, bench.regions, sizes)?;
    }
    show_quotient(device, watch, bench.regions, sizes)
}

/// Queues the sums of what was transformed, piece by piece in the order of the key.
/// The numbers of sorted entries are waited for on the way: they decide how a sum is made.
pub(super) async fn sums(
    bench: &Bench<'_>,
    arrivals: &mut Arrivals,
    statement: &Statement<'_>,
    key: &mut KeyPoints<'_>,
    held: &Held,
    sorted: Option<(Arc<SortedQueries>, Taken<'_, Staging>)>,
) -> Result<Queued, BackendError> {
    let device = bench.device;
    let counts = Counts::of(statement.shape);
    for section in QUERIES {
        if counts.of_section(section) == 0 {
            let begun = bench.clock.begin(device, Lane::Compute)?;
            bench.clock.end(device, begun, sum_of(section), 0)?;
        }
    }
    let pieces = key.pieces();
    let mut queries = Queries {
        bench,
        key,
        shape: &held.lists,
        sizes: &statement.shape.sizes,
        rows: rows_of(&counts, held.points.way(), &bench.cutting),
        split: None,
        sorted,
    };
    let mut made = QUERIES.map(|_| Vec::new());
    for piece in &*pieces {
        if piece.section != Section::H {
            arrivals.all().await?;
        }
        made[at(piece.section)].push(queries.sum(piece).await?);
    }
    Ok(Queued {
        made,
        tier: queries.key.tier(),
        computed: device.fence(Lane::Compute)?,
        brought: queries.key.brought(device)?,
    })
}

/// Which of the queries a section is.
fn at(section: Section) -> usize {
    let at = QUERIES.iter().position(|&query| query == section);
    at.expect("a query")
}

/// Where the rows of a query's pieces begin, points of each piece, and bytes of its rows.
#[derive(Clone, Copy)]
struct RowsOf {
    start: u64,
    piece_len: usize,
    bytes: u64,
}

/// The places of rows, as the plan counts them: each piece has its own, so that none is
/// waited for.
fn rows_of(counts: &Counts, way: Way, cutting: &Cutting) -> [RowsOf; QUERIES.len()] {
    let mut start = 0;
    QUERIES.map(|section| {
        let piece_len = counts.piece_len(section, way);
        let bytes = rows_bytes(section, piece_len, cutting);
        let rows = RowsOf {
            start,
            piece_len,
            bytes,
        };
        start += counts.pieces_of(section, way) as u64 * bytes;
        rows
    })
}

/// The queries of one proof.
struct Queries<'a, 'k, 'h> {
    bench: &'a Bench<'a>,
    key: &'a mut KeyPoints<'k>,
    shape: &'a ResidentShape,
    sizes: &'a CircuitSizes,
    rows: [RowsOf; QUERIES.len()],
    /// Whose entries were sorted last, and what was found.
    split: Option<(Range<usize>, Found)>,
    sorted: Option<(Arc<SortedQueries>, Taken<'h, Staging>)>,
}

/// The rows of a sum's pieces, when the lane has been waited for.
fn fetched<P: RowPoint>(made: &[Made], host: &HostWords) -> Vec<Rows> {
    made.iter().map(|made| made.rows::<P>(host)).collect()
}

/// Adds them up.
fn total<P: RowPoint>(rows: &[Rows]) -> P {
    rows.iter().map(Rows::total::<P>).sum()
}

impl Queries<'_, '_, '_> {
    /// Queues the sum of a piece.
    async fn sum(&mut self, piece: &Piece) -> Result<Made, BackendError> {
        let (bench, device) = (self.bench, self.bench.device);
        let Piece { section, range } = piece.clone();
        let (start, len) = (range.start, range.len());
        let (points, _turn) = self.key.bring(bench, piece).await?;
        let rows = self.rows[at(section)];
        let from = rows.start + (start / rows.piece_len) as u64 * rows.bytes;
        let query = Query {
            section,
            count: len,
            points,
            index: self
                .shape
                .index(section)
                .map(|index| index.part(start as u64 * 4, len as u64 * 4)),
            rows: bench.regions.rows.part(from, rows.bytes),
            host_at: COUNTER_WORDS + from as usize / 8,
        };
        let assigned = self.scalars(section, start, len);
        // What was sorted for a piece still lies where the next one looks for it.
        let split = self.split.take();
        let made = match section {
            Section::H => {
                let scalars = bench
                    .regions
                    .a
                    .part(start as u64 * SCALAR_BYTES, len as u64 * SCALAR_BYTES);
                let begun = bench.clock.begin(device, Lane::Compute)?;
                let made = query.whole(bench, scalars, bench.regions.scratch)?;
                bench.clock.end(device, begun, sum_of(section), 0)?;
                made
            }
            _ => {
                // The queries of B have the same entries.
                let known = match (section, split, &mut self.sorted) {
                    (Section::BG2, Some((of, found)), _) if of == range => Entries::Before(found),
                    (_, _, Some((queries, staging))) => {
                        let queries = Arc::clone(queries);
                        let of = sorted_of(section);
                        Entries::Lists(Lists { queries, of }, staging)
                    }
                    _ => Entries::Nothing,
                };
                let (made, found) = query.sum(bench, assigned, known).await?;
                if section == Section::BG1 && !self.key.is_shared() {
                    self.split = Some((range, found));
                }
                made
            }
        };
        self.key.used(bench)?;
        Ok(made)
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

/// Which of the queries that the host sorted is a section's.
fn sorted_of(section: Section) -> fn(&SortedQueries) -> &Sorted {
    match section {
        Section::L => |queries| &queries.l,
        Section::A => |queries| &queries.a,
        _ => |queries| &queries.b,
    }
}

/// Queues the transforms that need column a alone, of so many scalars.
pub(super) fn quotient_left(bench: &Bench<'_>, len: usize) -> Result<(), BackendError> {
    if len == 1 {
        return Ok(());
    }
    let column = len as u64 * SCALAR_BYTES;
    let [a, c] = [&bench.regions.a, &bench.regions.c].map(|region| region.part(0, column));
    if bench.c_source == CSource::Product {
        // It is a times b, both as they are before their transforms.
        bench.device.copy_within(Lane::Compute, c, a)?;
    }
    call("the quotient polynomial", |message| {
        // SAFETY: a region of `len` scalars, written by an upload that was waited for.
        unsafe { border::cuzk_quotient_left(bench.device.raw(), a.address(), len.ilog2(), message) }
    })
}

/// Queues the others: what [`quotient_left`] left, evaluations of B (and C) in,
/// coefficients of h out.
pub(super) fn quotient(bench: &Bench<'_>, len: usize) -> Result<(), BackendError> {
    if len == 1 {
        // Nothing to divide: h has no coefficient that is used.
        return Ok(());
    }
    let column = len as u64 * SCALAR_BYTES;
    let [a, b, c] =
        [&bench.regions.a, &bench.regions.b, &bench.regions.c].map(|region| region.part(0, column));
    let vanishing_inverse = raw_scalar(&vanishing_inverse(len));
    let transforms = match bench.transforms {
        Transforms::Six => 6,
        Transforms::Seven => 7,
    };
    call("the quotient polynomial", |message| {
        // SAFETY: three regions of `len` scalars each; what the kernels read was written
        // by an upload that was waited for, or by the kernel before.
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
