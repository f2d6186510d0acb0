//! The points of a key for the sums of a proof: on the device, or piece by piece.

use std::ops::Range;
use std::rc::Rc;

use super::device::{Device, Lane, Region};
use super::host_key::HostKey;
use super::pass::Streamed;
use super::plan::Counts;
use super::prove::Bench;
use super::resident::ResidentKey;
use crate::device::relay::Baton;
use crate::device::turn::Taken;
use crate::device::waiter::Passed;
use crate::error::BackendError;
use crate::key::{KeyTier, Section};

/// Where the points of a proof's key are, and its turn to compute with them.
pub(super) enum KeyPoints<'o> {
    /// On the device.
    Resident {
        key: Rc<ResidentKey>,
        _turn: Taken<'o, ()>,
    },
    /// Elsewhere: brought piece by piece, one while the one before is summed.
    Streamed(Streamed<'o>),
}

impl KeyPoints<'_> {
    pub(super) fn tier(&self) -> KeyTier {
        match self {
            Self::Resident { .. } => KeyTier::Resident,
            Self::Streamed(streamed) => streamed.tier(),
        }
    }

    /// How many of a query's points are there at a time.
    pub(super) fn piece_len(&self, count: usize) -> usize {
        match self {
            Self::Resident { .. } => count,
            Self::Streamed(streamed) => streamed.piece_len(),
        }
    }

    /// In how many pieces the longest query comes.
    pub(super) fn pieces(&self, counts: &Counts) -> usize {
        match self {
            Self::Resident { .. } => 1,
            Self::Streamed(streamed) => counts.pieces(streamed.piece_len()),
        }
    }

    /// Whether others use the scratch between the sums of this proof.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::Resident { .. } => false,
            Self::Streamed(streamed) => streamed.is_shared(),
        }
    }

    /// Waits for the turn to transform, which ends with what this returns.
    pub(super) async fn transform(
        &mut self,
        bench: &Bench<'_>,
    ) -> Result<Option<Baton>, BackendError> {
        match self {
            Self::Resident { .. } => Ok(None),
            Self::Streamed(streamed) => streamed.transform(bench).await.map(Some),
        }
    }

    /// The points of a range, on the device for what the compute lane is given from now
    /// on, and the turn to sum them.
    pub(super) async fn bring(
        &mut self,
        bench: &Bench<'_>,
        section: Section,
        range: Range<usize>,
    ) -> Result<(Region, Option<Baton>), BackendError> {
        match self {
            Self::Resident { key, .. } => Ok((key.points(section), None)),
            Self::Streamed(streamed) => {
                let (points, baton) = streamed.bring(bench, section, range).await?;
                Ok((points, Some(baton)))
            }
        }
    }

    /// What was brought last is not read after what is queued now.
    pub(super) fn used(&self, bench: &Bench<'_>) -> Result<(), BackendError> {
        match self {
            Self::Resident { .. } => Ok(()),
            Self::Streamed(streamed) => streamed.used(bench),
        }
    }

    /// A fence behind the last piece.
    pub(super) fn brought(&self, device: &Device) -> Result<Option<Passed>, BackendError> {
        match self {
            Self::Resident { .. } => Ok(None),
            Self::Streamed(_) => device.fence(Lane::Keys).map(Some),
        }
    }

    /// Where pieces are kept for the next proof.
    pub(super) fn kept(&self) -> Option<Rc<HostKey>> {
        match self {
            Self::Resident { .. } => None,
            Self::Streamed(streamed) => streamed.kept(),
        }
    }
}
