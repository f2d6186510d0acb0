//! The sum of one query on the device, or of a piece of one: points times scalars.
//!
//! Entries are sorted by their scalar first. Zeros are left out, the points of ones are
//! added, and only the rest is gathered and multiplied.

use std::sync::Arc;

use super::border::{self, call};
use super::clock::sum_of;
use super::device::{Lane, Region};
use super::host_words::HostWords;
use super::plan::{
    COUNTERS_BYTES, Cut, SCALAR_BYTES, align, partials_bytes, point_bytes, row_bytes,
};
use super::prove::Bench;
use super::rows::{RowPoint, combine};
use super::staging::Staging;
use crate::device::sorted::{Sorted, SortedQueries};
use crate::error::BackendError;
use crate::key::Section;

/// What is known of a query's entries.
pub(super) enum Entries<'a> {
    Nothing,
    /// The sum before, of as many, sorted the same entries: what it found, and the lists
    /// still lie where this one looks for them.
    Before(Found),
    /// The host sorted them.
    Lists(Lists, &'a mut Staging),
}

/// Entries that the host sorted, and which of the queries' is meant.
pub(super) struct Lists {
    pub(super) queries: Arc<SortedQueries>,
    pub(super) of: fn(&SortedQueries) -> &Sorted,
}

impl Lists {
    /// Brings the lists and their lengths, behind all that the compute lane was given.
    async fn bring(
        &self,
        bench: &Bench<'_>,
        staging: &mut Staging,
        ones: Region,
        rest: Region,
    ) -> Result<Found, BackendError> {
        let device = bench.device;
        let passed = device.fence_event()?;
        device.record(Lane::Compute, &passed)?;
        device.follow(Lane::Keys, &passed)?;
        let sorted = (self.of)(&self.queries);
        let lens = [sorted.ones.len(), sorted.rest.len()];
        let of = self.of;
        let queries = Arc::clone(&self.queries);
        let indices = (0..lens[0]).map(move |at| of(&queries).ones[at] as usize);
        staging.indices(device, indices, lens[0], ones).await?;
        let queries = Arc::clone(&self.queries);
        let indices = (0..lens[1]).map(move |at| of(&queries).rest[at] as usize);
        staging.indices(device, indices, lens[1], rest).await?;
        let counters = [lens[0], lens[1], 0];
        let to = bench.regions.counters.part(0, COUNTERS_BYTES);
        staging
            .indices(device, counters.into_iter(), counters.len(), to)
            .await?;
        let [ones, rest] = lens.map(|len| len as u32);
        Ok(Found { ones, rest })
    }
}

/// A query to be summed.
pub(super) struct Query {
    pub(super) section: Section,
    pub(super) count: usize,
    pub(super) points: Region,
    pub(super) index: Option<Region>,
    pub(super) rows: Region,
    /// The first of as many words of the host, where the rows are fetched to.
    pub(super) host_at: usize,
}

/// Rows on the device that make a sum, which are being fetched.
#[derive(Default)]
pub(super) struct Made {
    /// Where the sum of ones is fetched to, if there were any.
    ones: Option<usize>,
    /// Where the rows of a multiplication are fetched to, if there was one.
    rest: Option<(usize, Cut)>,
}

impl Made {
    /// The rows, when the lane has been waited for.
    pub(super) fn rows<P: RowPoint>(&self, host: &HostWords) -> Rows {
        let words = |at: usize, len: usize| host.words()[at..][..len].to_vec();
        Rows {
            ones: self.ones.map(|at| words(at, P::WORDS)),
            rest: self.rest.map(|(at, cut)| {
                let len = cut.chunks() * cut.windows() * P::WORDS;
                (words(at, len), cut)
            }),
        }
    }
}

/// Rows that make a sum.
#[derive(Default)]
pub(super) struct Rows {
    ones: Option<Vec<u64>>,
    rest: Option<(Vec<u64>, Cut)>,
}

