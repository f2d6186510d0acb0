//! `placements`: what it costs to have columns in page-locked memory, and how
//! fast each way to it feeds the device, beside one plain page-locked copy.

mod device;
mod load;
mod staging;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_pinned::cuda::{BackingTimes, CudaBacking, RegisterOptions, RegisteredBacking};
use cuzk_pinned::{AcquireRequest, Acquired, PinnedBacking, PinnedPool, PoolOptions};
use cuzk_tests::record::{Case, Record, Series};

use self::device::{Device, PlainPinned};
use self::load::Load;
use self::staging::{PIECE_BYTES, PIECES_PER_THREAD, Staging};

const CONSUMER: Consumer = Consumer("placements");

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Sizes of a column.
    #[arg(long, value_delimiter = ',', default_value = "1024,4096,12288")]
    sizes_mib: Vec<usize>,
    /// Samples of an upload at most, after one that warms up.
    #[arg(long, default_value_t = 5)]
    samples: usize,
    /// Seconds in all. Fewer samples are taken, never less than two, where it
    /// would take longer.
    #[arg(long, default_value_t = 360)]
    limit_s: u64,
    /// Threads that stage, touch and, as a load, write; all cores otherwise.
    #[arg(long)]
    threads: Option<NonZero<usize>>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(options.limit_s);
    let threads = match options.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism()?,
    };
    let mut sizes: Vec<usize> = options.sizes_mib.iter().map(|mib| mib << 20).collect();
    sizes.sort_unstable();
    let size_max = *sizes.last().context("no sizes")?;
    ensure!(sizes[0] > 0, "a size is zero");
    let device = Device::open(size_max)?;
    let mut record = new_record(options, &device)?;
    for &bytes in &sizes {
        measure_allocation(&device, bytes, threads, &mut record)?;
        record.write(&options.out)?;
    }
    let mut memory = Memory::new(&device, &sizes, threads)?;
    for &bytes in &sizes {
        memory.measure_copy(bytes, threads.get(), options.samples, &mut record);
    }
    let loads = [
        Load::None,
        Load::DeviceCopies,
        Load::Uploads,
        Load::Writers(threads.get()),
    ];
    let mut cells_left = (loads.len() * sizes.len()) as u32;
    for load in loads {
        for &bytes in &sizes {
            let time = until.saturating_duration_since(Instant::now()) / cells_left;
            cells_left -= 1;
            memory.measure_uploads(load, bytes, options.samples, time, &mut record)?;
            record.write(&options.out)?;
        }
    }
    let late = memory.allocations_after_warm();
    record.cases.push(Case {
        verified: late == 0,
        peak: BTreeMap::from([("pinned_bytes", memory.pinned_bytes())]),
        ..Case::alone(
            "page-locked allocations of the pools after warm".to_owned(),
            Series::new(vec![late as f64], "allocations"),
        )
    });
    println!("{}", record.write(&options.out)?.display());
    ensure!(late == 0, "{late} page-locked allocations after warm");
    let wrong = record.cases.iter().filter(|case| !case.verified).count();
    ensure!(wrong == 0, "{wrong} cases did not verify");
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

/// A pool without a limit of its own: what does not fit is the machine's to
/// refuse.
fn pool(backing: impl cuzk_pinned::Backing + 'static) -> PinnedPool {
    PinnedPool::new(
        Budget::named("placements", u64::MAX),
        backing,
        PoolOptions::STANDARD,
    )
}

fn take(pool: &PinnedPool, buffers: &[usize]) -> Result<Vec<PinnedBacking>> {
    let Acquired { buffers, .. } = pool.try_acquire(&AcquireRequest {
        buffers,
        bytes: 0,
        consumer: CONSUMER,
        wait: Wait::with_priority(Priority::NORMAL),
    })?;
    Ok(buffers.into_iter().collect())
}

