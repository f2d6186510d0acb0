//! The columns of a proof to the device.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use cuzk_pinned::{Fence, StagingRing};

use super::device::{Device, Lane, Region};
use super::event::Event;
use super::plan::SCALAR_BYTES;
use super::prove::Bench;
use crate::column::{Column, Columns};
use crate::device::executor::give_way;
use crate::device::host::{mailbox, on_thread};
use crate::device::oneshot::{self, oneshot};
use crate::device::turn::Turn;
use crate::device::waiter::Passed;
use crate::error::BackendError;
use crate::shape::CircuitSizes;

/// Bytes of ordinary memory that the driver copies while the thread waits for it.
const ORDINARY_BYTES: usize = 8 << 20;

/// Page-locked chunks for columns that are not page-locked. One upload has them at a
/// time; the lock is for the thread that fills them.
pub(super) type Ring = Arc<Mutex<StagingRing>>;

/// One of the columns.
#[derive(Clone, Copy)]
enum Which {
    A,
    B,
    C,
    Aux,
}

impl Which {
    fn of(self, columns: &Columns) -> &Column {
        match self {
            Self::A => &columns.a,
            Self::B => &columns.b,
            Self::C => columns.c.as_ref().expect("a column that is there"),
            Self::Aux => &columns.aux,
        }
    }

    fn bytes(self, columns: &Columns) -> &[u8] {
        let column = self.of(columns);
        &column.buffer().as_bytes()[..column.len() * SCALAR_BYTES as usize]
    }
}

/// Tells a computation what has been queued of an upload: each message ends when that is
/// on the device.
pub(super) struct Arriving {
    left: Option<oneshot::Sender<Passed>>,
    columns: Option<oneshot::Sender<Passed>>,
    all: Option<oneshot::Sender<Passed>>,
    /// Columns but `aux` that are not queued yet.
    missing: usize,
    /// What the assignment waits for, if it does.
    transformed: Option<oneshot::Receiver<Passed>>,
}

/// What a computation waits for, in this order.
pub(super) struct Arrivals {
    /// Column a.
    left: Option<oneshot::Receiver<Passed>>,
    /// The columns of constraints.
    columns: Option<oneshot::Receiver<Passed>>,
    /// The assignment too.
    all: Option<oneshot::Receiver<Passed>>,
    /// Tells an upload in return when the transforms end, if its assignment waits for that.
    transformed: Option<oneshot::Sender<Passed>>,
}

/// Both ends, for an upload of two columns of constraints, or three, and of the assignment
/// beside them or after the transforms.
pub(super) fn arrivals(has_c: bool, is_late: bool) -> (Arriving, Arrivals) {
    let (left, columns, all) = (oneshot(), oneshot(), oneshot());
    let (tells, hears) = is_late.then(oneshot).unzip();
    let arriving = Arriving {
        left: Some(left.0),
        columns: Some(columns.0),
        all: Some(all.0),
        missing: if has_c { 3 } else { 2 },
        transformed: hears,
    };
    let arrivals = Arrivals {
        left: Some(left.1),
        columns: Some(columns.1),
        all: Some(all.1),
        transformed: tells,
    };
    (arriving, arrivals)
}

impl Arriving {
    /// All of a column is queued.
    fn queued(&mut self, device: &Device, which: Which) -> Result<(), BackendError> {
        let told = match which {
            Which::A => self.left.take(),
            _ => None,
        };
        if let Some(left) = told {
            left.send(device.fence(Lane::Upload)?);
        }
        if !matches!(which, Which::Aux) {
            self.missing -= 1;
        }
        if self.missing == 0
            && let Some(columns) = self.columns.take()
        {
            columns.send(device.fence(Lane::Upload)?);
        }
        Ok(())
    }

    /// Everything is queued.
    fn end(&mut self, device: &Device) -> Result<(), BackendError> {
        if let Some(all) = self.all.take() {
            all.send(device.fence(Lane::Upload)?);
        }
        Ok(())
    }

    /// Waits for the end of the transforms; `false` where the computation ended before.
    pub(super) async fn transformed(&mut self) -> Result<bool, BackendError> {
        let Some(transformed) = self.transformed.take() else {
            return Ok(true);
        };
        match transformed.await {
            Some(passed) => passed
                .await
                .unwrap_or(Err(BackendError::Lost))
                .map(|()| true),
            None => Ok(false),
        }
    }
}

impl Arrivals {
    /// Waits for column a.
    pub(super) async fn left(&mut self) -> Result<(), BackendError> {
        arrived(&mut self.left).await
    }

    /// Waits for the columns of constraints.
    pub(super) async fn columns(&mut self) -> Result<(), BackendError> {
        arrived(&mut self.columns).await
    }

    /// Waits for all that is uploaded.
    pub(super) async fn all(&mut self) -> Result<(), BackendError> {
        arrived(&mut self.all).await
    }

