//! The memory of a device: one allocation, taken at the start, from which everything
//! else is lent.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device::{Device, DeviceMemory, MemoryUse, Region};
use crate::device::arena::{End, Offsets, Span};
use crate::error::BackendError;

/// Bytes that are left to the driver where no limit is set: for kernels that the
/// warm-up did not launch (the tables of key generation), page tables of page-locked
/// memory, events. What the other kernels take for their local memory they have when
/// the arena is measured.
const MARGIN_BYTES: u64 = 512 << 20;

/// One allocation and what of it is free. Everything in it belongs to the device's
/// thread.
pub(super) struct Arena {
    whole: Region,
    /// None where it is pretended.
    _memory: Option<DeviceMemory>,
    offsets: Rc<RefCell<Offsets>>,
    used: Arc<MemoryUse>,
}

impl Arena {
    /// Takes `limit_bytes` of the device's memory, or without a limit all that is free
    /// but a margin.
    ///
    /// # Errors
    /// [`BackendError::DeviceMemory`] where a limit is more than what is free.
    pub(super) fn new(device: &Device, limit_bytes: Option<u64>) -> Result<Self, BackendError> {
        const WHAT: &str = "the arena";
        let free = device.free_bytes()?;
        let bytes = limit_bytes.unwrap_or_else(|| free.saturating_sub(MARGIN_BYTES));
        if bytes > free {
            return Err(BackendError::DeviceMemory {
                what: WHAT,
                asked: bytes,
                free,
                limit: bytes,
            });
        }
        let memory = device.allocate(WHAT, bytes)?;
        let used = Arc::clone(device.memory());
        used.arena_bytes.store(bytes, Ordering::Relaxed);
        Ok(Self {
            offsets: Rc::new(RefCell::new(Offsets::new(bytes))),
            whole: memory.region(),
            _memory: Some(memory),
            used,
        })
    }

    /// One of no device, to be divided and not used.
    #[cfg(test)]
    pub(super) fn pretended(bytes: u64) -> Self {
        Self {
            whole: Region::pretended(bytes),
            _memory: None,
            offsets: Rc::new(RefCell::new(Offsets::new(bytes))),
            used: Arc::default(),
        }
    }

    /// Bytes of the whole.
    pub(super) fn bytes(&self) -> u64 {
        self.offsets.borrow().bytes()
    }

    /// Bytes that nobody has.
    pub(super) fn free_bytes(&self) -> u64 {
        self.offsets.borrow().free_bytes()
    }

    /// Lends a region; `None` where no range has room.
    pub(super) fn take(&self, bytes: u64, end: End) -> Option<Lease> {
        let span = self.offsets.borrow_mut().take(bytes, end)?;
        self.used
            .held_bytes
            .fetch_add(span.bytes, Ordering::Relaxed);
        Some(Lease {
            region: self.whole.part(span.start, bytes),
            span,
            offsets: Rc::clone(&self.offsets),
            used: Arc::clone(&self.used),
        })
    }

    /// The error of a request that found no room.
    pub(super) fn refused(&self, what: &'static str, asked: u64) -> BackendError {
        BackendError::DeviceMemory {
            what,
            asked,
            free: self.free_bytes(),
            limit: self.whole.bytes(),
        }
    }
}

/// A region of an arena, given back when dropped. Whoever drops it has seen to it that
/// nothing on the device uses it any more.
pub(super) struct Lease {
    region: Region,
    span: Span,
    offsets: Rc<RefCell<Offsets>>,
    used: Arc<MemoryUse>,
}

impl Lease {
    /// All of it.
    pub(super) fn region(&self) -> Region {
        self.region
    }

    /// Bytes of the arena that it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.span.bytes
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.offsets.borrow_mut().give_back(self.span);
        self.used
            .held_bytes
            .fetch_sub(self.span.bytes, Ordering::Relaxed);
    }
}