fn take_one(pool: &PinnedPool, bytes: usize) -> Result<PinnedBacking> {
    take(pool, &[bytes])?.pop().context("one was asked")
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

/// Time to have a buffer, from the driver, registered, and of the heap. The
/// first sample meets pages that are new to the machine.
fn measure_allocation(
    device: &Device,
    bytes: usize,
    threads: NonZero<usize>,
    record: &mut Record,
) -> Result<()> {
    let samples = if bytes > 8 << 30 { 2 } else { 3 };
    let context = &device.context;
    let cuda = Arc::new(CudaBacking::new(Arc::clone(context), threads));
    let case = allocation_case("driver", bytes, samples, &pool(Arc::clone(&cuda)), || {
        cuda.times()
    })?;
    keep(record, case);
    let options = RegisterOptions::with_threads(threads);
    let registered = Arc::new(RegisteredBacking::new(Arc::clone(context), options)?);
    let backing = Arc::clone(&registered);
    let case = allocation_case("registered mapping", bytes, samples, &pool(backing), || {
        registered.times()
    })?;
    keep(record, case);
    let heap = PinnedPool::heap(Budget::named("placements", u64::MAX));
    let mut touches = Vec::new();
    for _ in 0..samples {
        let mut buffer = take_one(&heap, bytes)?;
        let from = Instant::now();
        staging::fill(buffer.as_bytes_mut(), 1, threads.get());
        touches.push(ms(from.elapsed()));
        drop(buffer);
        heap.trim(u64::MAX);
    }
    keep(
        record,
        Case::alone(
            format!(
                "{} first touch of heap memory, {threads} threads",
                size(bytes)
            ),
            Series::new(touches, "ms"),
        ),
    );
    Ok(())
}

fn allocation_case(
    name: &str,
    bytes: usize,
    samples: usize,
    pool: &PinnedPool,
    times: impl Fn() -> BackingTimes,
) -> Result<Case> {
    let mut taken = Vec::new();
    for _ in 0..samples {
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
    let case = Case::alone(
        format!("{} allocation, {name}", size(bytes)),
        Series::new(totals, "ms"),
    );
    Ok(Case {
        phases_ms: middle(taken),
        ..case
    })
}

/// The phases of the run whose figure is the middle one.
fn middle(mut runs: Vec<(f64, BTreeMap<String, f64>)>) -> BTreeMap<String, f64> {
    runs.sort_by(|(left, _), (right, _)| left.total_cmp(right));
    let index = runs.len() / 2;
    runs.into_iter().nth(index).unwrap_or_default().1
}

/// A way from host memory to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Plain,
    Heap,
    Register,
    Staged,
    Direct,
    DirectRegistered,
}

impl Way {
    const ALL: [Self; 6] = [
        Self::Plain,
        Self::Heap,
        Self::Register,
        Self::Staged,
        Self::Direct,
        Self::DirectRegistered,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain page-locked copy",
            Self::Heap => "heap",
            Self::Register => "register per use",
            Self::Staged => "staged end to end",
            Self::Direct => "direct",
            Self::DirectRegistered => "direct, registered mapping",
        }
    }
}

/// One upload: its rate in GB/s, its phases, and whether the bytes arrived.
struct Run {
    rate: f64,
    phases: BTreeMap<String, f64>,
    is_right: bool,
}

/// Host memory, allocated, filled and touched once, used by every case.
struct Memory<'a> {
    device: &'a Device,
    heap: PinnedBacking,
    plain: PlainPinned,
    driver_pool: PinnedPool,
    registered_pool: PinnedPool,
    staging: Staging,
    allocations_of_warm: u64,
}

impl<'a> Memory<'a> {
    fn new(device: &'a Device, sizes: &[usize], threads: NonZero<usize>) -> Result<Self> {
        let size_max = sizes.iter().copied().max().context("no sizes")?;
        let heap_pool = PinnedPool::heap(Budget::named("placements", u64::MAX));
        let mut heap = take_one(&heap_pool, size_max)?;
        staging::fill(heap.as_bytes_mut(), 2, threads.get());
        let mut plain = PlainPinned::new(&device.context, size_max)?;
        staging::fill(plain.bytes_mut(), 3, threads.get());

        let context = &device.context;
        let options = RegisterOptions::with_threads(threads);
        let driver_pool = pool(CudaBacking::new(Arc::clone(context), threads));
        let registered_pool = pool(RegisteredBacking::new(Arc::clone(context), options)?);
        let mut plan: Vec<(usize, usize)> = sizes.iter().map(|&bytes| (bytes, 1)).collect();
        registered_pool.warm(&plan)?;
        let piece_count = threads.get() * PIECES_PER_THREAD;
        plan.push((PIECE_BYTES, piece_count));
        driver_pool.warm(&plan)?;
        for (pool, seed) in [(&driver_pool, 4), (&registered_pool, 5)] {
            for mut buffer in take(pool, sizes)? {
                // Handed back, it keeps what is written here.
                staging::fill(buffer.as_bytes_mut(), seed, threads.get());
            }
        }
        let pieces = take(&driver_pool, &vec![PIECE_BYTES; piece_count])?;
        Ok(Self {
            device,
            heap,
            plain,
            staging: Staging::new(device, pieces)?,
            allocations_of_warm: driver_pool.stats().allocations
                + registered_pool.stats().allocations,
            driver_pool,
            registered_pool,
        })
    }

    fn allocations_after_warm(&self) -> u64 {
        let pools = [&self.driver_pool, &self.registered_pool];
        let now: u64 = pools.iter().map(|pool| pool.stats().allocations).sum();
        now - self.allocations_of_warm
    }

    fn pinned_bytes(&self) -> u64 {
        let pools = [&self.driver_pool, &self.registered_pool];
        let peaks: u64 = pools.iter().map(|pool| pool.stats().peak_bytes).sum();
        peaks + self.plain.bytes().len() as u64
    }

