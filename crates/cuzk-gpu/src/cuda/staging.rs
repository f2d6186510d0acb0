//! Keys and index lists to the device, through two page-locked buffers that threads of
//! the host fill by turns.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use cuzk_pinned::PinnedBacking;

use super::border::{self, call};
use super::device::{Device, Lane, Region};
use super::holdings::{Fixed, Holdings};
use super::host_words::HostWords;
use super::plan::point_bytes;
use super::points::{Encoding, PointBytes};
use crate::device::host::on_thread_or_here;
use crate::device::waiter::Passed;
use crate::error::{BackendError, PointFault};
use crate::key::Section;

/// No wrong point.
const NO_FAULT: u64 = u64::MAX;
/// Bytes of an entry of an index list.
const INDEX_BYTES: usize = 4;

/// The buffers, each with a place on the device of what is used of it, for points that are
/// to be decoded there.
pub(super) struct Staging {
    halves: [Half; 2],
    /// Bytes that are used of each buffer.
    usable: u64,
    threads: NonZeroUsize,
    faults: Fixed,
    fault: HostWords,
}

struct Half {
    /// Absent while a thread fills it.
    buffer: Option<PinnedBacking>,
    encoded: Fixed,
    /// The buffer and its place are free after this.
    free: Option<Passed>,
}

/// What is brought.
enum Content {
    Points(Arc<dyn PointBytes>, Section),
    Indices(Box<dyn Iterator<Item = usize> + Send>),
}

impl Content {
    /// Bytes of one item.
    fn item_bytes(&self) -> usize {
        match self {
            Self::Points(_, section) => point_bytes(*section) as usize,
            Self::Indices(_) => INDEX_BYTES,
        }
    }

    /// Writes the items from `start` on.
    fn fill(
        &mut self,
        start: usize,
        staged: &mut [u8],
        threads: NonZeroUsize,
    ) -> Result<(), BackendError> {
        match self {
            Self::Points(source, section) => {
                read_points(&**source, *section, start, staged, threads)
            }
            Self::Indices(indices) => {
                for (word, index) in staged.chunks_exact_mut(INDEX_BYTES).zip(indices) {
                    let index = u32::try_from(index).expect("variables that 32 bits count");
                    word.copy_from_slice(&index.to_ne_bytes());
                }
                Ok(())
            }
        }
    }
}

impl Staging {
    pub(super) fn new(
        device: &Device,
        holdings: &mut Holdings,
        buffers: [PinnedBacking; 2],
        threads: NonZeroUsize,
    ) -> Result<Self, BackendError> {
        // A copy crosses no end of a registration, and both are used alike.
        let usable = buffers
            .each_ref()
            .map(|buffer| buffer.copy_ranges().next().map_or(0, |range| range.len()));
        let usable = usable[0].min(usable[1]) as u64;
        if usable < point_bytes(Section::BG2) {
            return Err(BackendError::Start {
                what: "the staging of keys",
                reason: format!("{usable} bytes of a buffer hold no point"),
            });
        }
        let mut half = |buffer: PinnedBacking| {
            let encoded = holdings.fixed("encoded points", usable)?;
            Ok::<_, BackendError>(Half {
                buffer: Some(buffer),
                encoded,
                free: None,
            })
        };
        let [first, second] = buffers;
        let halves = [half(first)?, half(second)?];
        Ok(Self {
            halves,
            usable,
            threads,
            faults: holdings.fixed("faults of points", 8)?,
            fault: HostWords::new(device, 1)?,
        })
    }

    /// Brings the points `range` of a section into `points`, decoded and checked.
    pub(super) async fn points(
        &mut self,
        device: &Device,
        source: &Arc<dyn PointBytes>,
        section: Section,
        range: Range<usize>,
        points: Region,
    ) -> Result<(), BackendError> {
        let content = Content::Points(Arc::clone(source), section);
        let bytes = range.len() as u64 * point_bytes(section);
        let brought_bytes = &device.memory().key_bytes;
        brought_bytes.fetch_add(bytes, Ordering::Relaxed);
        let brought = self.bring(device, content, range, points).await;
        let passed = device.passed(Lane::Keys).await;
        brought.and(passed)?;
        let fault = self.fault.words()[0];
        if fault == NO_FAULT {
            return Ok(());
        }
        let what = match fault % 4 {
            1 => PointFault::Encoding,
            2 => PointFault::NotOnCurve,
            _ => PointFault::Infinity,
        };
        Err(source.fault(section, fault / 4, what).into())
    }

    /// Brings `count` indices.
    pub(super) async fn indices(
        &mut self,
        device: &Device,
        indices: impl Iterator<Item = usize> + Send + 'static,
        count: usize,
        to: Region,
    ) -> Result<(), BackendError> {
        let content = Content::Indices(Box::new(indices));
        let brought = self.bring(device, content, 0..count, to).await;
        let passed = device.passed(Lane::Keys).await;
        brought.and(passed)
    }

