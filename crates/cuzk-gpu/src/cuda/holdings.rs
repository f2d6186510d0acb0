//! What lies in the arena: keys and index lists that stay from proof to proof, the
//! scratch that proofs share, and the slots of those under way.
//!
//! A proof gets everything at once or nothing. What nobody uses makes room for it,
//! least recently used first, until its regions fit; what proofs under way use stays.
//! Keys and lists are at the low end and slots and scratch at the high end, so that
//! what comes and goes leaves no holes among what stays.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::arena::{Arena, Lease};
use super::plan::{Counts, Cutting, Needs, Way, Workspace};
use super::points::PointBytes;
use super::prove::Regions;
use super::resident::{ResidentKey, ResidentShape};
use crate::cpu::h::CSource;
use crate::device::arena::End;
use crate::error::BackendError;
use crate::shape::CircuitShape;

/// What a proof is to have.
pub(super) struct Wanted<'a> {
    pub(super) source: &'a Arc<dyn PointBytes>,
    pub(super) shape: &'a Arc<CircuitShape>,
    pub(super) cutting: &'a Cutting,
    pub(super) c_source: CSource,
    pub(super) is_key_resident: bool,
    pub(super) is_assignment_late: bool,
    pub(super) piece_log_max: u32,
    pub(super) slots: usize,
}

impl Wanted<'_> {
    /// What the plan counts.
    pub(super) fn needs(&self) -> Needs<'_> {
        let counts = Counts::of(self.shape);
        Needs {
            sizes: &self.shape.sizes,
            counts,
            cutting: *self.cutting,
            c_source: self.c_source,
            is_key_resident: self.is_key_resident,
            is_assignment_late: self.is_assignment_late,
            piece_log_max: self.piece_log_max,
            slots: self.slots,
            key_bytes: ResidentKey::bytes(&**self.source),
            list_bytes: ResidentShape::bytes(&counts),
        }
    }
}

/// What a proof has.
pub(super) struct Held {
    slot: Lease,
    scratch: Rc<Lease>,
    workspace: Workspace,
    pub(super) lists: Rc<ResidentShape>,
    pub(super) points: Points,
    _counted: Counted,
}

/// Where the points of a proof's key are to be.
pub(super) enum Points {
    /// All of them on the device.
    Resident(Rc<ResidentKey>),
    /// So many at a time, in one of a few places by turns.
    Pieces { places: Rc<PiecePlaces>, way: Way },
}

impl Points {
    /// How the key is used.
    pub(super) fn way(&self) -> Way {
        match self {
            Self::Resident(_) => Way::Whole,
            Self::Pieces { way, .. } => *way,
        }
    }
}

/// What becomes of a key that is to be there before its first proof.
pub(super) enum Preloaded {
    /// It has a place on the device.
    Resident(Rc<ResidentKey>),
    /// It is to come in pieces.
    InPieces,
    /// It would have a place if something else went.
    NoRoom,
}

/// The places for pieces of keys, shared by the proofs whose keys come in pieces.
pub(super) struct PiecePlaces(Vec<Lease>);

impl PiecePlaces {
    /// How many there are, at most [`PLACES_MAX`](super::plan::PLACES_MAX).
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// One of them.
    pub(super) fn region(&self, place: usize) -> super::device::Region {
        self.0[place].region()
    }

    /// Bytes of all.
    fn bytes(&self) -> u64 {
        self.0.iter().map(Lease::bytes).sum()
    }

    /// Whether they are as many and as large as a proof wants.
    fn are_enough(&self, workspace: &Workspace) -> bool {
        self.count() >= workspace.places && self.region(0).bytes() >= workspace.piece
    }
}

/// One of those that have something: proofs, and keys that are brought ahead of theirs.
pub(super) struct Counted(Rc<Cell<usize>>);

