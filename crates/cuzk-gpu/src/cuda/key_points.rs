//! The points of a key for the sums of a proof: on the device, or piece by piece.

use std::ops::Range;
use std::sync::Arc;

use super::clock::points_of;
use super::device::{Device, Lane, Region};
use super::host_key::HostKey;
use super::plan::point_bytes;
use super::points::PointBytes;
use super::prove::Bench;
use super::resident::ResidentKey;
use super::staging::Staging;
use crate::device::turn::Taken;
use crate::device::waiter::Passed;
use crate::error::BackendError;
use crate::key::{KeyTier, Section};

/// Where the points of a proof's key are.
pub(super) enum KeyPoints<'a> {
    /// On the device.
    Resident(&'a ResidentKey),
    /// Elsewhere: brought piece by piece, one while the one before is summed.
    Streamed {
        from: Origin<'a>,
        places: [Region; 2],
        piece_len: usize,
        /// Pieces that were brought.
        count: usize,
    },
}

/// Where the pieces of a key come from.
pub(super) enum Origin<'a> {
    /// Its source; and where the points are kept for the next proof.
    Source {
        source: &'a Arc<dyn PointBytes>,
        staging: Taken<'a, Staging>,
        keep: Option<&'a HostKey>,
    },
    /// Page-locked memory.
    Host(&'a HostKey),
}

impl KeyPoints<'_> {
    pub(super) fn tier(&self) -> KeyTier {
        match self {
            Self::Resident(_) => KeyTier::Resident,
            Self::Streamed { from, .. } => match from {
                Origin::Source { .. } => KeyTier::File,
                Origin::Host(_) => KeyTier::Pinned,
            },
        }
    }

    /// How many of a query's points are there at a time.
    pub(super) fn piece_len(&self, count: usize) -> usize {
        match self {
            Self::Resident(_) => count,
            Self::Streamed { piece_len, .. } => *piece_len,
        }
    }

    /// The points of a range, on the device for what the compute lane is given from now
    /// on. Those of the range before are there too, older ones are gone.
    pub(super) async fn bring(
        &mut self,
        bench: &Bench<'_>,
        section: Section,
        range: Range<usize>,
    ) -> Result<Region, BackendError> {
        let (from, places, count) = match self {
            Self::Resident(key) => return Ok(key.points(section)),
            Self::Streamed {
                from,
                places,
                count,
                ..
            } => (from, places, count),
        };
        let (device, clock) = (bench.device, bench.clock);
        let place = *count % 2;
        if *count >= 2 {
            // The last sum of what is there may not have ended.
            device.follow(Lane::Keys, &clock.used[place])?;
        }
        *count += 1;
        let points = places[place].part(0, range.len() as u64 * point_bytes(section));
        let begun = clock.begin(device, Lane::Keys)?;
        match from {
            Origin::Source {
                source,
                staging,
                keep,
            } => {
                let start = range.start;
                staging
                    .points(device, source, section, range, points)
                    .await?;
                if let Some(key) = keep {
                    // SAFETY: the proof has the key until it has waited for the lane.
                    unsafe { key.keep(device, section, start, points) }?;
                }
                clock.end(device, begun, points_of(section), points.bytes())?;
            }
            Origin::Host(key) => {
                // SAFETY: as above; a key is fetched by the one proof that has the
                // staging, and no more once it is whole.
                unsafe { key.bring(device, section, range.start, points) }?;
                clock.end(device, begun, points_of(section), points.bytes())?;
                device.record(Lane::Keys, &clock.brought[place])?;
                device.follow(Lane::Compute, &clock.brought[place])?;
            }
        }
        Ok(points)
    }

    /// What was brought last is not read after what is queued now.
    pub(super) fn used(&self, bench: &Bench<'_>) -> Result<(), BackendError> {
        match self {
            Self::Resident(_) => Ok(()),
            Self::Streamed { count, .. } => {
                let place = (*count + 1) % 2;
                let event = &bench.clock.used[place];
                bench.device.record(Lane::Compute, event)
            }
        }
    }

    /// A fence behind the last piece.
    pub(super) fn brought(&self, device: &Device) -> Result<Option<Passed>, BackendError> {
        match self {
            Self::Resident(_) => Ok(None),
            Self::Streamed { .. } => device.fence(Lane::Keys).map(Some),
        }
    }
}

impl<'a> KeyPoints<'a> {
    /// Where pieces are kept for the next proof.
    pub(super) fn kept(&self) -> Option<&'a HostKey> {
        match self {
            Self::Streamed {
                from: Origin::Source { keep, .. },
                ..
            } => *keep,
            _ => None,
        }
    }
}
