//! Keys in pieces: one pass of a key over the bus, for one proof or for several that are
//! ready at the same time.
//!
//! A pass has the turn to compute. Each piece of the key is brought once, and each proof in
//! turn sums it. There are a few places for pieces, a ring in which one pass goes on where
//! the last one ended: while a piece is summed, those after it come to the others. A place
//! is written again when the last sum of what it had is done.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::clock::points_of;
use super::device::{Device, Lane, Region};
use super::event::Event;
use super::holdings::PiecePlaces;
use super::host_key::HostKey;
use super::plan::{PLACES_MAX, Piece, Way, point_bytes};
use super::points::PointBytes;
use super::prove::Bench;
use super::staging::Staging;
use crate::device::relay::{Baton, Lobby, Relay, Runner};
use crate::device::turn::Taken;
use crate::error::BackendError;
use crate::key::KeyTier;

/// Events of each place: after a piece was brought there, and after its last use. Passes
/// follow each other on all lanes, so they share these, whichever places they have.
pub(super) struct PieceEvents {
    brought: Vec<Event>,
    used: Vec<Event>,
    /// Where in the ring the next piece comes.
    next: Cell<usize>,
}

impl PieceEvents {
    pub(super) fn new(device: &Device) -> Result<Self, BackendError> {
        let events = || {
            (0..PLACES_MAX)
                .map(|_| device.event())
                .collect::<Result<_, _>>()
        };
        Ok(Self {
            brought: events()?,
            used: events()?,
            next: Cell::new(0),
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

/// One pass of a key.
pub(super) struct Pass<'o> {
    origin: Origin<'o>,
    places: Rc<PiecePlaces>,
    events: Rc<PieceEvents>,
    pieces: Rc<[Piece]>,
    /// Where in the ring the first of them comes.
    first: usize,
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
    pub(super) way: Way,
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
    /// A pass of `count` proofs, all of which sum these pieces: the place of each.
    pub(super) fn start(
        origin: Origin<'o>,
        places: Rc<PiecePlaces>,
        pieces: Rc<[Piece]>,
        events: Rc<PieceEvents>,
        turn: Taken<'o, ()>,
        count: usize,
    ) -> impl Iterator<Item = Streamed<'o>> + use<'o> {
        let pass = Rc::new(Self {
            origin,
            places,
            first: events.next.get(),
            events,
            pieces,
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

    /// The place of a piece.
    fn place(&self, step: usize) -> usize {
        (self.first + step) % self.places.count()
    }

    /// Where a piece is while it is there.
    fn region(&self, step: usize) -> Region {
        let Piece { section, range } = &self.pieces[step];
        let bytes = range.len() as u64 * point_bytes(*section);
        self.places.region(self.place(step)).part(0, bytes)
    }

    /// Lets the lane of keys go on only when nothing reads what was in a piece's place.
    fn follow_last_use(&self, device: &Device, step: usize) -> Result<(), BackendError> {
        device.follow(Lane::Keys, &self.events.used[self.place(step)])
    }

    fn set_brought(&self, step: usize) {
        self.brought.set(step + 1);
        self.events.next.set(self.first + step + 1);
    }

    /// Has pieces come ahead of their use, as far as there are places: after the first
    /// `used` have been summed, or their sums queued.
    fn look_ahead(
        &self,
        key: &HostKey,
        bench: &Bench<'_>,
        used: usize,
    ) -> Result<(), BackendError> {
        let device = bench.device;
        while self.brought.get() < self.pieces.len().min(used + self.places.count()) {
            let step = self.brought.get();
            self.follow_last_use(device, step)?;
            let Piece { section, range } = &self.pieces[step];
            let begun = bench.clock.begin(device, Lane::Keys)?;
            let points = self.region(step);
            // SAFETY: the proof has the key until it has waited for the lane; a key is
            // fetched by the one pass that has the staging, and no more once it is whole.
            unsafe { key.bring(device, *section, range.start, points) }?;
            let name = points_of(*section);
            bench.clock.end(device, begun, name, points.bytes())?;
            device.record(Lane::Keys, &self.events.brought[self.place(step)])?;
            self.set_brought(step);
        }
        Ok(())
    }

    /// The points of a piece, on the device for what the compute lane is given from now
    /// on.
    async fn bring(&self, bench: &Bench<'_>, step: usize) -> Result<Region, BackendError> {
        let device = bench.device;
        let points = self.region(step);
        match &self.origin {
            Origin::Host(key) => {
                self.look_ahead(key, bench, step)?;
                device.follow(Lane::Compute, &self.events.brought[self.place(step)])?;
            }
            Origin::Source {
                source,
                staging,
                keep,
            } => {
                if self.brought.get() > step {
                    return Ok(points);
                }
                self.follow_last_use(device, step)?;
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
                self.set_brought(step);
                if let Some(key) = keep
                    && step + 1 == self.pieces.len()
                {
                    // Before another pass asks, which then need not read the file.
                    device.passed(Lane::Keys).await?;
                    key.set_loaded();
                }
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

    /// What all proofs of the pass sum, one after the other.
    pub(super) fn pieces(&self) -> Rc<[Piece]> {
        Rc::clone(&self.pass.pieces)
    }

    /// Whether others use the scratch between its sums.
    pub(super) fn is_shared(&self) -> bool {
        self.pass.is_shared
    }

    /// Waits for its turn at the next piece, which must be this one. Until the baton is
    /// dropped nobody else is given the device's compute lane or scratch.
    pub(super) async fn bring(
        &mut self,
        bench: &Bench<'_>,
        piece: &Piece,
    ) -> Result<(Region, Baton), BackendError> {
        let baton = self.runner.turn().await;
        let step = self.step;
        assert_eq!(&self.pass.pieces[step], piece);
        self.step += 1;
        Ok((self.pass.bring(bench, step).await?, baton))
    }

    /// The piece that it had last is not read by it after what is queued now.
    pub(super) fn used(&self, bench: &Bench<'_>) -> Result<(), BackendError> {
        let last = self.pass.place(self.step - 1);
        bench
            .device
            .record(Lane::Compute, &self.pass.events.used[last])
    }

    /// The page-locked memory that pieces come from, or go to for the next pass.
    pub(super) fn host_key(&self) -> Option<Rc<HostKey>> {
        match &self.pass.origin {
            Origin::Source { keep, .. } => keep.clone(),
            Origin::Host(key) => Some(Rc::clone(key)),
        }
    }
}
