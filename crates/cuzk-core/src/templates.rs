//! Circuits that repeat, each stored once and counted in the budget.
//!
//! A circuit is surveyed when its first part is synthesised, or before the server is
//! ready. While one part surveys it, others are synthesised whole; nobody waits. Templates
//! that no part uses can be reclaimed, and come back with the next part, from the first
//! block alone if a survey of this process found that it tells the rest. A file is not
//! believed in that: what it says could cost proofs.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use cuzk_budget::{Budget, BudgetError, Consumer, Reclaim, Reservation};
use cuzk_gpu::CircuitShape;
use cuzk_synth::Template;

use crate::lock::lock;
use crate::{CircuitId, Obstacle};

/// On whom stored rows are booked.
pub(crate) const TEMPLATES: Consumer = Consumer("templates");

/// A template with the shape of its circuit.
pub(crate) struct CutCircuit {
    pub(crate) template: Template,
    pub(crate) shape: Arc<CircuitShape>,
    /// Counts the stored rows.
    held: Reservation,
}

impl CutCircuit {
    /// Bytes that are counted for it.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// The most bytes that segments take beside the columns when so many threads fill
    /// them. The first segment writes what is shared into the columns.
    pub(crate) fn beside_bytes(&self, threads: usize) -> u64 {
        let others = threads.min(self.template.blocks().saturating_sub(1));
        let each = self.template.segment_bytes();
        each.saturating_mul(others as u64)
            .saturating_add(self.template.first_segment_bytes())
    }
}

/// A template for as long as somebody uses it. Dropped, it lets those look again who wait
/// for memory: it may be idle now.
pub(crate) struct InUse {
    cut: Arc<CutCircuit>,
    /// Dropped after it, as the order of the fields says.
    _tells: TellsIdle,
}

impl InUse {
    fn new(cut: Arc<CutCircuit>, templates: &Templates) -> Self {
        let _tells = TellsIdle {
            known: Arc::clone(&templates.known),
            budget: templates.budget.clone(),
        };
        Self { cut, _tells }
    }
}

impl Deref for InUse {
    type Target = CutCircuit;

    fn deref(&self) -> &CutCircuit {
        &self.cut
    }
}

/// Says at its end that there may be more idle than before.
struct TellsIdle {
    known: Arc<Mutex<HashMap<CircuitId, Known>>>,
    budget: Budget,
}

impl Drop for TellsIdle {
    fn drop(&mut self) {
        // Whoever counted what is idle before this, under the lock, waits by now and is
        // woken; whoever counts after it sees the template without this user.
        drop(lock(&self.known));
        self.budget.idle_grew();
    }
}

/// What a survey of a whole circuit found in this process.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) blocks: usize,
    /// Whether the first block tells all of them.
    pub(crate) is_uniform: bool,
    pub(crate) digest: [u8; 32],
}

/// The templates of all circuits.
pub(crate) struct Templates {
    budget: Budget,
    known: Arc<Mutex<HashMap<CircuitId, Known>>>,
    /// What surveys of whole circuits found.
    seen: Mutex<HashMap<CircuitId, Seen>>,
    /// Of each that was doubted since a survey found the same rows again.
    doubts: Mutex<HashMap<CircuitId, Doubts>>,
}

#[derive(Clone, Copy, Default)]
struct Doubts {
    count: u32,
    /// Of the template that was doubted last, if it is known.
    digest: Option<[u8; 32]>,
}

/// Doubts after which a circuit is not surveyed again.
const DOUBTS_MAX: u32 = 2;

enum Known {
    /// A part is surveying it.
    Surveyed,
    Cut(Arc<CutCircuit>),
    /// It was cut, and gave its memory back: parts that were made with it may still be
    /// in flight.
    Reclaimed,
    /// The next part is synthesised whole.
    Doubted,
    /// All parts are synthesised whole.
    Whole(Obstacle),
}

/// How a part is to be synthesised.
pub(crate) enum Found<'a> {
    Cut(InUse),
    /// Whole.
    Whole(Obstacle),
    /// This part is to find out.
    Unknown(Surveying<'a>),
}

impl Templates {
    pub(crate) fn new(budget: Budget) -> Arc<Self> {
        let this = Arc::new(Self {
            budget,
            known: Arc::default(),
            seen: Mutex::default(),
            doubts: Mutex::default(),
        });
        let weak = Arc::downgrade(&this);
        this.budget.add_reclaimer(weak);
        this
    }

