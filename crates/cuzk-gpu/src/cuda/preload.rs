//! Keys, and lists of circuits, that are brought before the first proof asks for them. Nothing
//! goes to make room: what has none is left to its first proof.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::device::Lane;
use super::holdings::Preloaded;
use super::host_key::HostKey;
use super::owner::{Owner, panicked};
use super::plan::{Counts, Needs, QUERIES, point_bytes};
use super::points::PointBytes;
use super::resident::{ResidentKey, ResidentShape};
use crate::device::executor::caught;
use crate::error::BackendError;
use crate::key::KeyTier;
use crate::shape::{CircuitShape, CircuitSizes};

/// Points decoded at a time on their way to page-locked memory, as logarithms: the most
/// that there is room for.
const PIECE_LOGS: [u32; 3] = [20, 16, 12];

/// A key to be brought.
pub(super) struct Request {
    pub(super) source: Arc<dyn PointBytes>,
    /// As far as the key tells.
    pub(super) sizes: CircuitSizes,
    pub(super) counts: Counts,
}

/// Brings something, counted while it is brought, and answers. Whoever hears of the end may
/// drop what was brought: nothing of the request is left then.
pub(super) async fn answered<T>(
    counted: CountedIn<'_>,
    brought: impl Future<Output = Result<T, BackendError>>,
    answer: SyncSender<Result<T, BackendError>>,
) {
    let brought = caught(brought).await;
    drop(counted);
    let _ = answer.send(brought.unwrap_or_else(|_| Err(panicked())));
}

/// One more of something, until dropped.
pub(super) struct CountedIn<'a>(&'a Cell<usize>);

impl<'a> CountedIn<'a> {
    pub(super) fn of(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for CountedIn<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Owner {
    /// Brings a key to where its proofs will have it; the tier in which it is now.
    pub(super) async fn preload(&self, request: &Request) -> Result<KeyTier, BackendError> {
        let (mut resident, mut pinned) = (None, None);
        // What it has comes free as a proof's does.
        let counted = self.holdings.borrow().counted();
        let brought = self.bring_key(request, &mut resident, &mut pinned).await;
        if brought.is_err() {
            // Before its place goes to others.
            self.device.settle().await;
        }
        drop((resident, pinned, counted));
        self.room.tell();
        brought
    }

    /// Brings the lists of a circuit to where its proofs will have them, if there is room.
    pub(super) async fn preload_shape(
        &self,
        shape: &Arc<CircuitShape>,
    ) -> Result<(), BackendError> {
        let Some(lists) = self.holdings.borrow_mut().place_for_lists(shape) else {
            return Ok(());
        };
        let counted = self.holdings.borrow().counted();
        let mut brought = Ok(());
        {
            let mut staging = self.staging.take().await;
            // A proof may have brought them meanwhile.
            if !lists.is_loaded() {
                brought = lists.load(&self.device, &mut staging, shape).await;
            }
        }
        if brought.is_err() {
            // Before their place goes to others.
            self.device.settle().await;
        }
        drop((lists, counted));
        self.room.tell();
        brought
    }

    async fn bring_key(
        &self,
        request: &Request,
        resident: &mut Option<Rc<ResidentKey>>,
        pinned: &mut Option<Rc<HostKey>>,
    ) -> Result<KeyTier, BackendError> {
        let Request {
            source,
            sizes,
            counts,
        } = request;
        let needs = Needs {
            sizes,
            counts: *counts,
            cutting: self.cutting(),
            c_source: self.options.c_source,
            is_key_resident: self.options.is_key_resident,
            is_assignment_late: self.options.is_assignment_late,
            piece_log_max: self.options.key_piece_log_max,
            slots: self.options.slots,
            key_bytes: ResidentKey::bytes(&**source),
            list_bytes: ResidentShape::bytes(counts),
        };
        let place = self.holdings.borrow_mut().place_for(source, &needs)?;
        match place {
            Preloaded::NoRoom => Ok(KeyTier::File),
            Preloaded::Resident(key) => {
                let key = resident.insert(key);
                let mut staging = self.staging.take().await;
                // A proof may have brought it meanwhile.
                if !key.is_loaded() {
                    key.load(&self.device, &mut staging, source).await?;
                }
                Ok(KeyTier::Resident)
            }
            Preloaded::InPieces => {
                *pinned = self.host_keys.take().await.place_of(source, false).await?;
                match pinned {
                    Some(key) => self.fetch(source, key).await,
                    None => Ok(KeyTier::File),
                }
            }
        }
    }

    /// Brings a key's points through the device to page-locked memory, decoded there.
    async fn fetch(
        &self,
        source: &Arc<dyn PointBytes>,
        key: &HostKey,
    ) -> Result<KeyTier, BackendError> {
        let device = &self.device;
        let mut staging = self.staging.take().await;
        if key.is_loaded() {
            return Ok(KeyTier::Pinned);
        }
        // Not the places of passes: one may be under way.
        let place = {
            let mut holdings = self.holdings.borrow_mut();
            PIECE_LOGS.iter().find_map(|log| {
                let bytes = point_bytes(crate::key::Section::BG2) << log;
                Some((holdings.spare(bytes)?, 1usize << log))
            })
        };
        let Some((place, len)) = place else {
            return Ok(KeyTier::File);
        };
        let mut kept = Ok(());
        'sections: for section in QUERIES {
            let count = source.count(section);
            for start in (0..count).step_by(len) {
                let range = start..count.min(start + len);
                let bytes = range.len() as u64 * point_bytes(section);
                let points = place.region().part(0, bytes);
                kept = staging.points(device, source, section, range, points).await;
                if kept.is_ok() {
                    // SAFETY: the key stays until the lane has been waited for, and nobody
                    // else has the staging, so nobody reads or fetches it.
                    kept = unsafe { key.keep(device, section, start, points) };
                }
                if kept.is_err() {
                    break 'sections;
                }
            }
        }
        let passed = device.passed(Lane::Keys).await;
        if let Err(error) = kept.and(passed) {
            // The place goes back when nothing uses it.
            device.settle().await;
            return Err(error);
        }
        key.set_loaded();
        Ok(KeyTier::Pinned)
    }
}
