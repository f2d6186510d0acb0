//! `placements`: what it costs to have columns in page-locked memory, and how
//! fast each way to it feeds the device, beside one plain page-locked copy.
//!
//! It is cut into cells: the ways at one size beside one load, the copies at one
//! size, the allocations of one size. Those that the claim rests on come first, and
//! the record is written after each. A sample that would take longer than
//! [`SAMPLE_MAX`] is ended, and its rate is that of the bytes so far; a cell takes
//! fewer samples where its share of the time is over.

mod allocation;
pub(crate) mod device;
mod host;
mod load;
mod memory;

use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_pinned::{AcquireRequest, Backing, PinnedBacking, PinnedPool, PoolOptions};
use cuzk_tests::record::{Case, Record, Series};

use self::device::Device;
use self::load::Load;
use self::memory::{Memory, Way};

const CONSUMER: Consumer = Consumer("placements");

/// A sample that can be ended early is ended then: beside a saturated upload stream
/// a pageable copy moves 0.05 GB/s, and would take minutes.
const SAMPLE_MAX: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Sizes of a column, the one that matters most first.
    #[arg(long, value_delimiter = ',', default_value = "4096,12288,1024")]
    sizes_mib: Vec<usize>,
    /// Samples at most, after one that warms up.
    #[arg(long, default_value_t = 5)]
    samples: usize,
    /// Seconds in all. Fewer samples are taken, never less than two, where it
    /// would take longer.
    #[arg(long, default_value_t = 400)]
    limit_s: u64,
    /// Threads that stage, touch and, as a load, write; all cores otherwise.
    #[arg(long)]
    threads: Option<NonZero<usize>>,
}

/// The time that is left, shared by the cells that are left.
struct Clock {
    until: Instant,
    cells_left: u32,
}

impl Clock {
    /// Until when the next cell may go on.
    fn next_cell(&mut self) -> Instant {
        let now = Instant::now();
        let share = self.until.saturating_duration_since(now) / self.cells_left.max(1);
        self.cells_left = self.cells_left.saturating_sub(1);
        now + share
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(options.limit_s);
    let threads = match options.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism()?,
    };
    let sizes: Vec<usize> = options.sizes_mib.iter().map(|mib| mib << 20).collect();
    ensure!(!sizes.contains(&0), "a size is zero");
    let size_max = sizes.iter().copied().max().context("no sizes")?;
    let loads = [
        Load::None,
        Load::Writers(threads.get()),
        Load::DeviceCopies,
        Load::Uploads,
    ];
    let mut clock = Clock {
        until,
        cells_left: (sizes.len() * (loads.len() + 2)) as u32,
    };
    let device = Device::open(size_max)?;
    let mut record = new_record(options, &device)?;
    let (mut late, mut page_locked_max) = (0, 0);
    for &bytes in &sizes {
        let from = Instant::now();
        let mut memory = Memory::new(&device, bytes, threads)?;
        println!(
            "{} of each: {:.1} s",
            size(bytes),
            from.elapsed().as_secs_f64()
        );
        for load in loads {
            let (samples, until) = (options.samples, clock.next_cell());
            match load {
                // Twice as many, since they differ by place too.
                Load::Writers(_) => memory.measure_places(load, 2 * samples, until, &mut record)?,
                _ => memory.measure_ways(load, samples, until, &mut record)?,
            }
            record.write(&options.out)?;
        }
        memory.measure_copy(options.samples, clock.next_cell(), &mut record);
        record.write(&options.out)?;
        late += memory.allocations_after_warm();
        page_locked_max = page_locked_max.max(memory.page_locked_bytes());
    }
    record.cases.push(warm_case(late, page_locked_max));
    for &bytes in &sizes {
        let until = clock.next_cell();
        allocation::measure(&device, bytes, threads, options.samples, until, &mut record)?;
        record.write(&options.out)?;
    }
    println!("{}", record.write(&options.out)?.display());
    ensure!(late == 0, "{late} page-locked allocations after warm");
    let wrong = record.cases.iter().filter(|case| !case.verified).count();
    ensure!(wrong == 0, "{wrong} cases did not verify");
    print_misses(&record);
    Ok(())
}

fn new_record(options: &Options, device: &Device) -> Result<Record> {
    let sizes: Vec<String> = options.sizes_mib.iter().map(usize::to_string).collect();
    let mut record = Record::new(
        "placements",
        "columns synthesised into pool buffers upload at 97 % of a plain page-locked copy or \
         more, staged ones end to end at 60 % or more, and registering them per use costs more \
         than it saves",
        format!(
            "cuzk-bench placements --sizes-mib {} --samples {} --limit-s {} --out DIR",
            sizes.join(","),
            options.samples,
            options.limit_s,
        ),
    );
    let (gpu, driver) = device.names()?;
    record.machine.gpu = Some(gpu);
    record.machine.driver = Some(driver);
    Ok(record)
}

/// Whether the pools asked the driver for anything while it was measured.
fn warm_case(late: u64, page_locked_bytes: u64) -> Case {
    let name = "page-locked allocations of the pools after warm";
    let mut case = Case::alone(
        name.to_owned(),
        Series::new(vec![late as f64], "allocations"),
    );
    case.peak.insert("pinned_bytes", page_locked_bytes);
    case
}

/// Says which cases miss what the claim asks of them; the record stands as it is.
fn print_misses(record: &Record) {
    for (way, share) in [(Way::Direct, 0.97), (Way::Staged, 0.6)] {
        let alone = format!(" {}, {}", way.name(), Load::None.describe());
        for case in &record.cases {
            let is_below = case.ratio.is_some_and(|ratio| ratio.median < share);
            if case.case.ends_with(&alone) && is_below {
                println!("missed: {}, below {share} of the plain copy", case.case);
            }
        }
    }
}

/// A pool without a limit of its own: what does not fit is the machine's to
/// refuse.
fn pool(backing: impl Backing + 'static) -> PinnedPool {
    let budget = Budget::named("placements", u64::MAX);
    PinnedPool::new(budget, backing, PoolOptions::STANDARD)
}

fn take(pool: &PinnedPool, bytes: usize) -> Result<PinnedBacking> {
    let mut acquired = pool.try_acquire(&AcquireRequest {
        buffers: &[bytes],
        bytes: 0,
        consumer: CONSUMER,
        wait: Wait::with_priority(Priority::NORMAL),
    })?;
    acquired.buffers.pop().context("one was asked")
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn size(bytes: usize) -> String {
    if bytes.is_multiple_of(1 << 30) {
        format!("{} GiB", bytes >> 30)
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

/// Prints a case on one line and keeps it.
fn keep(record: &mut Record, case: Case) {
    let figure = |series: &Series| format!("{:.2} {}", series.spread.median, series.unit);
    let mut line = case.case.clone();
    if let Some(ours) = &case.ours {
        line += &format!(": {}", figure(ours));
    }
    if let Some(ratio) = &case.ratio {
        line += &format!(", ratio {:.3}", ratio.median);
    }
    for (phase, ms) in &case.phases_ms {
        line += &format!(", {phase} {ms:.1} ms");
    }
    if !case.verified {
        line += ", NOT VERIFIED";
    }
    println!("{line}");
    record.cases.push(case);
}
