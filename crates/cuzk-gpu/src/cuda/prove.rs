//! One proof on the device.

use std::ops::Range;
use std::sync::Arc;

use bellperson::groth16::{Proof, VerifyingKey};
use blstrs::{Bls12, G1Projective, G2Projective, Scalar};

use super::border::{self, RawScalar, call};
use super::device::{Device, Event, HostWords, Lane, Region};
use super::host_key::HostKey;
use super::plan::{Counts, Cutting, QUERIES, SCALAR_BYTES, point_bytes};
use super::points::PointBytes;
use super::query::{Made, Query, Rows};
use super::resident::{ResidentKey, ResidentShape};
use super::rows::RowPoint;
use super::staging::Staging;
use super::watch::{show_quotient, show_uploaded};
use crate::backend::PhaseTimes;
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::ntt::vanishing_inverse;
use crate::device::host::on_thread;
use crate::device::turn::Taken;
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

/// Words of the host for the counters of a split, before those for rows and inputs.
pub(super) const COUNTER_WORDS: usize = 2;

/// What a proof is made with.
pub(super) struct Bench<'a> {
    pub(super) device: &'a Device,
    pub(super) regions: &'a Regions,
    pub(super) cutting: Cutting,
    pub(super) clock: &'a Clock,
    /// Counters, then the inputs until they are uploaded, then rows.
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
        &self.host.words()[COUNTER_WORDS..][..self.inputs_len * 4]
    }
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

    /// Makes room for rows of so many bytes, and puts the inputs in it.
    pub(super) fn prepare(
        &mut self,
        device: &Device,
        rows_bytes: u64,
        inputs: &[Scalar],
    ) -> Result<(), BackendError> {
        let words = COUNTER_WORDS + (rows_bytes as usize / 8).max(inputs.len() * 4);
        if words > self.host.len() {
            self.host = HostWords::new(device, words.next_power_of_two())?;
        }
        let to = &mut self.host.words_mut()[COUNTER_WORDS..];
        for (words, scalar) in to.chunks_exact_mut(4).zip(inputs) {
            // SAFETY: a scalar is four 64-bit limbs in memory.
            words.copy_from_slice(&unsafe { std::mem::transmute::<Scalar, [u64; 4]>(*scalar) });
        }
        Ok(())
    }
}

/// Events between the phases of a proof.
pub(super) struct Clock {
    /// Begin and end of the upload.
    pub(super) upload: [Event; 2],
    /// Before the first phase of the computation, and after each.
    compute: Vec<Event>,
    /// After a piece of a key was brought to each of its places, and after its last use.
    brought: [Event; 2],
    used: [Event; 2],
}

/// The phases of a computation.
const PHASES: [&str; 6] = ["ntt", "msm_h", "msm_l", "msm_a", "msm_b_g1", "msm_b_g2"];

impl Clock {
    pub(super) fn new(device: &Device) -> Result<Self, BackendError> {
        let events = (0..=PHASES.len()).map(|_| device.event());
        let two = || Ok::<_, BackendError>([device.event()?, device.event()?]);
        Ok(Self {
            upload: two()?,
            compute: events.collect::<Result<_, _>>()?,
            brought: two()?,
            used: two()?,
        })
    }

    fn times(&self) -> Result<PhaseTimes, BackendError> {
        let [begin, end] = &self.upload;
        let mut times = vec![("upload", end.since_ms(begin)?)];
        for (&name, pair) in PHASES.iter().zip(self.compute.windows(2)) {
            times.push((name, pair[1].since_ms(&pair[0])?));
        }
        Ok(PhaseTimes(times))
    }
}

/// Where the points of a proof's key are.
pub(super) enum KeyPoints<'a> {
    /// On the device.
    Resident(&'a ResidentKey),
    /// Elsewhere: brought piece by piece, one while the one before is summed.
    Streamed {
        from: Origin<'a>,
        places: [Region; 2],
        piece_len: usize,
        /// Pieces that were brought.
        count: usize,
    },
}

