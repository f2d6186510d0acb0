//! A first pass over every kernel of a proof. The driver loads code, and sets memory
//! aside for the local variables of threads, where a kernel is first launched: after
//! this neither falls to a proof, and what memory is free then stays free.

use blstrs::Scalar;

use super::device::{Device, Lane, Region};
use super::plan::{COUNTERS_BYTES, Cutting, SCALAR_BYTES, point_bytes, row_bytes, rows_bytes};
use super::prove::{Bench, COUNTER_WORDS, Regions, Seat, quotient, quotient_left};
use super::query::Query;
use super::staging::decode;
use crate::cpu::h::{CSource, Transforms};
use crate::device::arena::ALIGN;
use crate::error::BackendError;
use crate::key::Section;

/// Transforms of one, two and three steps have kernels of their own.
const LOGS: [u32; 3] = [5, 12, 20];
/// Entries of a sum.
const COUNT: usize = 64;

/// Launches every kernel of a proof and waits for them. Takes memory for the time of
/// the call: a hundred megabytes.
pub(super) fn warm_up(device: &Device) -> Result<(), BackendError> {
    let cutting = Cutting {
        chunk_max: 1 << 10,
        window_bits: None,
        processors: device.processors(),
    };
    let column = SCALAR_BYTES << LOGS[LOGS.len() - 1];
    let sections = [Section::L, Section::BG2];
    let most = |bytes: &dyn Fn(Section) -> u64| sections.map(bytes).into_iter().fold(0, u64::max);
    let scratch = most(&|section| {
        cutting.query_bytes(section, COUNT, true, 0) + cutting.gathered_bytes(section, COUNT, 0)
    });
    let rows = most(&|section| rows_bytes(section, COUNT, &cutting) + row_bytes(section));
    let points = COUNT as u64 * point_bytes(Section::BG2);
    let parts = [
        column,
        column,
        column,
        scratch,
        rows,
        points,
        COUNTERS_BYTES,
        8,
    ];
    let parts = parts.map(|bytes| bytes.next_multiple_of(ALIGN));
    let memory = device.allocate("the warm-up", parts.iter().sum())?;
    device.fill(Lane::Compute, memory.region(), 0)?;
    let mut at = 0;
    let [a, b, c, scratch, rows, points, counters, faults] = parts.map(|bytes| {
        let region = memory.region().part(at, bytes);
        at += bytes;
        region
    });
    let regions = Regions {
        a,
        b,
        c,
        assignment: a,
        spare: b,
        rows,
        counters,
        scratch,
    };
    let launched = launch(device, &regions, cutting, points, faults);
    // The memory is freed after this, whatever failed.
    let waited = [Lane::Compute, Lane::Keys, Lane::Upload].map(|lane| device.wait(lane));
    waited.into_iter().fold(launched, Result::and)
}

fn launch(
    device: &Device,
    regions: &Regions,
    cutting: Cutting,
    points: Region,
    faults: Region,
) -> Result<(), BackendError> {
    // The upload lane begins where the memory is zero.
    device.wait(Lane::Compute)?;
    // SAFETY: waited for below, before the scalars are dropped.
    let copied = unsafe { device.copy_in(Lane::Upload, regions.a, &[Scalar::from(0); COUNT]) };
    device.wait(Lane::Upload)?;
    copied?;
    let seat = Seat::new(device)?;
    let bench = Bench {
        device,
        regions,
        cutting,
        clock: &seat.clock,
        host: &seat.host,
        inputs_len: 0,
        c_source: CSource::Product,
        transforms: Transforms::Six,
        is_split: true,
        watch: None,
    };
    for log in LOGS {
        quotient_left(&bench, 1 << log)?;
        quotient(&bench, 1 << log)?;
    }
    for section in [Section::L, Section::BG2] {
        // Points of no curve, but of their encoding's length.
        decode(device, section, regions.b, COUNT, 0, points, faults)?;
        device.wait(Lane::Keys)?;
        device.fill(Lane::Compute, points, 0)?;
        let query = Query {
            section,
            count: COUNT,
            points,
            index: None,
            rows: regions.rows,
            host_at: COUNTER_WORDS,
        };
        let scalars = regions.a.part(0, COUNT as u64 * SCALAR_BYTES);
        let queued = query.every_kernel(&bench, scalars);
        // The words of the seat are written until then.
        device.wait(Lane::Compute)?;
        queued?;
    }
    Ok(())
}