    /// Waits for all that is uploaded before the transforms.
    pub(super) async fn before_transforms(&mut self) -> Result<(), BackendError> {
        match self.is_late() {
            true => self.columns().await,
            false => self.all().await,
        }
    }

    /// Whether the assignment waits for the end of the transforms.
    pub(super) fn is_late(&self) -> bool {
        self.transformed.is_some()
    }

    /// The transforms are queued: what they read of b is free when they end.
    pub(super) fn transformed(&mut self, device: &Device) -> Result<(), BackendError> {
        if let Some(transformed) = self.transformed.take() {
            transformed.send(device.fence(Lane::Compute)?);
        }
        Ok(())
    }
}

/// Waits for what was not waited for before. An upload that failed says why itself.
async fn arrived(part: &mut Option<oneshot::Receiver<Passed>>) -> Result<(), BackendError> {
    let Some(part) = part.take() else {
        return Ok(());
    };
    let passed = part.await.ok_or(BackendError::Lost)?;
    passed.await.unwrap_or(Err(BackendError::Lost))
}

/// What an upload came to that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uploaded {
    /// Everything is on the device.
    Whole,
    /// All but the assignment: the computation that it waited for ended before, and says why.
    InPart,
}

/// Copies the columns to the device; nothing reads them any more when this returns a
/// success. After an error the caller waits for the lane. Those that are not page-locked
/// go through the ring of `uploads`, if there is one.
///
/// An assignment that waits for the transforms gives the turn to upload back meanwhile: who
/// has it waits for nothing but copies, and so whoever computes may wait for an upload. It
/// waits here and not on the lane, where the copies of others would wait behind it.
pub(super) async fn upload(
    bench: &Bench<'_>,
    uploads: &Turn<Option<Ring>>,
    columns: &Arc<Columns>,
    sizes: &CircuitSizes,
    mut arriving: Arriving,
) -> Result<Uploaded, BackendError> {
    // In the order in which a computation wants them.
    let all = [Which::A, Which::B, Which::C, Which::Aux];
    let all = all.into_iter();
    let all: Vec<Which> = all
        .filter(|which| !matches!(which, Which::C) || columns.c.is_some())
        .collect();
    let early = match arriving.transformed {
        Some(_) => all.len() - 1,
        None => all.len(),
    };
    let (early, late) = all.split_at(early);
    {
        let ring = uploads.take().await;
        upload_some(bench, ring.as_ref(), columns, sizes, early, &mut arriving).await?;
    }
    if late.is_empty() {
        return Ok(Uploaded::Whole);
    }
    if !arriving.transformed().await? {
        return Ok(Uploaded::InPart);
    }
    let ring = uploads.take().await;
    upload_some(bench, ring.as_ref(), columns, sizes, late, &mut arriving).await?;
    Ok(Uploaded::Whole)
}

/// Copies some of the columns, and waits for that.
async fn upload_some(
    bench: &Bench<'_>,
    ring: Option<&Ring>,
    columns: &Arc<Columns>,
    sizes: &CircuitSizes,
    which: &[Which],
    arriving: &mut Arriving,
) -> Result<(), BackendError> {
    let device = bench.device;
    let begun = bench.clock.begin(device, Lane::Upload)?;
    queue_upload(bench, ring, columns, sizes, which, arriving).await?;
    let bytes = which.iter().map(|which| which.bytes(columns).len() as u64);
    bench.clock.end(device, begun, "upload", bytes.sum())?;
    if matches!(which.last(), Some(Which::Aux)) {
        arriving.end(device)?;
    }
    device.passed(Lane::Upload).await
}

async fn queue_upload(
    bench: &Bench<'_>,
    ring: Option<&Ring>,
    columns: &Arc<Columns>,
    sizes: &CircuitSizes,
    which: &[Which],
    arriving: &mut Arriving,
) -> Result<(), BackendError> {
    let device = bench.device;
    let regions = bench.regions;
    let column = sizes.domain() as u64 * SCALAR_BYTES;
    let used = sizes.inputs as u64 * SCALAR_BYTES;
    let aux = sizes.aux as u64 * SCALAR_BYTES;
    let mut parts = Vec::with_capacity(which.len());
    for &which in which {
        let to = match which {
            Which::A => regions.a.part(0, column),
            Which::B => regions.b.part(0, column),
            Which::C => regions.c.part(0, column),
            Which::Aux => {
                // SAFETY: the words stay as they are until the upload has been waited for.
                unsafe { device.copy_in(Lane::Upload, regions.assignment, bench.inputs()) }?;
                regions.assignment.part(used, aux)
            }
        };
        let used = which.bytes(columns).len() as u64;
        device.fill(Lane::Upload, to.part(used, to.bytes() - used), 0)?;
        parts.push((which, to));
    }
    let mut staged = Vec::new();
    for (which, to) in parts {
        match ring {
            Some(_) if !which.of(columns).buffer().is_page_locked() => staged.push((which, to)),
            _ => {
                copy(device, which, columns, to).await?;
                arriving.queued(device, which)?;
            }
        }
    }
    match ring {
        Some(ring) if !staged.is_empty() => stage(device, ring, columns, staged, arriving).await,
        _ => Ok(()),
    }
}

