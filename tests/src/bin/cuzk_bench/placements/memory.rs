//! Host memory of one size in every kind, and the ways from it to the device.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use cuzk_budget::Budget;
use cuzk_pinned::cuda::{CudaBacking, DriverLock, RegisterOptions, RegisteredBacking};
use cuzk_pinned::{LOCK_BYTES_MAX, PageLocker, PinnedPool, StagingOptions, StagingRing};
use cuzk_tests::record::{Case, Record, Series};

use super::device::{Device, PlainPinned, Uploaded};
use super::load::{Load, Running};
use super::{SAMPLE_MAX, host, keep, ms, pool, size, take};

/// A way from host memory to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Plain,
    Direct,
    Staged,
    Register,
    Heap,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Plain,
        Self::Direct,
        Self::Staged,
        Self::Register,
        Self::Heap,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain page-locked copy",
            Self::Direct => "direct",
            Self::Staged => "staged end to end",
            Self::Register => "register per use",
            Self::Heap => "heap",
        }
    }
}

/// One upload: its rate in GB/s, its phases, whether the bytes arrived, and whether
/// it was ended early.
struct Run {
    rate: f64,
    phases: BTreeMap<String, f64>,
    is_right: bool,
    is_cut: bool,
}

/// The two kinds of page-locked memory that are compared, filled and touched.
struct Compared {
    plain: PlainPinned,
    /// One buffer that idles: the memory that columns are synthesised into.
    direct: PinnedPool,
}

impl Compared {
    fn new(
        device: &Device,
        bytes: usize,
        threads: NonZero<usize>,
        is_plain_first: bool,
    ) -> Result<Self> {
        let context = &device.context;
        let options = RegisterOptions::with_threads(threads);
        let direct = pool(RegisteredBacking::new(Arc::clone(context), options)?);
        if !is_plain_first {
            direct.warm(&[(bytes, 1)])?;
        }
        let mut plain = PlainPinned::new(context, bytes)?;
        direct.warm(&[(bytes, 1)])?;
        host::fill(plain.bytes_mut(), 2, threads.get());
        // Handed back, it keeps what is written here.
        host::fill(take(&direct, bytes)?.as_bytes_mut(), 4, threads.get());
        Ok(Self { plain, direct })
    }

    /// Allocations of the pool after the one that warmed it.
    fn late(&self) -> u64 {
        self.direct.stats().allocations - 1
    }
}

/// Memory that was allocated, filled and touched once, used by every case of a size;
/// but see [`Memory::measure_places`].
pub(super) struct Memory<'a> {
    device: &'a Device,
    bytes: usize,
    threads: NonZero<usize>,
    /// Always there but while it is allocated anew.
    compared: Option<Compared>,
    /// One buffer that idles.
    heap: PinnedPool,
    chunks: PinnedPool,
    ring: StagingRing,
    locker: Arc<PageLocker>,
    allocations_of_warm: u64,
    /// Allocations after the warming ones of page-locked memory that is gone.
    late: u64,
}

impl<'a> Memory<'a> {
    pub(super) fn new(device: &'a Device, bytes: usize, threads: NonZero<usize>) -> Result<Self> {
        let context = &device.context;
        let compared = Compared::new(device, bytes, threads, true)?;
        let heap = PinnedPool::heap(Budget::named("placements", u64::MAX));
        host::fill(take(&heap, bytes)?.as_bytes_mut(), 3, threads.get());
        let chunks = pool(CudaBacking::new(Arc::clone(context), threads));
        let ring = StagingRing::new(&chunks, StagingOptions::with_threads(threads))?;
        let lock = DriverLock::new(Arc::clone(context));
        Ok(Self {
            device,
            bytes,
            threads,
            compared: Some(compared),
            late: 0,
            allocations_of_warm: chunks.stats().allocations,
            heap,
            chunks,
            ring,
            locker: Arc::new(PageLocker::new(lock, LOCK_BYTES_MAX / 2)),
        })
    }

    fn compared(&self) -> &Compared {
        self.compared.as_ref().expect("only `move_places` takes it")
    }

    /// Allocates what is compared anew, in other places.
    fn move_places(&mut self, is_plain_first: bool) -> Result<()> {
        self.late += self.compared.take().map_or(0, |compared| compared.late());
        let made = Compared::new(self.device, self.bytes, self.threads, is_plain_first)?;
        self.compared = Some(made);
        Ok(())
    }

    /// Page-locked allocations since it was made: those that a proof would wait for.
    pub(super) fn allocations_after_warm(&self) -> u64 {
        let chunks = self.chunks.stats().allocations - self.allocations_of_warm;
        self.late + self.compared().late() + chunks
    }