impl Rows {
    /// Adds them up.
    pub(super) fn total<P: RowPoint>(&self) -> P {
        let mut sum = P::identity();
        if let Some(row) = &self.ones {
            sum += P::from_row(row);
        }
        if let Some((rows, cut)) = &self.rest {
            sum += combine::<P>(rows, cut.windows(), cut.window_bits);
        }
        sum
    }
}

/// Cuts regions off the front of a larger one.
struct Bump(Region);

impl Bump {
    fn take(&mut self, bytes: u64) -> Region {
        let taken = self.0.part(0, bytes);
        let used = align(bytes).min(self.0.bytes());
        self.0 = self.0.part(used, self.0.bytes() - used);
        taken
    }

    /// From `spare` where that has room.
    fn take_beside(&mut self, spare: Region, bytes: u64) -> Region {
        if align(bytes) <= spare.bytes() {
            spare.part(0, bytes)
        } else {
            self.take(bytes)
        }
    }
}

impl Query {
    /// Multiplies every point by its scalar.
    pub(super) fn whole(
        &self,
        bench: &Bench<'_>,
        scalars: Region,
        work: Region,
    ) -> Result<Made, BackendError> {
        if self.count == 0 {
            return Ok(Made::default());
        }
        let cut = bench.cutting.cut(self.count);
        self.multiply(bench, cut, self.points, scalars, work)?;
        Ok(Made {
            ones: None,
            rest: Some((self.fetch_rest(bench, cut)?, cut)),
        })
    }

    /// The sum of a query whose scalars, or what its indices point into, are these, and
    /// what of its entries was found.
    pub(super) async fn sum(
        &self,
        bench: &Bench<'_>,
        scalars: Region,
        known: Entries<'_>,
    ) -> Result<(Made, Found), BackendError> {
        if self.count == 0 {
            return Ok(Default::default());
        }
        let mut scratch = Bump(bench.regions.scratch);
        let list_bytes = self.count as u64 * 4;
        let (ones, rest) = (scratch.take(list_bytes), scratch.take(list_bytes));
        let found = match known {
            Entries::Nothing => {
                let begun = bench.clock.begin(bench.device, Lane::Compute)?;
                self.split(bench, scalars, ones, rest)?;
                bench
                    .clock
                    .end(bench.device, begun, sum_of(self.section), 0)?;
                self.found(bench).await?
            }
            Entries::Before(found) => found,
            Entries::Lists(lists, staging) => lists.bring(bench, staging, ones, rest).await?,
        };
        let begun = bench.clock.begin(bench.device, Lane::Compute)?;
        let made = self.sum_found(bench, scalars, found, scratch, [ones, rest])?;
        bench
            .clock
            .end(bench.device, begun, sum_of(self.section), 0)?;
        Ok((made, found))
    }

    /// Queues the sum of sorted entries.
    fn sum_found(
        &self,
        bench: &Bench<'_>,
        scalars: Region,
        found: Found,
        mut scratch: Bump,
        [ones, rest]: [Region; 2],
    ) -> Result<Made, BackendError> {
        // Without room to gather the full scalars and their points, nearly all of
        // them are multiplied anyway.
        let spare = bench.regions.spare;
        let gathered_bytes =
            bench
                .cutting
                .gathered_bytes(self.section, found.rest as usize, spare.bytes());
        if !bench.is_split || gathered_bytes > scratch.0.bytes() {
            let scalars = match self.index {
                None => scalars,
                Some(_) => {
                    let bytes = self.count as u64 * SCALAR_BYTES;
                    let gathered = scratch.take_beside(spare, bytes);
                    self.gather_scalars(bench, scalars, None, self.count, gathered)?;
                    gathered
                }
            };
            return self.whole(bench, scalars, scratch.0);
        }
        let mut made = Made::default();
        if found.ones != 0 {
            let row = self.rows.part(0, row_bytes(self.section));
            self.add_ones(bench, ones, scratch.0, row)?;
            self.fetch(bench, self.host_at, row)?;
            made.ones = Some(self.host_at);
        }
        if found.rest != 0 {
            let count = found.rest as usize;
            let cut = bench.cutting.cut(count);
            let gathered = scratch.take(count as u64 * SCALAR_BYTES);
            self.gather_scalars(bench, scalars, Some(rest), count, gathered)?;
            let bytes = count as u64 * point_bytes(self.section);
            let points = scratch.take_beside(spare, bytes);
            self.gather_points(bench, rest, count, points)?;
            self.multiply(bench, cut, points, gathered, scratch.0)?;
            made.rest = Some((self.fetch_rest(bench, cut)?, cut));
        }
        Ok(made)
    }

