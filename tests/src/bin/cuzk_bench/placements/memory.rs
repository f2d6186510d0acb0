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
use super::load::Load;
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

/// Memory that was allocated, filled and touched once, used by every case of a size.
pub(super) struct Memory<'a> {
    device: &'a Device,
    bytes: usize,
    threads: NonZero<usize>,
    plain: PlainPinned,
    /// One buffer that idles.
    heap: PinnedPool,
    /// One buffer that idles: the memory that columns are synthesised into.
    direct: PinnedPool,
    chunks: PinnedPool,
    ring: StagingRing,
    locker: Arc<PageLocker>,
    allocations_of_warm: u64,
}

impl<'a> Memory<'a> {
    pub(super) fn new(device: &'a Device, bytes: usize, threads: NonZero<usize>) -> Result<Self> {
        let context = &device.context;
        let mut plain = PlainPinned::new(context, bytes)?;
        host::fill(plain.bytes_mut(), 2, threads.get());

        let heap = PinnedPool::heap(Budget::named("placements", u64::MAX));
        let options = RegisterOptions::with_threads(threads);
        let direct = pool(RegisteredBacking::new(Arc::clone(context), options)?);
        direct.warm(&[(bytes, 1)])?;
        for (pool, seed) in [(&heap, 3), (&direct, 4)] {
            // Handed back, it keeps what is written here.
            host::fill(take(pool, bytes)?.as_bytes_mut(), seed, threads.get());
        }
        let chunks = pool(CudaBacking::new(Arc::clone(context), threads));
        let ring = StagingRing::new(&chunks, StagingOptions::with_threads(threads))?;
        let lock = DriverLock::new(Arc::clone(context));
        Ok(Self {
            device,
            bytes,
            threads,
            plain,
            allocations_of_warm: direct.stats().allocations + chunks.stats().allocations,
            heap,
            direct,
            chunks,
            ring,
            locker: Arc::new(PageLocker::new(lock, LOCK_BYTES_MAX / 2)),
        })
    }

    /// Page-locked allocations since it was made: those that a proof would wait for.
    pub(super) fn allocations_after_warm(&self) -> u64 {
        let now = self.direct.stats().allocations + self.chunks.stats().allocations;
        now - self.allocations_of_warm
    }

    /// Most bytes that were page-locked and stay so.
    pub(super) fn page_locked_bytes(&self) -> u64 {
        let pools = self.direct.stats().peak_bytes + self.chunks.stats().peak_bytes;
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
            let target = self.plain.bytes_mut();
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
        let from = Instant::now();
        let running = load.start(&self.device.context)?;
        let moved_before = running.moved_bytes();
        let mut runs: BTreeMap<Way, Vec<Run>> = BTreeMap::new();
        for round in 0..=samples {
            if round > 2 && Instant::now() > until {
                break;
            }
            for turn in 0..Way::ALL.len() {
                let way = Way::ALL[(round + turn) % Way::ALL.len()];
                let run = self.run(way)?;
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
            size(self.bytes),
            load.describe(),
            moved_bytes as f64 / 1e9 / seconds
        );
        let plain: Vec<f64> = runs[&Way::Plain].iter().map(|run| run.rate).collect();
        for (way, runs) in runs {
            keep(record, self.case(way, load, &plain, runs));
        }
        Ok(())
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
                device.upload(self.plain.bytes())?;
                (from.elapsed(), device.holds(self.plain.bytes())?)
            }
            Way::Direct => {
                let buffer = take(&self.direct, bytes)?;
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

/// The phases of the run whose figure is the middle one.
pub(super) fn middle(mut runs: Vec<(f64, BTreeMap<String, f64>)>) -> BTreeMap<String, f64> {
    runs.sort_by(|(left, _), (right, _)| left.total_cmp(right));
    let index = runs.len() / 2;
    runs.into_iter().nth(index).unwrap_or_default().1
}