impl Counted {
    fn of(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Memory that stays until its user gives it back, and that no proof makes room of.
pub(super) struct Fixed {
    lease: Lease,
    sum: Rc<Cell<u64>>,
}

impl Fixed {
    /// All of it.
    pub(super) fn region(&self) -> super::device::Region {
        self.lease.region()
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        self.sum.set(self.sum.get() - self.lease.bytes());
    }
}

impl Held {
    /// Where the proof works.
    pub(super) fn regions(&self) -> Regions {
        let workspace = &self.workspace;
        let mut at = 0;
        let mut take = |bytes: u64| {
            let region = self.slot.region().part(at, bytes);
            at += bytes;
            region
        };
        let (a, b, c) = (take(workspace.a), take(workspace.b), take(workspace.c));
        let own = take(workspace.assignment);
        let (assignment, spare) = match workspace.assignment {
            0 => (b, b.part(0, 0)),
            _ => (own, b),
        };
        let scratch = self.scratch.region();
        Regions {
            a,
            b,
            c: match workspace.c {
                0 => scratch.part(0, workspace.a.min(scratch.bytes())),
                _ => c,
            },
            assignment,
            spare,
            rows: take(workspace.rows),
            counters: take(workspace.counters),
            scratch,
        }
    }
}

/// Everything in the arena.
pub(super) struct Holdings {
    /// The most recently used stand last.
    keys: Vec<Rc<ResidentKey>>,
    shapes: Vec<Rc<ResidentShape>>,
    /// As large as any circuit needed that there was room for.
    scratch: Option<Rc<Lease>>,
    /// As large as any pieces needed, likewise.
    places: Option<Rc<PiecePlaces>>,
    /// Proofs that have something.
    proofs: Rc<Cell<usize>>,
    fixed_bytes: Rc<Cell<u64>>,
    arena: Arena,
}

impl Holdings {
    pub(super) fn new(arena: Arena) -> Self {
        Self {
            keys: Vec::new(),
            shapes: Vec::new(),
            scratch: None,
            places: None,
            proofs: Rc::default(),
            fixed_bytes: Rc::default(),
            arena,
        }
    }

    /// Has others wait for memory as if a proof had it that ends later.
    pub(super) fn counted(&self) -> Counted {
        Counted::of(&self.proofs)
    }

    /// Bytes that nobody has.
    #[cfg(test)]
    pub(super) fn free_bytes(&self) -> u64 {
        self.arena.free_bytes()
    }

    /// Bytes that are no proof's.
    pub(super) fn fixed_bytes(&self) -> u64 {
        self.fixed_bytes.get()
    }

    /// Takes memory that is no proof's. Everything that nobody uses goes first, so that it
    /// lies at the end and leaves what is free in one range.
    pub(super) fn fixed(&mut self, what: &'static str, bytes: u64) -> Result<Fixed, BackendError> {
        self.forget();
        while self.evict(None) {}
        let lease = self.arena.take(bytes, End::Low);
        let lease = lease.ok_or_else(|| self.arena.refused(what, bytes))?;
        self.fixed_bytes.set(self.fixed_bytes.get() + lease.bytes());
        let sum = Rc::clone(&self.fixed_bytes);
        Ok(Fixed { lease, sum })
    }

    /// Gives a proof what it wants; `None` where that has no room beside what proofs
    /// under way use. A key that has none on the device with the proof alone is to be
    /// brought in pieces.
    pub(super) fn take(&mut self, wanted: &Wanted<'_>) -> Result<Option<Held>, BackendError> {
        self.forget();
        let needs = wanted.needs();
        let room = self.arena.bytes() - self.fixed_bytes.get();
        for (way, workspace, asked) in needs.ways_within(room) {
            if let Some(held) = self.take_so(wanted, way, &workspace, asked) {
                return Ok(Some(held));
            }
            if self.proofs.get() != 0 {
                return Ok(None);
            }
            // Alone, and in sum there is room: what stays elsewhere leaves no range
            // that is long enough.
        }
        let least = needs.least_bytes();
        Err(self.arena.refused("a proof and a piece of its key", least))
    }

    /// A place for a key whose proofs want what `needs` says, where nothing has to go for it
    /// or for one of them.
    pub(super) fn place_for(
        &mut self,
        source: &Arc<dyn PointBytes>,
        needs: &Needs<'_>,
    ) -> Result<Preloaded, BackendError> {
        self.forget();
        let room = self.arena.bytes() - self.fixed_bytes.get();
        let Some((way, workspace, asked)) = needs.ways_within(room).next() else {
            let least = needs.least_bytes();
            return Err(self.arena.refused("a proof and a piece of its key", least));
        };
        if let Way::InPieces { .. } = way {
            return Ok(Preloaded::InPieces);
        }
        if let Some(key) = self.keys.iter().find(|key| key.is(source)) {
            return Ok(Preloaded::Resident(Rc::clone(key)));
        }
        let scratch = self.scratch.as_ref();
        let scratch = scratch.filter(|held| held.region().bytes() >= workspace.scratch);
        // Its circuit is not named: lists of that length are taken to be its own.
        let mut lists = self.shapes.iter().map(|held| held.held_bytes());
        let has_lists = lists.any(|bytes| bytes == needs.list_bytes);
        let has =
            scratch.map_or(0, |_| workspace.scratch) + if has_lists { needs.list_bytes } else { 0 };
        if asked - has > self.arena.free_bytes() {
            return Ok(Preloaded::NoRoom);
        }
        let Some(key) = ResidentKey::reserve(&self.arena, source) else {
            return Ok(Preloaded::NoRoom);
        };
        let key = Rc::new(key);
        self.keys.push(Rc::clone(&key));
        Ok(Preloaded::Resident(key))
    }

    /// The place of a circuit's lists, where nothing has to go for it.
    pub(super) fn place_for_lists(
        &mut self,
        shape: &Arc<CircuitShape>,
    ) -> Option<Rc<ResidentShape>> {
        self.forget();
        if let Some(lists) = self.shapes.iter().find(|held| held.is(shape)) {
            return Some(Rc::clone(lists));
        }
        let lists = Rc::new(ResidentShape::reserve(&self.arena, shape)?);
        self.shapes.push(Rc::clone(&lists));
        Some(lists)
    }

    /// Memory for a while, where nothing has to go for it.
    pub(super) fn spare(&mut self, bytes: u64) -> Option<Lease> {
        self.arena.take(bytes, End::High)
    }

    /// Evicts until the proof's regions fit.
    fn take_so(
        &mut self,
        wanted: &Wanted<'_>,
        way: Way,
        workspace: &Workspace,
        asked: u64,
    ) -> Option<Held> {
        let spared = match way {
            Way::Whole => Some(wanted),
            Way::InPieces { .. } => None,
        };
        let has = self.held_of(wanted, way, workspace);
        if asked - has > self.arena.free_bytes() + self.idle_bytes(spared) {
            return None;
        }
        loop {
            if let Some(held) = self.attempt(wanted, way, workspace) {
                return Some(held);
            }
            if !self.evict(spared) {
                return None;
            }
        }
    }

    /// Bytes of what a proof wants that are there already.
    fn held_of(&self, wanted: &Wanted<'_>, way: Way, workspace: &Workspace) -> u64 {
        let key = self.keys.iter().find(|key| key.is(wanted.source));
        let key = key.filter(|_| matches!(way, Way::Whole));
        let lists = self.shapes.iter().find(|held| held.is(wanted.shape));
        let scratch = self.scratch.as_ref();
        let scratch = scratch.filter(|held| held.region().bytes() >= workspace.scratch);
        let places = self.places.as_ref();
        let places = places.filter(|held| held.are_enough(workspace));
        key.map_or(0, |key| key.held_bytes())
            + lists.map_or(0, |lists| lists.held_bytes())
            + scratch.map_or(0, |_| workspace.scratch)
            + places.map_or(0, |_| workspace.ring())
    }

    /// Takes everything, or nothing.
    fn attempt(&mut self, wanted: &Wanted<'_>, way: Way, workspace: &Workspace) -> Option<Held> {
        let arena = &self.arena;
        let scratch = match &self.scratch {
            Some(held) if held.region().bytes() >= workspace.scratch => Rc::clone(held),
            _ => {
                // Freed first if nobody uses it: nobody needs both.
                self.scratch = None;
                Rc::new(arena.take(workspace.scratch, End::High)?)
            }
        };
        let slot = arena.take(workspace.slot(), End::High)?;
        let lists = match self.shapes.iter().position(|held| held.is(wanted.shape)) {
            Some(at) => Ok(at),
            None => Err(Rc::new(ResidentShape::reserve(arena, wanted.shape)?)),
        };
        let points = match way {
            Way::Whole => match self.keys.iter().position(|key| key.is(wanted.source)) {
                Some(at) => Ok(at),
                None => {
                    let key = ResidentKey::reserve(arena, wanted.source)?;
                    Err(Points::Resident(Rc::new(key)))
                }
            },
            Way::InPieces { .. } => {
                let places = match &self.places {
                    Some(held) if held.are_enough(workspace) => Rc::clone(held),
                    _ => {
                        self.places = None;
                        let place = |_| arena.take(workspace.piece, End::High);
                        let places = (0..workspace.places).map(place);
                        Rc::new(PiecePlaces(places.collect::<Option<_>>()?))
                    }
                };
                Err(Points::Pieces { places, way })
            }
        };
        // Nothing fails from here on.
        let lists = lists.map_or_else(|new| new, |at| self.shapes.remove(at));
        self.shapes.push(Rc::clone(&lists));
        let points = points.map_or_else(|new| new, |at| Points::Resident(self.keys.remove(at)));
        match &points {
            Points::Resident(key) => self.keys.push(Rc::clone(key)),
            Points::Pieces { places, .. } => self.places = Some(Rc::clone(places)),
        }
        self.scratch = Some(Rc::clone(&scratch));
        Some(Held {
            slot,
            scratch,
            workspace: *workspace,
            lists,
            points,
            _counted: self.counted(),
        })
    }

    /// Drops what nobody can ask for again, and what a failed proof left half done.
    pub(super) fn forget(&mut self) {
        self.keys
            .retain(|key| in_use(key) || (key.is_alive() && key.is_loaded()));
        self.shapes
            .retain(|shape| in_use(shape) || (shape.is_alive() && shape.is_loaded()));
    }

    /// Drops the least recently used of what nobody uses, keys first and the scratch
    /// last, but neither the key nor the lists that are `spared`. `false` if there is
    /// nothing.
    fn evict(&mut self, spared: Option<&Wanted<'_>>) -> bool {
        let key = self.keys.iter().position(|key| is_idle_key(key, spared));
        if let Some(at) = key {
            self.keys.remove(at);
            return true;
        }
        let shape = self
            .shapes
            .iter()
            .position(|held| is_idle_shape(held, spared));
        if let Some(at) = shape {
            self.shapes.remove(at);
            return true;
        }
        let places = self.places.take_if(|places| !in_use(places));
        if places.is_some() {
            return true;
        }
        let scratch = self.scratch.take_if(|scratch| !in_use(scratch));
        scratch.is_some()
    }

    /// Bytes that [`evict`](Self::evict) could free.
    fn idle_bytes(&self, spared: Option<&Wanted<'_>>) -> u64 {
        let keys = self.keys.iter().filter(|key| is_idle_key(key, spared));
        let shapes = self.shapes.iter();
        let shapes = shapes.filter(|shape| is_idle_shape(shape, spared));
        let scratch = self.scratch.iter().filter(|scratch| !in_use(scratch));
        let places = self.places.iter().filter(|places| !in_use(places));
        keys.map(|key| key.held_bytes()).sum::<u64>()
            + shapes.map(|shape| shape.held_bytes()).sum::<u64>()
            + scratch.map(|scratch| scratch.bytes()).sum::<u64>()
            + places.map(|places| places.bytes()).sum::<u64>()
    }
}

/// Whether somebody beside the holdings has it.
fn in_use<T>(held: &Rc<T>) -> bool {
    Rc::strong_count(held) > 1
}

fn is_idle_key(key: &Rc<ResidentKey>, spared: Option<&Wanted<'_>>) -> bool {
    !in_use(key) && spared.is_none_or(|wanted| !key.is(wanted.source))
}

fn is_idle_shape(shape: &Rc<ResidentShape>, spared: Option<&Wanted<'_>>) -> bool {
    !in_use(shape) && spared.is_none_or(|wanted| !shape.is(wanted.shape))
}
