//! What memory costs before anything is in it.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use cuzk_budget::Budget;
use cuzk_pinned::PinnedPool;
use cuzk_pinned::cuda::{BackingTimes, CudaBacking, RegisterOptions, RegisteredBacking};
use cuzk_tests::record::{Case, Record, Series};

use super::device::Device;
use super::memory::middle;
use super::{host, keep, ms, pool, size, take};

/// Time to have a buffer, from the driver, registered, and of the heap. The pages
/// are not new to the machine: buffers of these sizes were freed just before.
pub(super) fn measure(
    device: &Device,
    bytes: usize,
    threads: NonZero<usize>,
    samples: usize,
    until: Instant,
    record: &mut Record,
) -> Result<()> {
    let context = &device.context;
    let options = RegisterOptions::with_threads(threads);
    let registered = Arc::new(RegisteredBacking::new(Arc::clone(context), options)?);
    let times = || registered.times();
    let pool_of = pool(Arc::clone(&registered));
    let case = case(
        "registered mapping",
        bytes,
        (samples, until),
        &pool_of,
        times,
    )?;
    keep(record, case);

    let heap = PinnedPool::heap(Budget::named("placements", u64::MAX));
    let mut touches = Vec::new();
    for _ in 0..samples {
        let mut buffer = take(&heap, bytes)?;
        let from = Instant::now();
        host::fill(buffer.as_bytes_mut(), 1, threads.get());
        touches.push(ms(from.elapsed()));
        drop(buffer);
        heap.trim(u64::MAX);
    }
    let name = format!(
        "{} first touch of heap memory, {threads} threads",
        size(bytes)
    );
    keep(record, Case::alone(name, Series::new(touches, "ms")));

    // Last, since it takes seconds: the driver touches with one thread.
    let cuda = Arc::new(CudaBacking::new(Arc::clone(context), threads));
    let times = || cuda.times();
    let pool_of = pool(Arc::clone(&cuda));
    let case = self::case("driver", bytes, (samples, until), &pool_of, times)?;
    keep(record, case);
    Ok(())
}

fn case(
    name: &str,
    bytes: usize,
    (samples, until): (usize, Instant),
    pool: &PinnedPool,
    times: impl Fn() -> BackingTimes,
) -> Result<Case> {
    let mut taken = Vec::new();
    for index in 0..samples {
        if index >= 2 && Instant::now() > until {
            break;
        }
        let before = times();
        let from = Instant::now();
        pool.warm(&[(bytes, 1)])?;
        let total = ms(from.elapsed());
        pool.trim(u64::MAX);
        let after = times();
        let phases = BTreeMap::from([
            ("allocate".to_owned(), ms(after.allocate - before.allocate)),
            ("touch".to_owned(), ms(after.touch - before.touch)),
            ("register".to_owned(), ms(after.register - before.register)),
            ("free".to_owned(), ms(after.free - before.free)),
        ]);
        taken.push((total, phases));
    }
    let totals = taken.iter().map(|(total, _)| *total).collect();
    let name = format!("{} allocation, {name}", size(bytes));
    let mut case = Case::alone(name, Series::new(totals, "ms"));
    case.phases_ms = middle(taken);
    Ok(case)
}