    /// Queues every kernel that a sum may want, whatever the scalars are.
    pub(super) fn every_kernel(
        &self,
        bench: &Bench<'_>,
        scalars: Region,
    ) -> Result<(), BackendError> {
        let cut = bench.cutting.cut(self.count);
        let mut scratch = Bump(bench.regions.scratch);
        let list_bytes = self.count as u64 * 4;
        let (ones, rest) = (scratch.take(list_bytes), scratch.take(list_bytes));
        self.split(bench, scalars, ones, rest)?;
        bench.device.fill(Lane::Compute, rest, 0)?;
        let gathered = scratch.take(self.count as u64 * SCALAR_BYTES);
        self.gather_scalars(bench, scalars, Some(rest), self.count, gathered)?;
        let points = scratch.take(self.count as u64 * point_bytes(self.section));
        self.gather_points(bench, rest, self.count, points)?;
        let row = self.rows.part(0, row_bytes(self.section));
        self.add_ones(bench, ones, scratch.0, row)?;
        self.multiply(bench, cut, points, gathered, scratch.0)
    }

    /// Where the rows of a multiplication lie.
    fn rest_rows(&self, cut: Cut) -> Region {
        let ones = align(row_bytes(self.section));
        self.rows.part(ones, cut.rows_bytes(self.section))
    }

    /// Queues the copy of these to the host, and says to which of its words.
    fn fetch_rest(&self, bench: &Bench<'_>, cut: Cut) -> Result<usize, BackendError> {
        let at = self.host_at + align(row_bytes(self.section)) as usize / 8;
        self.fetch(bench, at, self.rest_rows(cut))?;
        Ok(at)
    }

    fn fetch(&self, bench: &Bench<'_>, at: usize, rows: Region) -> Result<(), BackendError> {
        // SAFETY: the words are this query's; whoever reads them, or lets go of the
        // slot, has waited for the lane.
        unsafe { bench.host.fetch(bench.device, Lane::Compute, at, rows) }
    }

    fn multiply(
        &self,
        bench: &Bench<'_>,
        cut: Cut,
        points: Region,
        scalars: Region,
        work: Region,
    ) -> Result<(), BackendError> {
        let rows = self.rest_rows(cut);
        assert!(points.bytes() >= cut.count as u64 * point_bytes(self.section));
        assert!(scalars.bytes() >= cut.count as u64 * SCALAR_BYTES);
        let function = match self.section {
            Section::BG2 => border::cuzk_msm_g2,
            _ => border::cuzk_msm_g1,
        };
        call("a multi-scalar multiplication", |message| {
            // SAFETY: points and scalars hold `count` each (asserted); the function
            // compares the lengths of the other two with what it needs.
            unsafe {
                function(
                    bench.device.raw(),
                    points.address(),
                    scalars.address(),
                    cut.count,
                    cut.chunk,
                    cut.window_bits,
                    work.address(),
                    work.bytes() as usize,
                    rows.address(),
                    rows.bytes() as usize,
                    message,
                )
            }
        })
    }