    pub(crate) fn find(&self, circuit: &CircuitId) -> Found<'_> {
        let mut known = self.known();
        match known.get(circuit) {
            Some(Known::Cut(cut)) => Found::Cut(InUse::new(Arc::clone(cut), self)),
            Some(Known::Surveyed) => Found::Whole(Obstacle::Surveyed),
            Some(Known::Doubted) => {
                known.remove(circuit);
                Found::Whole(Obstacle::Doubted)
            }
            Some(Known::Whole(obstacle)) => Found::Whole(*obstacle),
            Some(Known::Reclaimed) | None => {
                known.insert(circuit.clone(), Known::Surveyed);
                Found::Unknown(Surveying {
                    templates: self,
                    circuit: circuit.clone(),
                    is_done: false,
                })
            }
        }
    }

    /// What a survey of the whole circuit found in this process.
    pub(crate) fn seen(&self, circuit: &CircuitId) -> Option<Seen> {
        lock(&self.seen).get(circuit).copied()
    }

    /// Keeps what a survey found; whether nobody had before, or it is surveyed anew since it
    /// was doubted. If it has the rows then that were doubted, these are the circuit's, and
    /// what was wrong was something else: a part, a device, a byte in memory. So the doubts
    /// are forgotten.
    pub(crate) fn keep_seen(&self, circuit: &CircuitId, seen: Seen) -> bool {
        let is_new = lock(&self.seen).insert(circuit.clone(), seen).is_none();
        if is_new {
            let mut doubts = lock(&self.doubts);
            let doubted = doubts.get(circuit).and_then(|doubts| doubts.digest);
            if doubted == Some(seen.digest) {
                doubts.remove(circuit);
            }
        }
        is_new
    }

    /// Whether it was doubted, and no survey has found the same rows again.
    pub(crate) fn is_doubted(&self, circuit: &CircuitId) -> bool {
        lock(&self.doubts).contains_key(circuit)
    }

    /// The stored rows are not those of the parts.
    pub(crate) fn differs(&self, circuit: &CircuitId) {
        let whole = Known::Whole(Obstacle::Differs);
        let before = self.known().insert(circuit.clone(), whole);
        // Its reservation is given back without the lock.
        drop(before);
    }

    /// Gives up the template of a circuit, if there is one or was until it was reclaimed:
    /// until it is surveyed anew, or for good if that has found other rows before. How often
    /// it was doubted since its rows were last found to be the same. A template that several
    /// parts doubt is doubted once.
    pub(crate) fn doubt(&self, circuit: &CircuitId) -> Option<u32> {
        let seen = lock(&self.seen).remove(circuit);
        let mut known = self.known();
        let digest = match known.get(circuit)? {
            Known::Cut(cut) => Some(cut.template.digest()),
            Known::Reclaimed => seen.map(|seen| seen.digest),
            Known::Surveyed | Known::Doubted | Known::Whole(_) => return None,
        };
        let mut doubts = lock(&self.doubts);
        let doubts = doubts.entry(circuit.clone()).or_default();
        doubts.digest = digest;
        doubts.count += 1;
        let count = doubts.count;
        let next = if count < DOUBTS_MAX {
            Known::Doubted
        } else {
            Known::Whole(Obstacle::Doubted)
        };
        let before = known.insert(circuit.clone(), next);
        // Its reservation is given back without the lock.
        drop(known);
        drop(before);
        Some(count)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<CircuitId, Known>> {
        lock(&self.known)
    }

    /// Templates that no part uses, the largest first.
    fn idle(known: &HashMap<CircuitId, Known>) -> Vec<(u64, CircuitId)> {
        let mut idle: Vec<_> = known
            .iter()
            .filter_map(|(circuit, known)| match known {
                Known::Cut(cut) if Arc::strong_count(cut) == 1 => {
                    Some((cut.held.bytes(), circuit.clone()))
                }
                _ => None,
            })
            .collect();
        idle.sort_by(|left, right| right.cmp(left));
        idle
    }
}

impl Reclaim for Templates {
    fn idle_bytes(&self) -> u64 {
        Self::idle(&self.known())
            .iter()
            .map(|(bytes, _)| bytes)
            .sum()
    }

    fn reclaim(&self, wanted_bytes: u64) -> u64 {
        let mut freed = 0;
        let mut dropped = Vec::new();
        let mut known = self.known();
        for (bytes, circuit) in Self::idle(&known) {
            if freed >= wanted_bytes {
                break;
            }
            freed += bytes;
            dropped.extend(known.insert(circuit, Known::Reclaimed));
        }
        // Their reservations are given back without the lock.
        drop(known);
        drop(dropped);
        freed
    }
}

/// The right to survey a circuit. Dropped without an answer, the next part surveys it.
pub(crate) struct Surveying<'a> {
    templates: &'a Templates,
    circuit: CircuitId,
    is_done: bool,
}

impl Surveying<'_> {
    /// Memory for a survey, if there is room now: a part that holds its columns waits for
    /// nothing. It could do without, so that it takes no memory from parts of the highest
    /// priority.
    ///
    /// # Errors
    /// What was asked and what there is.
    pub(crate) fn memory(
        &self,
        part: Option<&mut Reservation>,
        bytes: u64,
    ) -> Result<Reservation, BudgetError> {
        let Some(part) = part else {
            return self.templates.budget.try_reserve(TEMPLATES, bytes);
        };
        part.grow_below_highest(bytes)?;
        let mut memory = part.split(bytes).expect("it grew by as much");
        memory.reassign(TEMPLATES);
        Ok(memory)
    }

    /// The circuit is cut.
    pub(crate) fn cut(
        mut self,
        template: Template,
        shape: Arc<CircuitShape>,
        mut held: Reservation,
    ) -> InUse {
        let excess = held.bytes().saturating_sub(template.bytes());
        held.shrink(excess).expect("no more than it holds");
        let cut = Arc::new(CutCircuit {
            template,
            shape,
            held,
        });
        let in_use = InUse::new(Arc::clone(&cut), self.templates);
        self.end(Known::Cut(cut));
        in_use
    }

    /// All parts of the circuit are synthesised whole.
    pub(crate) fn whole(mut self, obstacle: Obstacle) {
        self.end(Known::Whole(obstacle));
    }

    fn end(&mut self, known: Known) {
        self.is_done = true;
        self.templates.known().insert(self.circuit.clone(), known);
    }
}

impl Drop for Surveying<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.templates.known().remove(&self.circuit);
        }
    }
}
