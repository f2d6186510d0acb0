//! Keys that stay in page-locked memory of the host, decoded, where a device has no room
//! for them: the first proof that brings one from its file fetches the points back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use cuzk_pinned::PinnedBacking;

use super::device::{Device, Lane, Region};
use super::plan::{QUERIES, point_bytes};
use super::points::PointBytes;
use crate::accelerator::KeyMemory;
use crate::device::host::on_thread;
use crate::error::BackendError;
use crate::key::Section;

/// The points of a key in page-locked memory, as the device has them.
pub(super) struct HostKey {
    source: Weak<dyn PointBytes>,
    /// One for each query.
    buffers: RefCell<Vec<PinnedBacking>>,
    bytes: u64,
    is_loaded: Cell<bool>,
}

impl HostKey {
    /// Whether all points are there.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded.get()
    }

    /// All points were fetched and waited for.
    pub(super) fn set_loaded(&self) {
        self.is_loaded.set(true);
    }

    fn is(&self, source: &Arc<dyn PointBytes>) -> bool {
        // The weak handle keeps the address from being used again.
        std::ptr::addr_eq(self.source.as_ptr(), Arc::as_ptr(source))
    }

    /// Queues the copies of the points from `start` on to `points`, as many as that
    /// holds.
    ///
    /// # Safety
    /// The key stays, and nothing is fetched into it, until the lane has been waited for.
    pub(super) unsafe fn bring(
        &self,
        device: &Device,
        section: Section,
        start: usize,
        points: Region,
    ) -> Result<(), BackendError> {
        let brought = &device.memory().key_bytes;
        brought.fetch_add(points.bytes(), Ordering::Relaxed);
        let buffers = self.buffers.borrow();
        let buffer = &buffers[place(section)];
        for (from, to) in pieces(buffer, section, start, points) {
            let bytes = &buffer.as_bytes()[from..][..to.bytes() as usize];
            // SAFETY: the caller keeps the key as it is.
            unsafe { device.copy_in(Lane::Keys, to, bytes) }?;
        }
        Ok(())
    }

    /// Queues the copies of the points from `start` on back from `points`.
    ///
    /// # Safety
    /// The key stays, and nobody reads these points, until the lane has been waited for.
    pub(super) unsafe fn keep(
        &self,
        device: &Device,
        section: Section,
        start: usize,
        points: Region,
    ) -> Result<(), BackendError> {
        let mut buffers = self.buffers.borrow_mut();
        let buffer = &mut buffers[place(section)];
        for (at, from) in pieces(buffer, section, start, points) {
            let bytes = &mut buffer.as_bytes_mut()[at..][..from.bytes() as usize];
            // SAFETY: the caller keeps the key and leaves the points alone.
            unsafe { device.copy_back(Lane::Keys, bytes, from) }?;
        }
        Ok(())
    }
}

/// Which of the buffers a section has.
fn place(section: Section) -> usize {
    let place = QUERIES.iter().position(|&query| query == section);
    place.expect("a query")
}

/// The points of a region in a buffer: where each part of it begins that can be copied at
/// once, and where that lies on the device.
fn pieces(
    buffer: &PinnedBacking,
    section: Section,
    start: usize,
    points: Region,
) -> impl Iterator<Item = (usize, Region)> + use<> {
    let begin = start * point_bytes(section) as usize;
    let end = begin + points.bytes() as usize;
    buffer.copy_ranges().filter_map(move |range| {
        let (from, to) = (range.start.max(begin), range.end.min(end));
        let len = to.checked_sub(from).filter(|len| *len != 0)?;
        Some((from, points.part((from - begin) as u64, len as u64)))
    })
}

/// The keys in page-locked memory.
pub(super) struct HostKeys {
    /// The most recently used stand last.
    keys: Vec<Rc<HostKey>>,
    memory: Option<KeyMemory>,
}

impl HostKeys {
    pub(super) fn new(memory: Option<KeyMemory>) -> Self {
        Self {
            keys: Vec::new(),
            memory,
        }
    }

    /// The place of a key, in which its points are or are to be kept; `None` where there
    /// is no memory for it. What no proof uses makes room, least recently used first, if
    /// anything `may_go`.
    pub(super) async fn place_of(
        &mut self,
        source: &Arc<dyn PointBytes>,
        may_go: bool,
    ) -> Result<Option<Rc<HostKey>>, BackendError> {
        let Some(memory) = &self.memory else {
            return Ok(None);
        };
        let in_use = |key: &Rc<HostKey>| Rc::strong_count(key) > 1;
        let is_alive = |key: &Rc<HostKey>| key.source.strong_count() != 0;
        self.keys.retain(|key| in_use(key) || is_alive(key));
        if let Some(at) = self.keys.iter().position(|key| key.is(source)) {
            let key = self.keys.remove(at);
            self.keys.push(Rc::clone(&key));
            return Ok(Some(key));
        }
        let lens = QUERIES.map(|section| source.count(section) * point_bytes(section) as usize);
        let bytes = lens.iter().map(|&len| len as u64).sum::<u64>();
        if bytes > memory.bytes_max {
            return Ok(None);
        }
        loop {
            let held: u64 = self.keys.iter().map(|key| key.bytes).sum();
            if held + bytes <= memory.bytes_max {
                let take = Arc::clone(&memory.take);
                // New memory is page-locked page by page, which takes a while.
                let taken = on_thread("memory for a key", move || take(&lens)).await?;
                if let Some(buffers) = taken {
                    let key = Rc::new(HostKey {
                        source: Arc::downgrade(source),
                        buffers: RefCell::new(buffers),
                        bytes,
                        is_loaded: Cell::new(false),
                    });
                    self.keys.push(Rc::clone(&key));
                    return Ok(Some(key));
                }
            }
            let idle = self.keys.iter().position(|key| !in_use(key));
            let Some(at) = idle.filter(|_| may_go) else {
                return Ok(None);
            };
            self.keys.remove(at);
        }
    }
}
