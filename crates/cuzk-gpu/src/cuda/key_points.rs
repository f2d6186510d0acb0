//! The points of a key for the sums of a proof: on the device, or piece by piece.

use std::rc::Rc;

use super::device::{Device, Lane, Region};
use super::pass::Streamed;
use super::plan::Piece;
use super::prove::Bench;
use super::resident::ResidentKey;
use crate::device::relay::Baton;
use crate::device::turn::Taken;
use crate::device::waiter::Passed;
use crate::error::BackendError;
use crate::key::KeyTier;

/// Where the points of a proof's key are, and its turn to compute with them.
pub(super) enum KeyPoints<'o> {
    /// On the device.
    Resident {
        key: Rc<ResidentKey>,
        pieces: Rc<[Piece]>,
        _turn: Taken<'o, ()>,
    },
    /// Elsewhere: brought piece by piece, some while one before is summed.
    Streamed(Streamed<'o>),
}

impl KeyPoints<'_> {
    pub(super) fn tier(&self) -> KeyTier {
        match self {
            Self::Resident { .. } => KeyTier::Resident,
            Self::Streamed(streamed) => streamed.tier(),
        }
    }

    /// What is to be summed, in this order.
    pub(super) fn pieces(&self) -> Rc<[Piece]> {
        match self {
            Self::Resident { pieces, .. } => Rc::clone(pieces),
            Self::Streamed(streamed) => streamed.pieces(),
        }
    }

    /// Whether others use the scratch between the sums of this proof.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::Resident { .. } => false,
            Self::Streamed(streamed) => streamed.is_shared(),
        }
    }

    /// The points of a piece, on the device for what the compute lane is given from now
    /// on, and the turn to sum them.
    pub(super) async fn bring(
        &mut self,
        bench: &Bench<'_>,
        piece: &Piece,
    ) -> Result<(Region, Option<Baton>), BackendError> {
        match self {
            Self::Resident { key, .. } => Ok((key.points(piece.section), None)),
            Self::Streamed(streamed) => {
                let (points, baton) = streamed.bring(bench, piece).await?;
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
}