    /// Queues the sorting of the entries.
    fn split(
        &self,
        bench: &Bench<'_>,
        scalars: Region,
        ones: Region,
        rest: Region,
    ) -> Result<(), BackendError> {
        let counters = bench.regions.counters.part(0, COUNTERS_BYTES);
        call("splitting scalars", |message| {
            // SAFETY: the lists have room for every entry, the counters for three
            // words, and the function checks each index against the scalars.
            unsafe {
                border::cuzk_split(
                    bench.device.raw(),
                    scalars.address(),
                    (scalars.bytes() / SCALAR_BYTES) as usize,
                    self.index
                        .map_or(std::ptr::null_mut(), |index| index.address()),
                    self.count,
                    ones.address(),
                    rest.address(),
                    counters.address(),
                    message,
                )
            }
        })?;
        self.fetch(bench, 0, counters)
    }

    /// Waits for the numbers of sorted entries.
    async fn found(&self, bench: &Bench<'_>) -> Result<Found, BackendError> {
        bench.device.passed(Lane::Compute).await?;
        let words = bench.host.words();
        let [ones, rest, wrong] = [words[0] as u32, (words[0] >> 32) as u32, words[1] as u32];
        if wrong != 0 {
            return Err(BackendError::Unreduced {
                what: "the assignment",
                count: wrong,
            });
        }
        Ok(Found { ones, rest })
    }

    fn gather_scalars(
        &self,
        bench: &Bench<'_>,
        scalars: Region,
        entries: Option<Region>,
        count: usize,
        out: Region,
    ) -> Result<(), BackendError> {
        let address = |region: Option<Region>| region.map_or(std::ptr::null_mut(), |r| r.address());
        let words = |region: Option<Region>| region.map_or(0, |r| r.bytes() as usize / 4);
        call("gathering scalars", |message| {
            // SAFETY: entries are places of this query and indices are those of its
            // circuit's variables, whose number was compared with the columns'; the
            // function compares the lengths with what it needs.
            unsafe {
                border::cuzk_gather_scalars(
                    bench.device.raw(),
                    scalars.address(),
                    (scalars.bytes() / SCALAR_BYTES) as usize,
                    address(self.index),
                    words(self.index),
                    address(entries),
                    words(entries),
                    count,
                    out.address(),
                    (out.bytes() / SCALAR_BYTES) as usize,
                    message,
                )
            }
        })
    }

    fn gather_points(
        &self,
        bench: &Bench<'_>,
        entries: Region,
        count: usize,
        out: Region,
    ) -> Result<(), BackendError> {
        let bytes = point_bytes(self.section);
        call("gathering points", |message| {
            // SAFETY: entries are below the query's number of points; the function
            // compares the lengths with what it needs.
            unsafe {
                border::cuzk_gather_points(
                    bench.device.raw(),
                    self.points.address(),
                    (self.points.bytes() / bytes) as usize,
                    bytes as usize,
                    entries.address(),
                    entries.bytes() as usize / 4,
                    count,
                    out.address(),
                    (out.bytes() / bytes) as usize,
                    message,
                )
            }
        })
    }

    fn add_ones(
        &self,
        bench: &Bench<'_>,
        ones: Region,
        work: Region,
        row: Region,
    ) -> Result<(), BackendError> {
        let work = work.part(0, partials_bytes(self.section, bench.device.processors()));
        let function = match self.section {
            Section::BG2 => border::cuzk_sum_g2,
            _ => border::cuzk_sum_g1,
        };
        call("adding points", |message| {
            // SAFETY: the first counter is the number of ones, each an entry of the
            // query; the function compares the lengths with what it needs.
            unsafe {
                function(
                    bench.device.raw(),
                    self.points.address(),
                    (self.points.bytes() / point_bytes(self.section)) as usize,
                    ones.address(),
                    ones.bytes() as usize / 4,
                    bench.regions.counters.address(),
                    work.address(),
                    work.bytes() as usize,
                    row.address(),
                    row.bytes() as usize,
                    message,
                )
            }
        })
    }
}

/// How many entries of a query are one, and how many neither zero nor one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    ones: u32,
    rest: u32,
}
