//! Keys in pieces: one pass of a key over the bus, for one proof or for several that are
//! ready at the same time.
//!
//! A pass has the turn to compute. Its proofs transform their columns one after the other;
//! then each piece of the key is brought once, and each proof in turn sums it. There are
//! two places for pieces: while one is summed the next one comes to the other.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::clock::points_of;
use super::device::{Device, Lane, Region};
use super::event::Event;
use super::holdings::PiecePlaces;
use super::host_key::HostKey;
use super::plan::{Counts, QUERIES, point_bytes};
use super::points::PointBytes;
use super::prove::Bench;
use super::staging::Staging;
use crate::device::relay::{Baton, Lobby, Relay, Runner};
use crate::device::turn::Taken;
use crate::error::BackendError;
use crate::key::{KeyTier, Section};

/// Events of the two places: after a piece was brought there, and after its last use.
/// Passes follow each other, so they share these.
pub(super) struct PieceEvents {
    brought: [Event; 2],
    used: [Event; 2],
}

impl PieceEvents {
    pub(super) fn new(device: &Device) -> Result<Self, BackendError> {
        let two = || Ok::<_, BackendError>([device.event()?, device.event()?]);
        Ok(Self {
            brought: two()?,
            used: two()?,
        })
    }
}

/// Where the pieces of a key come from.
pub(super) enum Origin<'o> {
    /// Its source; and where the points are kept for the next pass.
    Source {
        source: Arc<dyn PointBytes>,
        /// Absent while a piece is brought.
        staging: RefCell<Option<Taken<'o, Staging>>>,
        keep: Option<Rc<HostKey>>,
    },
    /// Page-locked memory.
    Host(Rc<HostKey>),
}

/// Some points of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    section: Section,
    range: Range<usize>,
}

/// How a key is cut.
pub(super) struct Pieces {
    pub(super) places: Rc<PiecePlaces>,
    /// Points in each, but in the last of a section.
    pub(super) len: usize,
    pub(super) counts: Counts,
    /// Whether the host sums the section `b_g2`.
    pub(super) is_b_g2_on_host: bool,
}

impl Pieces {
    fn list(&self) -> Vec<Piece> {
        let sections = QUERIES.into_iter();
        let sections = sections.filter(|&at| at != Section::BG2 || !self.is_b_g2_on_host);
        sections
            .flat_map(|section| {
                let count = self.counts.of_section(section);
                (0..count).step_by(self.len).map(move |start| Piece {
                    section,
                    range: start..count.min(start + self.len),
                })
            })
            .collect()
    }
}

/// One pass of a key.
pub(super) struct Pass<'o> {
    origin: Origin<'o>,
    places: Rc<PiecePlaces>,
    events: Rc<PieceEvents>,
    piece_len: usize,
    pieces: Vec<Piece>,
    /// Pieces that are there, or on their way where they come from page-locked memory.
    brought: Cell<usize>,
    is_shared: bool,
    _turn: Taken<'o, ()>,
}

/// Proofs that could go together: of one key, with the same places for its pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Together {
    pub(super) source: *const (),
    pub(super) places: *const PiecePlaces,
    pub(super) len: usize,
}

/// Where they gather.
pub(super) type Waiting<'o> = Lobby<Together, Streamed<'o>>;

/// A proof's place in a pass.
pub(super) struct Streamed<'o> {
    pass: Rc<Pass<'o>>,
    runner: Runner,
    /// The piece that it sums next.
    step: usize,
}

impl<'o> Pass<'o> {
    /// A pass of `count` proofs: the place of each.
    pub(super) fn start(
        origin: Origin<'o>,
        pieces: &Pieces,
        events: Rc<PieceEvents>,
        turn: Taken<'o, ()>,
        count: usize,
    ) -> impl Iterator<Item = Streamed<'o>> + use<'o> {
        let pass = Rc::new(Self {
            origin,
            places: Rc::clone(&pieces.places),
            events,
            piece_len: pieces.len,
            pieces: pieces.list(),
            brought: Cell::new(0),
            is_shared: count > 1,
            _turn: turn,
        });
        Relay::of(count).into_iter().map(move |runner| Streamed {
            pass: Rc::clone(&pass),
            runner,
            step: 0,
        })
    }

    /// Where a piece is while it is there.
    fn place(&self, step: usize) -> Region {
        let Piece { section, range } = &self.pieces[step];
        let bytes = range.len() as u64 * point_bytes(*section);
        self.places.region(step % 2).part(0, bytes)
    }