    /// Most bytes that were page-locked and stay so.
    pub(super) fn page_locked_bytes(&self) -> u64 {
        let direct = self.compared().direct.stats().peak_bytes;
        let pools = direct + self.chunks.stats().peak_bytes;
        pools + self.bytes as u64
    }

    /// Copies from the heap into page-locked memory, without an upload.
    pub(super) fn measure_copy(&mut self, samples: usize, until: Instant, record: &mut Record) {
        let threads = self.threads.get();
        let mut counts = vec![threads, 8, 4, 1];
        counts.retain(|count| *count <= threads);
        counts.dedup();
        for count in counts {
            let name = format!(
                "{} copied from the heap to page-locked memory, {count} threads",
                size(self.bytes)
            );
            let Ok(source) = take(&self.heap, self.bytes) else {
                keep(record, Case::failed(name));
                continue;
            };
            let compared = self.compared.as_mut().expect("only `move_places` takes it");
            let target = compared.plain.bytes_mut();
            let mut rates = Vec::new();
            for index in 0..samples {
                if index >= 2 && Instant::now() > until {
                    break;
                }
                let from = Instant::now();
                host::copy(target, source.as_bytes(), count);
                rates.push(self.bytes as f64 / 1e9 / from.elapsed().as_secs_f64());
            }
            let is_right = *target == *source.as_bytes();
            let case = match is_right {
                true => Case::alone(name, Series::new(rates, "GB/s")),
                false => Case::failed(name),
            };
            keep(record, case);
        }
    }

    /// Every way beside one load, in turns that begin with another way each time.
    pub(super) fn measure_ways(
        &mut self,
        load: Load,
        samples: usize,
        until: Instant,
        record: &mut Record,
    ) -> Result<()> {
        let mut beside = Beside::new(load);
        beside.start(self.device)?;
        for round in 0..=samples {
            if round > 2 && Instant::now() > until {
                break;
            }
            let runs = self.run_all(round)?;
            // The first round warms up.
            if round > 0 {
                beside.keep(runs);
            }
        }
        beside.stop()?;
        self.keep_cases(beside, record);
        Ok(())
    }

    /// As [`Memory::measure_ways`], but each sample has its page-locked memory and its
    /// load in other places of the machine, and of the two kinds that are compared the
    /// other one is allocated first. How fast memory is read while threads write beside
    /// depends on where it lies, by up to a quarter and for as long as it lives; what
    /// one process got at its start would be taken for what the kinds do.
    pub(super) fn measure_places(
        &mut self,
        load: Load,
        samples: usize,
        until: Instant,
        record: &mut Record,
    ) -> Result<()> {
        let mut beside = Beside::new(load);
        for round in 0..samples {
            // Each kind has been first as often as the other.
            if round > 1 && round.is_multiple_of(2) && Instant::now() > until {
                break;
            }
            self.move_places(round.is_multiple_of(2))?;
            beside.start(self.device)?;
            self.run_all(round)?;
            let runs = self.run_all(round)?;
            beside.keep(runs);
            beside.stop()?;
        }
        self.keep_cases(beside, record);
        Ok(())
    }

    /// Every way once, in an order that depends on the round.
    fn run_all(&mut self, round: usize) -> Result<Vec<(Way, Run)>> {
        let count = Way::ALL.len();
        let ways = (0..count).map(|turn| Way::ALL[(round + turn) % count]);
        ways.map(|way| Ok((way, self.run(way)?))).collect()
    }

    fn keep_cases(&self, beside: Beside, record: &mut Record) {
        println!(
            "{} {}: {:.1} s, the load moved {:.1} GB/s",
            size(self.bytes),
            beside.load.describe(),
            beside.seconds,
            beside.moved_bytes as f64 / 1e9 / beside.seconds
        );
        let plain: Vec<f64> = beside.runs[&Way::Plain]
            .iter()
            .map(|run| run.rate)
            .collect();
        for (way, runs) in beside.runs {
            keep(record, self.case(way, beside.load, &plain, runs));
        }
    }