    /// Queues all that is to be brought. The caller waits for the lane, whatever this
    /// returns.
    async fn bring(
        &mut self,
        device: &Device,
        mut content: Content,
        range: Range<usize>,
        to: Region,
    ) -> Result<(), BackendError> {
        let item_bytes = content.item_bytes();
        let faults = self.faults.region();
        let threads = self.threads;
        for half in &mut self.halves {
            // Whoever brought something before waited for the lane. What one of its
            // fences ended with is not this proof's.
            half.free = None;
        }
        device.fill(Lane::Keys, faults, 0xff)?;
        for (turn, start) in range.clone().step_by(self.chunk(item_bytes)).enumerate() {
            let len = self.chunk(item_bytes).min(range.end - start);
            let half = &mut self.halves[turn % 2];
            if let Some(free) = half.free.take() {
                free.await.unwrap_or(Err(BackendError::Lost))?;
            }
            let mut buffer = half.buffer.take().ok_or(BackendError::Lost)?;
            let fill = move || {
                let staged = &mut buffer.as_bytes_mut()[..len * item_bytes];
                let filled = AssertUnwindSafe(|| content.fill(start, staged, threads));
                let filled = catch_unwind(filled).unwrap_or_else(|_| Err(panicked()));
                (buffer, content, filled)
            };
            let filled;
            (buffer, content, filled) = on_thread_or_here("a reader of key points", fill).await?;
            let buffer = half.buffer.insert(buffer);
            filled?;
            let staged = &buffer.as_bytes()[..len * item_bytes];
            let to = to.part(
                ((start - range.start) * item_bytes) as u64,
                staged.len() as u64,
            );
            let encoded = match &content {
                Content::Points(source, section) if source.encoding() == Encoding::File => {
                    Some(*section)
                }
                _ => None,
            };
            let copied_to = match encoded {
                Some(_) => half.encoded.region(),
                None => to,
            };
            // SAFETY: the buffer is not written again before `free` has passed; where
            // that cannot be had, the caller waits for the lane, or for the device if
            // that fails.
            unsafe { device.copy_in(Lane::Keys, copied_to, staged) }?;
            if let Some(section) = encoded {
                decode(device, section, copied_to, len, start as u64, to, faults)?;
            }
            half.free = Some(device.fence(Lane::Keys)?);
        }
        // SAFETY: the caller waits for the lane before it looks.
        unsafe { self.fault.fetch(device, Lane::Keys, 0, faults) }
    }

    /// Items that a buffer has room for.
    fn chunk(&self, item_bytes: usize) -> usize {
        self.usable as usize / item_bytes
    }
}

fn panicked() -> BackendError {
    BackendError::Panic("a reader of key points".to_owned())
}

/// Reads points in parallel, or what no thread could be had for on this one.
pub(super) fn read_points(
    source: &dyn PointBytes,
    section: Section,
    start: usize,
    staged: &mut [u8],
    threads: NonZeroUsize,
) -> Result<(), BackendError> {
    let bytes = point_bytes(section) as usize;
    let count = staged.len() / bytes;
    let share = count.div_ceil(threads.get()).max(1);
    let pieces = Mutex::new(staged.chunks_mut(share * bytes).enumerate());
    let read = || -> Result<(), BackendError> {
        loop {
            let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((at, piece)) = next else {
                return Ok(());
            };
            source.read(section, start + at * share, piece)?;
        }
    };
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, read);
        let readers: Vec<_> = (1..threads.get()).map_while(|at| spawn(at).ok()).collect();
        let here = read();
        let there = readers
            .into_iter()
            .try_for_each(|reader| reader.join().map_err(|_| panicked())?);
        here.and(there)
    })
}

/// Queues the decoding of points.
pub(super) fn decode(
    device: &Device,
    section: Section,
    encoded: Region,
    count: usize,
    first_index: u64,
    points: Region,
    faults: Region,
) -> Result<(), BackendError> {
    let bytes = count as u64 * point_bytes(section);
    assert!(encoded.bytes() >= bytes && points.bytes() >= bytes);
    let function = match section {
        Section::BG2 => border::cuzk_decode_g2,
        _ => border::cuzk_decode_g1,
    };
    call("decode points", |message| {
        // SAFETY: both regions hold `count` points (asserted), and `faults` a word.
        unsafe {
            function(
                device.raw(),
                device.stream(Lane::Keys).cast(),
                encoded.address(),
                count,
                first_index,
                points.address(),
                faults.address(),
                message,
            )
        }
    })
}