    /// Has pieces come ahead of their use, as far as there are places: after the first
    /// `used` have been summed, or their sums queued.
    fn look_ahead(&self, bench: &Bench<'_>, used: usize) -> Result<(), BackendError> {
        let Origin::Host(key) = &self.origin else {
            return Ok(());
        };
        let device = bench.device;
        while self.brought.get() < self.pieces.len().min(used + 2) {
            let step = self.brought.get();
            // The last sum of what is there may not have ended.
            device.follow(Lane::Keys, &self.events.used[step % 2])?;
            let Piece { section, range } = &self.pieces[step];
            let begun = bench.clock.begin(device, Lane::Keys)?;
            let points = self.place(step);
            // SAFETY: the proof has the key until it has waited for the lane; a key is
            // fetched by the one pass that has the staging, and no more once it is whole.
            unsafe { key.bring(device, *section, range.start, points) }?;
            let name = points_of(*section);
            bench.clock.end(device, begun, name, points.bytes())?;
            device.record(Lane::Keys, &self.events.brought[step % 2])?;
            self.brought.set(step + 1);
        }
        Ok(())
    }

    /// The points of a piece, on the device for what the compute lane is given from now
    /// on. Those of the piece before are there too, older ones are gone.
    async fn bring(&self, bench: &Bench<'_>, step: usize) -> Result<Region, BackendError> {
        let device = bench.device;
        let points = self.place(step);
        match &self.origin {
            Origin::Host(_) => {
                self.look_ahead(bench, step)?;
                device.follow(Lane::Compute, &self.events.brought[step % 2])?;
            }
            Origin::Source {
                source,
                staging,
                keep,
            } => {
                if self.brought.get() > step {
                    return Ok(points);
                }
                device.follow(Lane::Keys, &self.events.used[step % 2])?;
                let Piece { section, range } = &self.pieces[step];
                let begun = bench.clock.begin(device, Lane::Keys)?;
                let mut lent = Lent::of(staging);
                let staging = lent.taken.as_mut().ok_or(BackendError::Lost)?;
                let (section, range) = (*section, range.clone());
                let start = range.start;
                staging
                    .points(device, source, section, range, points)
                    .await?;
                if let Some(key) = keep {
                    // SAFETY: the proof has the key until it has waited for the lane.
                    unsafe { key.keep(device, section, start, points) }?;
                }
                let name = points_of(section);
                bench.clock.end(device, begun, name, points.bytes())?;
                self.brought.set(step + 1);
            }
        }
        Ok(points)
    }
}

/// What somebody has for the time of a wait, and gives back however that ends.
struct Lent<'a, T> {
    from: &'a RefCell<Option<T>>,
    taken: Option<T>,
}

impl<'a, T> Lent<'a, T> {
    fn of(from: &'a RefCell<Option<T>>) -> Self {
        Self {
            taken: from.take(),
            from,
        }
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        self.from.replace(self.taken.take());
    }
}

impl Streamed<'_> {
    pub(super) fn tier(&self) -> KeyTier {
        match &self.pass.origin {
            Origin::Source { .. } => KeyTier::File,
            Origin::Host(_) => KeyTier::Pinned,
        }
    }

    /// Points in each piece.
    pub(super) fn piece_len(&self) -> usize {
        self.pass.piece_len
    }

    /// Whether others use the scratch between its sums.
    pub(super) fn is_shared(&self) -> bool {
        self.pass.is_shared
    }

    /// Waits for its turn to transform; meanwhile the first pieces come.
    pub(super) async fn transform(&mut self, bench: &Bench<'_>) -> Result<Baton, BackendError> {
        let baton = self.runner.turn().await;
        self.pass.look_ahead(bench, 0)?;
        Ok(baton)
    }

    /// Waits for its turn at the next piece, which must be this one. Until the baton is
    /// dropped nobody else is given the device's compute lane or scratch.
    pub(super) async fn bring(
        &mut self,
        bench: &Bench<'_>,
        section: Section,
        range: Range<usize>,
    ) -> Result<(Region, Baton), BackendError> {
        let baton = self.runner.turn().await;
        let step = self.step;
        assert_eq!(self.pass.pieces[step], Piece { section, range });
        self.step += 1;
        Ok((self.pass.bring(bench, step).await?, baton))
    }

    /// The piece that it had last is not read by it after what is queued now.
    pub(super) fn used(&self, bench: &Bench<'_>) -> Result<(), BackendError> {
        let place = (self.step + 1) % 2;
        let event = &self.pass.events.used[place];
        bench.device.record(Lane::Compute, event)
    }

    /// Where pieces are kept for the next pass.
    pub(super) fn kept(&self) -> Option<Rc<HostKey>> {
        match &self.pass.origin {
            Origin::Source { keep, .. } => keep.clone(),
            Origin::Host(_) => None,
        }
    }
}