/// Where the pieces of a key come from.
pub(super) enum Origin<'a> {
    /// Its source; and where the points are kept for the next proof.
    Source {
        source: &'a Arc<dyn PointBytes>,
        staging: Taken<'a, Staging>,
        keep: Option<&'a HostKey>,
    },
    /// Page-locked memory.
    Host(&'a HostKey),
}

impl KeyPoints<'_> {
    fn tier(&self) -> KeyTier {
        match self {
            Self::Resident(_) => KeyTier::Resident,
            Self::Streamed { from, .. } => match from {
                Origin::Source { .. } => KeyTier::File,
                Origin::Host(_) => KeyTier::Pinned,
            },
        }
    }

    /// How many of a query's points are there at a time.
    fn piece_len(&self, count: usize) -> usize {
        match self {
            Self::Resident(_) => count,
            Self::Streamed { piece_len, .. } => *piece_len,
        }
    }

    /// The points of a range, on the device for what the compute lane is given from now
    /// on. Those of the range before are there too, older ones are gone.
    async fn bring(
        &mut self,
        bench: &Bench<'_>,
        section: Section,
        range: Range<usize>,
    ) -> Result<Region, BackendError> {
        let (from, places, count) = match self {
            Self::Resident(key) => return Ok(key.points(section)),
            Self::Streamed {
                from,
                places,
                count,
                ..
            } => (from, places, count),
        };
        let (device, clock) = (bench.device, bench.clock);
        let place = *count % 2;
        if *count >= 2 {
            // The last sum of what is there may not have ended.
            device.follow(Lane::Keys, &clock.used[place])?;
        }
        *count += 1;
        let points = places[place].part(0, range.len() as u64 * point_bytes(section));
        match from {
            Origin::Source {
                source,
                staging,
                keep,
            } => {
                let start = range.start;
                staging
                    .points(device, source, section, range, points)
                    .await?;
                if let Some(key) = keep {
                    // SAFETY: the proof has the key until it has waited for the lane.
                    unsafe { key.keep(device, section, start, points) }?;
                }
            }
            Origin::Host(key) => {
                // SAFETY: as above; a key that is whole is fetched no more.
                unsafe { key.bring(device, section, range.start, points) }?;
                device.record(Lane::Keys, &clock.brought[place])?;
                device.follow(Lane::Compute, &clock.brought[place])?;
            }
        }
        Ok(points)
    }

    /// What was brought last is not read after what is queued now.
    fn used(&self, bench: &Bench<'_>) -> Result<(), BackendError> {
        match self {
            Self::Resident(_) => Ok(()),
            Self::Streamed { count, .. } => {
                let place = (*count + 1) % 2;
                let event = &bench.clock.used[place];
                bench.device.record(Lane::Compute, event)
            }
        }
    }

    /// Every piece was brought and summed.
    async fn end(&self, device: &Device) -> Result<(), BackendError> {
        if let Self::Streamed { from, .. } = self {
            device.passed(Lane::Keys).await?;
            if let Origin::Source {
                keep: Some(key), ..
            } = from
            {
                key.set_loaded();
            }
        }
        Ok(())
    }
}

/// What is left of a proof to do on the host.
pub(super) struct Computed {
    h: Sum<G1Projective>,
    l: Sum<G1Projective>,
    a: Sum<G1Projective>,
    b_g1: Sum<G1Projective>,
    b_g2: Sum<G2Projective>,
    pub(super) phases: PhaseTimes,
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
            h: self.h.total(),
            l: self.l.total(),
            a: self.a.total(),
            b_g1: self.b_g1.total(),
            b_g2: self.b_g2.total(),
        };
        if let Some(watch) = watch {
            show_sums(watch, &mut sums);
        }
        assemble(vk, &sums, r, s)
    }
}

