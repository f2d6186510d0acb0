//! What stays on the device from proof to proof: the points of keys and the index
//! lists of circuits.

use std::cell::Cell;
use std::mem::take;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Weak};

use cuzk_pinned::PinnedBacking;

use super::arena::{Arena, Lease};
use super::border::{self, call};
use super::device::{Device, Event, Lane, Region};
use super::holdings::{Fixed, Holdings};
use super::plan::{Counts, QUERIES, align, point_bytes};
use super::points::{Encoding, PointBytes};
use crate::device::arena::End;
use crate::error::{BackendError, PointFault};
use crate::key::Section;
use crate::shape::CircuitShape;

/// Index entries copied at a time.
const INDEX_PIECE: usize = 1 << 17;
/// No wrong point.
const NO_FAULT: u64 = u64::MAX;

/// Two page-locked buffers through which a key's bytes go to the device, with a
/// place of the same size on the device for each, and threads that fill them.
pub(super) struct Staging {
    halves: [Half; 2],
    threads: NonZeroUsize,
    faults: Fixed,
}

struct Half {
    buffer: PinnedBacking,
    encoded: Fixed,
    /// The buffer and its place are free after this.
    free: Event,
    is_used: bool,
}

impl Drop for Staging {
    /// Before the buffers go to their pool.
    fn drop(&mut self) {
        for half in &self.halves {
            if half.is_used {
                // After an error of the device it reads nothing any more.
                let _ = half.free.wait();
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
        let mut half = |buffer: PinnedBacking| {
            let encoded = holdings.fixed("encoded points", buffer.len() as u64)?;
            Ok::<_, BackendError>(Half {
                buffer,
                encoded,
                free: device.event()?,
                is_used: false,
            })
        };
        let [first, second] = buffers;
        let halves = [half(first)?, half(second)?];
        Ok(Self {
            halves,
            threads,
            faults: holdings.fixed("faults of points", 8)?,
        })
    }

    /// Brings the points `range` of a section into `points`, decoded and checked, and
    /// waits for them.
    pub(super) fn load(
        &mut self,
        device: &Device,
        source: &dyn PointBytes,
        section: Section,
        range: Range<usize>,
        points: Region,
    ) -> Result<(), BackendError> {
        let loaded = self.queue_load(device, source, section, range, points);
        if loaded.is_err() {
            // What is queued may still read the buffers.
            let _ = device.wait(Lane::Upload);
        }
        loaded
    }

    fn queue_load(
        &mut self,
        device: &Device,
        source: &dyn PointBytes,
        section: Section,
        range: Range<usize>,
        points: Region,
    ) -> Result<(), BackendError> {
        let bytes = point_bytes(section);
        let faults = self.faults.region();
        device.fill(Lane::Upload, faults, 0xff)?;
        let chunk = self.halves[0].buffer.len() / bytes as usize;
        for (turn, start) in range.clone().step_by(chunk).enumerate() {
            let len = chunk.min(range.end - start);
            let half = &mut self.halves[turn % 2];
            if take(&mut half.is_used) {
                half.free.wait()?;
            }
            let staged = &mut half.buffer.as_bytes_mut()[..len * bytes as usize];
            fill(source, section, start, bytes as usize, staged, self.threads)?;
            let to = points.part((start - range.start) as u64 * bytes, len as u64 * bytes);
            let copied_to = match source.encoding() {
                Encoding::Memory => to,
                Encoding::File => half.encoded.region(),
            };
            // From here on the device may read the buffer, whatever fails below.
            half.is_used = true;
            // SAFETY: the buffer is not written again before `free` has passed, and
            // a drop of the staging waits for its device first.
            unsafe { device.copy_in(Lane::Upload, copied_to, staged) }?;
            if source.encoding() == Encoding::File {
                decode(device, section, copied_to, len, start as u64, to, faults)?;
            }
            device.record(Lane::Upload, &half.free)?;
        }
        let mut fault = [NO_FAULT];
        device.copy_out(Lane::Upload, &mut fault, faults)?;
        if fault[0] == NO_FAULT {
            return Ok(());
        }
        let what = match fault[0] % 4 {
            1 => PointFault::Encoding,
            2 => PointFault::NotOnCurve,
            _ => PointFault::Infinity,
        };
        Err(source.fault(section, fault[0] / 4, what).into())
    }
}

/// Reads points in parallel.
fn fill(
    source: &dyn PointBytes,
    section: Section,
    start: usize,
    bytes: usize,
    staged: &mut [u8],
    threads: NonZeroUsize,
) -> Result<(), BackendError> {
    let count = staged.len() / bytes;
    let share = count.div_ceil(threads.get()).max(1);
    std::thread::scope(|scope| {
        let readers: Vec<_> = staged
            .chunks_mut(share * bytes)
            .enumerate()
            .map(|(at, piece)| scope.spawn(move || source.read(section, start + at * share, piece)))
            .collect();
        readers.into_iter().try_for_each(|reader| {
            reader
                .join()
                .map_err(|_| BackendError::Panic("a reader of key points".to_owned()))?
                .map_err(BackendError::from)
        })
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
                device.stream(Lane::Upload).cast(),
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

/// The points of a key on the device.
pub(super) struct ResidentKey {
    source: Weak<dyn PointBytes>,
    /// What the regions lie in.
    lease: Lease,
    sections: [Region; QUERIES.len()],
    is_loaded: Cell<bool>,
}

impl ResidentKey {
    /// Bytes of a key's points on the device.
    pub(super) fn bytes(source: &dyn PointBytes) -> u64 {
        QUERIES
            .iter()
            .map(|&section| align(source.count(section) as u64 * point_bytes(section)))
            .sum()
    }

    /// The place of a key, still empty; `None` if there is no room.
    pub(super) fn reserve(arena: &Arena, source: &Arc<dyn PointBytes>) -> Option<Self> {
        let lease = arena.take(Self::bytes(&**source), End::Low)?;
        let mut at = 0;
        let sections = QUERIES.map(|section| {
            let bytes = source.count(section) as u64 * point_bytes(section);
            let region = lease.region().part(at, bytes);
            at += align(bytes);
            region
        });
        Some(Self {
            source: Arc::downgrade(source),
            lease,
            sections,
            is_loaded: Cell::new(false),
        })
    }

    /// Loads the points, unless they are there.
    pub(super) fn load(
        &self,
        device: &Device,
        staging: &mut Staging,
        source: &dyn PointBytes,
    ) -> Result<(), BackendError> {
        if self.is_loaded() {
            return Ok(());
        }
        for (section, region) in QUERIES.into_iter().zip(self.sections) {
            let all = 0..source.count(section);
            staging.load(device, source, section, all, region)?;
        }
        self.is_loaded.set(true);
        Ok(())
    }

    /// Whether the points are there.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded.get()
    }

    /// Whether this is that key.
    pub(super) fn is(&self, source: &Arc<dyn PointBytes>) -> bool {
        // The weak handle keeps the address from being used again.
        std::ptr::addr_eq(self.source.as_ptr(), Arc::as_ptr(source))
    }

    /// Bytes held on the device.
    pub(super) fn held_bytes(&self) -> u64 {
        self.lease.bytes()
    }

    /// Whether somebody still has the key.
    pub(super) fn is_alive(&self) -> bool {
        self.source.strong_count() != 0
    }

    /// The points of a query.
    pub(super) fn points(&self, section: Section) -> Region {
        let at = QUERIES
            .iter()
            .position(|&query| query == section)
            .expect("a query");
        self.sections[at]
    }
}

/// For each entry of the A and B queries, which variable it multiplies: 32-bit
/// indices into inputs and auxiliary variables, one after the other.
pub(super) struct ResidentShape {
    shape: Weak<CircuitShape>,
    lease: Lease,
    a: Region,
    b: Region,
    is_loaded: Cell<bool>,
}

impl ResidentShape {
    /// Bytes of a shape's lists on the device.
    pub(super) fn bytes(counts: &Counts) -> u64 {
        align(counts.a as u64 * 4) + align(counts.b as u64 * 4)
    }

    /// The place of the lists, still empty; `None` if there is no room.
    pub(super) fn reserve(arena: &Arena, shape: &Arc<CircuitShape>) -> Option<Self> {
        let counts = Counts::of(shape);
        let lease = arena.take(Self::bytes(&counts), End::Low)?;
        let region = lease.region();
        Some(Self {
            shape: Arc::downgrade(shape),
            a: region.part(0, counts.a as u64 * 4),
            b: region.part(align(counts.a as u64 * 4), counts.b as u64 * 4),
            lease,
            is_loaded: Cell::new(false),
        })
    }

    /// Makes the lists and copies them, unless they are there.
    pub(super) fn load(&self, device: &Device, shape: &CircuitShape) -> Result<(), BackendError> {
        if self.is_loaded() {
            return Ok(());
        }
        let inputs = shape.sizes.inputs;
        let aux = |index: usize| inputs + index;
        copy_indices(
            device,
            self.a,
            (0..inputs).chain(shape.a_aux.iter().map(aux)),
        )?;
        copy_indices(
            device,
            self.b,
            shape.b_inputs.iter().chain(shape.b_aux.iter().map(aux)),
        )?;
        self.is_loaded.set(true);
        Ok(())
    }

    /// Whether the lists are there.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded.get()
    }

    /// Whether this is that shape.
    pub(super) fn is(&self, shape: &Arc<CircuitShape>) -> bool {
        std::ptr::addr_eq(self.shape.as_ptr(), Arc::as_ptr(shape))
    }

    /// Bytes held on the device.
    pub(super) fn held_bytes(&self) -> u64 {
        self.lease.bytes()
    }

    /// Whether somebody still has the shape.
    pub(super) fn is_alive(&self) -> bool {
        self.shape.strong_count() != 0
    }

    /// The list of a query; none where entries are the auxiliary variables in
    /// their order.
    pub(super) fn index(&self, section: Section) -> Option<Region> {
        match section {
            Section::A => Some(self.a),
            Section::BG1 | Section::BG2 => Some(self.b),
            _ => None,
        }
    }
}

/// Copies indices a piece at a time.
fn copy_indices(
    device: &Device,
    to: Region,
    mut indices: impl Iterator<Item = usize>,
) -> Result<(), BackendError> {
    let mut piece = Vec::with_capacity(INDEX_PIECE.min(to.bytes() as usize / 4));
    let mut at = 0;
    loop {
        piece.clear();
        piece.extend(indices.by_ref().take(INDEX_PIECE).map(|index| index as u32));
        if piece.is_empty() {
            return Ok(());
        }
        let bytes = size_of_val(&piece[..]) as u64;
        // SAFETY: waited for below, before the piece changes.
        let copied = unsafe { device.copy_in(Lane::Upload, to.part(at, bytes), &piece) };
        device.wait(Lane::Upload)?;
        copied?;
        at += bytes;
    }
}