    /// Copies from the heap into page-locked memory, without an upload.
    fn measure_copy(&mut self, bytes: usize, threads: usize, samples: usize, record: &mut Record) {
        let mut counts = vec![1, 4, 8, threads];
        counts.retain(|count| *count <= threads);
        counts.dedup();
        for count in counts {
            let source = &self.heap.as_bytes()[..bytes];
            let target = &mut self.plain.bytes_mut()[..bytes];
            let rates = (0..samples).map(|_| {
                let from = Instant::now();
                staging::copy(target, source, count);
                bytes as f64 / 1e9 / from.elapsed().as_secs_f64()
            });
            let rates = Series::new(rates.collect(), "GB/s");
            let is_right = *target == *source;
            let name = format!(
                "{} copied from the heap to page-locked memory, {count} threads",
                size(bytes)
            );
            let case = match is_right {
                true => Case::alone(name, rates),
                false => Case::failed(name),
            };
            keep(record, case);
        }
    }

    /// Every way at one size beside one load, in turns that begin with another
    /// way each time.
    fn measure_uploads(
        &mut self,
        load: Load,
        bytes: usize,
        samples: usize,
        time: Duration,
        record: &mut Record,
    ) -> Result<()> {
        let from = Instant::now();
        let running = load.start(&self.device.context)?;
        let moved_before = running.moved_bytes();
        let mut runs: BTreeMap<Way, Vec<Run>> = BTreeMap::new();
        for round in 0..=samples {
            if round > 2 && from.elapsed() > time {
                break;
            }
            for turn in 0..Way::ALL.len() {
                let way = Way::ALL[(round + turn) % Way::ALL.len()];
                let run = self.run(way, bytes)?;
                // The first round warms up.
                if round > 0 {
                    runs.entry(way).or_default().push(run);
                }
            }
        }
        let moved_bytes = running.moved_bytes() - moved_before;
        running.stop()?;
        let seconds = from.elapsed().as_secs_f64();
        println!(
            "{} {}: {seconds:.1} s, the load moved {:.1} GB/s",
            size(bytes),
            load.describe(),
            moved_bytes as f64 / 1e9 / seconds
        );
        let plain: Vec<f64> = runs[&Way::Plain].iter().map(|run| run.rate).collect();
        for (way, runs) in runs {
            let name = format!("{} {}, {}", size(bytes), way.name(), load.describe());
            if !runs.iter().all(|run| run.is_right) {
                keep(record, Case::failed(name));
                continue;
            }
            let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
            let case = match way {
                Way::Plain => Case::alone(name, Series::new(rates, "GB/s")),
                _ => {
                    let pairs: Vec<_> = rates.into_iter().zip(plain.iter().copied()).collect();
                    Case::rates(name, Way::Plain.name(), &pairs)
                }
            };
            let runs = runs.into_iter().map(|run| (run.rate, run.phases));
            let phases_ms = middle(runs.collect());
            keep(record, Case { phases_ms, ..case });
        }
        Ok(())
    }

    /// One upload, and the check that its bytes arrived.
    fn run(&mut self, way: Way, bytes: usize) -> Result<Run> {
        let device = self.device;
        device.clear(bytes)?;
        let mut phases = BTreeMap::new();
        let mut phase = |name: &str, from: Instant| {
            phases.insert(name.to_owned(), ms(from.elapsed()));
        };
        let from = Instant::now();
        let (seconds, is_right) = match way {
            Way::Plain | Way::Heap => {
                let source = match way {
                    Way::Plain => &self.plain.bytes()[..bytes],
                    _ => &self.heap.as_bytes()[..bytes],
                };
                device.upload(source)?;
                (from.elapsed(), device.holds(source)?)
            }
            Way::Register => {
                let source = &self.heap.as_bytes()[..bytes];
                let registered = device.register(source)?;
                phase("register", from);
                let upload_from = Instant::now();
                device.upload(registered.bytes())?;
                phase("upload", upload_from);
                let unregister_from = Instant::now();
                drop(registered);
                phase("unregister", unregister_from);
                (from.elapsed(), device.holds(source)?)
            }
            Way::Staged => {
                let source = &self.heap.as_bytes()[..bytes];
                self.staging.upload(device, source)?;
                (from.elapsed(), device.holds(source)?)
            }
            Way::Direct | Way::DirectRegistered => {
                let pool = match way {
                    Way::Direct => &self.driver_pool,
                    _ => &self.registered_pool,
                };
                let buffer = take_one(pool, bytes)?;
                device.upload(buffer.as_bytes())?;
                (from.elapsed(), device.holds(buffer.as_bytes())?)
            }
        };
        Ok(Run {
            rate: bytes as f64 / 1e9 / seconds.as_secs_f64(),
            phases,
            is_right,
        })
    }
}