/// Queues the copies of a column from where it lies.
async fn copy(
    device: &Device,
    which: Which,
    columns: &Columns,
    to: Region,
) -> Result<(), BackendError> {
    let bytes = which.bytes(columns);
    let buffer = which.of(columns).buffer();
    for range in buffer.copy_ranges() {
        let end = range.end.min(bytes.len());
        if range.start >= end {
            continue;
        }
        let part = &bytes[range.start..end];
        // The driver copies ordinary memory while it keeps the thread: a piece at a
        // time, so that others can move.
        let piece_len = match buffer.is_page_locked() {
            true => part.len(),
            false => ORDINARY_BYTES,
        };
        for (at, piece) in part.chunks(piece_len).enumerate() {
            let from = (range.start + at * piece_len) as u64;
            // SAFETY: the columns stay until the upload has been waited for.
            unsafe { device.copy_in(Lane::Upload, to.part(from, piece.len() as u64), piece) }?;
            if !buffer.is_page_locked() {
                give_way().await;
            }
        }
    }
    Ok(())
}

/// A full chunk, to be queued by the device's thread.
struct Chunk {
    bytes: *const [u8],
    /// Which of the columns it is of, and where in that.
    part: usize,
    offset: usize,
    queued: SyncSender<Result<ChunkRead, BackendError>>,
}

// SAFETY: the thread that sends it leaves the bytes alone until it is answered, and
// after that until the answer's event has passed.
unsafe impl Send for Chunk {}

/// The end of a chunk's upload.
struct ChunkRead {
    passed: Arc<Event>,
    failure: Failure,
}

/// Why the end of a chunk's upload could not be waited for: then the chunk may have been
/// filled again too early, and the columns on the device are not what they were.
type Failure = Arc<Mutex<Option<BackendError>>>;

impl Fence for ChunkRead {
    fn wait(&self) {
        if let Err(error) = Event::wait(&self.passed) {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(error);
        }
    }

    fn has_passed(&self) -> bool {
        self.passed.has_passed()
    }
}

/// Copies columns through the ring: a thread fills its chunks and has each queued here.
async fn stage(
    device: &Device,
    ring: &Ring,
    columns: &Arc<Columns>,
    parts: Vec<(Which, Region)>,
    arriving: &mut Arriving,
) -> Result<(), BackendError> {
    let (post, mut chunks) = mailbox::<Chunk>();
    let failure = Failure::default();
    let places = parts.clone();
    let (ring, columns) = (Arc::clone(ring), Arc::clone(columns));
    let fill = move || {
        let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = parts.iter().enumerate();
        let copied = parts.try_for_each(|(part, (which, _))| {
            ring.copy(which.bytes(&columns), |bytes, offset| {
                let (queued, answer) = sync_channel(1);
                post.send(Chunk {
                    bytes,
                    part,
                    offset,
                    queued,
                });
                answer.recv().unwrap_or(Err(BackendError::Lost))
            })
        });
        ring.finish();
        copied
    };
    let work = on_thread("staging columns", fill);
    let mut told = 0;
    while let Some(chunk) = chunks.next().await {
        // Chunks come in the order of the parts.
        let ended = &places[told..chunk.part];
        told = chunk.part;
        let ended = ended
            .iter()
            .try_for_each(|&(which, _)| arriving.queued(device, which));
        let queued = ended.and_then(|()| queue_chunk(device, places[chunk.part].1, &chunk));
        let queued = queued.map(|passed| ChunkRead {
            passed,
            failure: Arc::clone(&failure),
        });
        // The thread waits for the answer.
        let _ = chunk.queued.send(queued);
    }
    work.await??;
    let failure = failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    failure.map_or(Ok(()), Err)?;
    let mut ended = places[told..].iter();
    ended.try_for_each(|&(which, _)| arriving.queued(device, which))
}

fn queue_chunk(device: &Device, to: Region, chunk: &Chunk) -> Result<Arc<Event>, BackendError> {
    // SAFETY: the thread that sent it waits for the answer, and the ring keeps the
    // chunk as it is until the answer's event has passed.
    let bytes = unsafe { &*chunk.bytes };
    let passed = device.fence_event()?;
    // SAFETY: as above.
    unsafe {
        device.copy_in(
            Lane::Upload,
            to.part(chunk.offset as u64, bytes.len() as u64),
            bytes,
        )
    }?;
    if let Err(error) = device.record(Lane::Upload, &passed) {
        // The chunk goes back without a fence.
        let _ = device.wait(Lane::Upload);
        return Err(error);
    }
    Ok(passed)
}
