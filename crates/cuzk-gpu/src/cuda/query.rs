//! The sum of one query on the device, or of a piece of one: points times scalars.
//!
//! Entries are sorted by their scalar first. Zeros are left out, the points of ones are
//! added, and only the rest is gathered and multiplied.

use super::border::{self, call};
use super::device::{Device, Lane, Region};
use super::plan::{Cut, SCALAR_BYTES, align, partials_bytes, point_bytes, row_bytes};
use super::prove::Bench;
use super::rows::{RowPoint, combine};
use crate::error::BackendError;
use crate::key::Section;

/// A query to be summed.
pub(super) struct Query {
    pub(super) section: Section,
    pub(super) count: usize,
    pub(super) points: Region,
    pub(super) index: Option<Region>,
    pub(super) rows: Region,
}

/// Rows on the device that make a sum.
pub(super) struct Made {
    /// The sum of ones, if there were any.
    ones: Option<Region>,
    /// The rows of a multiplication, if there was one.
    rest: Option<(Region, Cut)>,
}

impl Made {
    /// Fetches the rows and adds them up.
    pub(super) fn total<P: RowPoint>(&self, device: &Device) -> Result<P, BackendError> {
        let mut sum = P::identity();
        if let Some(region) = self.ones {
            let mut row = vec![0u64; P::WORDS];
            device.copy_out(Lane::Compute, &mut row, region)?;
            sum += P::from_row(&row);
        }
        if let Some((region, cut)) = &self.rest {
            let mut rows = vec![0u64; cut.chunks() * cut.windows() * P::WORDS];
            device.copy_out(Lane::Compute, &mut rows, *region)?;
            sum += combine::<P>(&rows, cut.windows(), cut.window_bits);
        }
        Ok(sum)
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
            return Ok(Made {
                ones: None,
                rest: None,
            });
        }
        let cut = bench.cutting.cut(self.count);
        let rows = self
            .rows
            .part(align(row_bytes(self.section)), cut.rows_bytes(self.section));
        self.multiply(bench, cut, self.points, scalars, work, rows)?;
        Ok(Made {
            ones: None,
            rest: Some((rows, cut)),
        })
    }

    /// The sum of a query whose scalars, or what its indices point into, are these.
    pub(super) fn sum(&self, bench: &Bench<'_>, scalars: Region) -> Result<Made, BackendError> {
        if self.count == 0 {
            return Ok(Made {
                ones: None,
                rest: None,
            });
        }
        let mut scratch = Bump(bench.regions.scratch);
        let list_bytes = self.count as u64 * 4;
        let (ones, rest) = (scratch.take(list_bytes), scratch.take(list_bytes));
        let found = self.split(bench, scalars, ones, rest)?;
        // Without room to gather the full scalars and their points, nearly all of
        // them are multiplied anyway.
        let spare = bench.regions.b;
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
        let mut made = Made {
            ones: None,
            rest: None,
        };
        if found.ones != 0 {
            let row = self.rows.part(0, row_bytes(self.section));
            self.add_ones(bench, ones, scratch.0, row)?;
            made.ones = Some(row);
        }
        if found.rest != 0 {
            let count = found.rest as usize;
            let cut = bench.cutting.cut(count);
            let gathered = scratch.take(count as u64 * SCALAR_BYTES);
            self.gather_scalars(bench, scalars, Some(rest), count, gathered)?;
            let bytes = count as u64 * point_bytes(self.section);
            let points = scratch.take_beside(spare, bytes);
            self.gather_points(bench, rest, count, points)?;
            let rows = self
                .rows
                .part(align(row_bytes(self.section)), cut.rows_bytes(self.section));
            self.multiply(bench, cut, points, gathered, scratch.0, rows)?;
            made.rest = Some((rows, cut));
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
        let rows = self
            .rows
            .part(align(row_bytes(self.section)), cut.rows_bytes(self.section));
        self.multiply(bench, cut, points, gathered, scratch.0, rows)
    }

    fn multiply(
        &self,
        bench: &Bench<'_>,
        cut: Cut,
        points: Region,
        scalars: Region,
        work: Region,
        rows: Region,
    ) -> Result<(), BackendError> {
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

    /// Sorts the entries and waits for their numbers.
    fn split(
        &self,
        bench: &Bench<'_>,
        scalars: Region,
        ones: Region,
        rest: Region,
    ) -> Result<Found, BackendError> {
        let counters = bench.regions.counters;
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
        let mut found = [0u32; 3];
        bench.device.copy_out(Lane::Compute, &mut found, counters)?;
        let [ones, rest, wrong] = found;
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
            // SAFETY: entries were made by `split` from indices it checked; the
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
#[derive(Clone, Copy, Debug)]
struct Found {
    ones: u32,
    rest: u32,
}