    fn case(&self, way: Way, load: Load, plain: &[f64], runs: Vec<Run>) -> Case {
        let name = format!("{} {}, {}", size(self.bytes), way.name(), load.describe());
        if !runs.iter().all(|run| run.is_right) {
            return Case::failed(name);
        }
        let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
        let cut_count = runs.iter().filter(|run| run.is_cut).count();
        let mut case = match way {
            Way::Plain => Case::alone(name, Series::new(rates, "GB/s")),
            _ => {
                let pairs: Vec<_> = rates.into_iter().zip(plain.iter().copied()).collect();
                Case::rates(name, Way::Plain.name(), &pairs)
            }
        };
        if cut_count > 0 {
            let words = format!(
                "{cut_count} of {} samples, each ended after {} s: the rate is that of the bytes \
                 so far",
                runs.len(),
                SAMPLE_MAX.as_secs()
            );
            case.more.insert("cut_off", words.into());
        }
        let runs = runs.into_iter().map(|run| (run.rate, run.phases));
        case.phases_ms = middle(runs.collect());
        case
    }

    /// One upload, and the check that its bytes arrived.
    fn run(&mut self, way: Way) -> Result<Run> {
        let (device, bytes) = (self.device, self.bytes);
        device.clear(bytes)?;
        let mut phases = BTreeMap::new();
        let mut phase = |name: &str, from: Instant| {
            phases.insert(name.to_owned(), ms(from.elapsed()));
        };
        let from = Instant::now();
        let mut uploaded = bytes;
        let (time, is_right) = match way {
            Way::Plain => {
                let plain = self.compared().plain.bytes();
                device.upload(plain)?;
                (from.elapsed(), device.holds(plain)?)
            }
            Way::Direct => {
                let buffer = take(&self.compared().direct, bytes)?;
                device.upload_buffer(&buffer)?;
                (from.elapsed(), device.holds(buffer.as_bytes())?)
            }
            Way::Staged => {
                let buffer = take(&self.heap, bytes)?;
                let copied = self.ring.copy(buffer.as_bytes(), |chunk, offset| {
                    // SAFETY: the ring keeps the chunk until the fence has passed.
                    unsafe { device.queue(offset, chunk) }?;
                    let uploaded = Uploaded::of(device);
                    if uploaded.is_err() {
                        // Without a fence the ring must find it unread.
                        device.finish()?;
                    }
                    uploaded
                });
                self.ring.finish();
                copied?;
                (from.elapsed(), device.holds(buffer.as_bytes())?)
            }
            Way::Register => {
                let mut buffer = take(&self.heap, bytes)?;
                buffer.lock_pages(&self.locker)?;
                phase("register", from);
                let upload_from = Instant::now();
                device.upload_buffer(&buffer)?;
                phase("upload", upload_from);
                let unregister_from = Instant::now();
                // Handed back, it is not locked any more.
                drop(buffer);
                phase("unregister", unregister_from);
                let time = from.elapsed();
                let buffer = take(&self.heap, bytes)?;
                (time, device.holds(buffer.as_bytes())?)
            }
            Way::Heap => {
                let buffer = take(&self.heap, bytes)?;
                uploaded = device.upload_until(buffer.as_bytes(), from + SAMPLE_MAX)?;
                let time = from.elapsed();
                (time, device.holds(&buffer.as_bytes()[..uploaded])?)
            }
        };
        Ok(Run {
            rate: uploaded as f64 / 1e9 / time.as_secs_f64(),
            phases,
            is_right,
            is_cut: uploaded < bytes,
        })
    }
}

/// A load, and what was measured beside it.
struct Beside {
    load: Load,
    running: Option<(Running, Instant, u64)>,
    seconds: f64,
    moved_bytes: u64,
    runs: BTreeMap<Way, Vec<Run>>,
}

impl Beside {
    fn new(load: Load) -> Self {
        Self {
            load,
            running: None,
            seconds: 0.0,
            moved_bytes: 0,
            runs: BTreeMap::new(),
        }
    }

    fn start(&mut self, device: &Device) -> Result<()> {
        let running = self.load.start(&device.context)?;
        let moved_bytes = running.moved_bytes();
        self.running = Some((running, Instant::now(), moved_bytes));
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        if let Some((running, from, moved_before)) = self.running.take() {
            self.moved_bytes += running.moved_bytes() - moved_before;
            self.seconds += from.elapsed().as_secs_f64();
            running.stop()?;
        }
        Ok(())
    }

    fn keep(&mut self, runs: Vec<(Way, Run)>) {
        for (way, run) in runs {
            self.runs.entry(way).or_default().push(run);
        }
    }
}

/// The phases of the run whose figure is the middle one.
pub(super) fn middle(mut runs: Vec<(f64, BTreeMap<String, f64>)>) -> BTreeMap<String, f64> {
    runs.sort_by(|(left, _), (right, _)| left.total_cmp(right));
    let index = runs.len() / 2;
    runs.into_iter().nth(index).unwrap_or_default().1
}