/// Computes what [`upload`](super::upload::upload) brought, and waits for it.
pub(super) async fn prove(
    bench: &Bench<'_>,
    statement: &Statement<'_>,
    key: &mut KeyPoints<'_>,
    shape: &ResidentShape,
) -> Result<Computed, BackendError> {
    let device = bench.device;
    let sizes = &statement.shape.sizes;
    let passed = |phase: usize| device.record(Lane::Compute, &bench.clock.compute[phase]);
    if let Some(watch) = bench.watch {
        show_uploaded(device, watch, bench.regions, sizes)?;
    }
    passed(0)?;
    quotient(bench, sizes)?;
    passed(1)?;
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
    let h = queries.sum::<G1Projective>(Section::H).await?;
    passed(2)?;
    let l = queries.sum::<G1Projective>(Section::L).await?;
    passed(3)?;
    let a = queries.sum::<G1Projective>(Section::A).await?;
    passed(4)?;
    let b_g1 = queries.sum::<G1Projective>(Section::BG1).await?;
    passed(5)?;
    let b_g2 = queries.sum::<G2Projective>(Section::BG2).await?;
    passed(6)?;
    device.passed(Lane::Compute).await?;
    key.end(device).await?;
    let host = bench.host;
    Ok(Computed {
        h: h.fetched(host),
        l: l.fetched(host),
        a: a.fetched(host),
        b_g1: b_g1.fetched(host),
        b_g2: b_g2.fetched(host),
        phases: bench.clock.times()?,
        tier: key.tier(),
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

/// A sum: what is added up, and the rows that are not.
struct Sum<P> {
    done: P,
    rows: Rows,
}

impl<P: RowPoint> Sum<P> {
    fn total(&self) -> P {
        self.done + self.rows.total::<P>()
    }
}

/// A sum under way: what is added up, and what still lies on the device.
struct Summing<P> {
    done: P,
    made: Made,
}

impl<P: RowPoint> Summing<P> {
    fn fetched(&self, host: &HostWords) -> Sum<P> {
        Sum {
            done: self.done,
            rows: self.made.rows::<P>(host),
        }
    }
}

impl Queries<'_, '_> {
    /// Queues the sum of a query. Of several pieces all but the last are waited for,
    /// since the next one's rows take the place of theirs; meanwhile the next one comes.
    async fn sum<P: RowPoint>(&mut self, section: Section) -> Result<Summing<P>, BackendError> {
        let (bench, device) = (self.bench, self.bench.device);
        let count = self.counts.of_section(section);
        let at = QUERIES.iter().position(|&query| query == section);
        let at = at.expect("a query") as u64;
        let share = bench.regions.rows.bytes() / QUERIES.len() as u64;
        let rows = bench.regions.rows.part(at * share, share);
        let host_at = COUNTER_WORDS + (at * share) as usize / 8;
        let mut sum = Summing {
            done: P::identity(),
            made: Made::default(),
        };
        for start in (0..count).step_by(self.key.piece_len(count).max(1)) {
            let len = self.key.piece_len(count).min(count - start);
            let points = self.key.bring(bench, section, start..start + len).await?;
            if start != 0 {
                device.passed(Lane::Compute).await?;
                let rows = sum.made.rows::<P>(bench.host);
                let total = on_thread("adding rows", move || rows.total::<P>());
                sum.done += total.await?;
            }
            let query = Query {
                section,
                count: len,
                points,
                index: self
                    .shape
                    .index(section)
                    .map(|index| index.part(start as u64 * 4, len as u64 * 4)),
                rows,
                host_at,
            };
            sum.made = match section {
                Section::H => {
                    let scalars = bench
                        .regions
                        .a
                        .part(start as u64 * SCALAR_BYTES, len as u64 * SCALAR_BYTES);
                    query.whole(bench, scalars, bench.regions.scratch)?
                }
                _ => query.sum(bench, self.scalars(section, start, len)).await?,
            };
            self.key.used(bench)?;
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
        // SAFETY: three regions of `len` scalars, written by an upload that was waited
        // for.
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
