//! Circuits that repeat, each stored once and counted in the budget.
//!
//! A circuit is surveyed when its first part is synthesised. While one part surveys it,
//! others are synthesised whole; nobody waits. Templates that no part uses can be
//! reclaimed, and come back with the next part, from the first block alone if a survey
//! of this process found that it tells the rest. A file is not believed in that: what it
//! says could cost proofs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use cuzk_budget::{Budget, Consumer, Reclaim, Reservation};
use cuzk_gpu::CircuitShape;
use cuzk_synth::{CutHint, Template};

use crate::CircuitId;
use crate::lock::lock;

/// On whom stored rows are booked.
const TEMPLATES: Consumer = Consumer("templates");

/// Bytes that a survey may take for rows, and a template at the most: twice what a
/// challenge of a 32 GiB PoRep takes with C while its vectors grow.
const SURVEY_BYTES_MAX: u64 = 1 << 30;

/// Bytes that a row takes at the most, on the average, in the circuits that are known.
const BYTES_PER_ROW: u64 = 160;

/// A template with the shape of its circuit.
pub(crate) struct CutCircuit {
    pub(crate) template: Template,
    pub(crate) shape: Arc<CircuitShape>,
    /// Counts the stored rows.
    held: Reservation,
}

/// The templates of all circuits.
pub(crate) struct Templates {
    budget: Budget,
    known: Mutex<HashMap<CircuitId, Known>>,
    /// What surveys of whole circuits found.
    found: Mutex<HashMap<CircuitId, CutHint>>,
    /// How often each was doubted.
    doubts: Mutex<HashMap<CircuitId, u32>>,
}

/// Doubts after which a circuit is not surveyed again.
const DOUBTS_MAX: u32 = 2;

enum Known {
    /// A part is surveying it.
    Surveyed,
    Cut(Arc<CutCircuit>),
    /// It is not cut.
    Whole,
    /// It was, and the next part is synthesised whole.
    Doubted,
}

/// How a part is to be synthesised.
pub(crate) enum Found<'a> {
    Cut(Arc<CutCircuit>),
    /// Whole: it is not cut.
    Whole,
    /// Whole, since another part is finding out.
    Surveyed,
    /// This part is to find out.
    Unknown(Surveying<'a>),
}

impl Templates {
    pub(crate) fn new(budget: Budget) -> Arc<Self> {
        let this = Arc::new(Self {
            budget,
            known: Mutex::default(),
            found: Mutex::default(),
            doubts: Mutex::default(),
        });
        let weak = Arc::downgrade(&this);
        this.budget.add_reclaimer(weak);
        this
    }

    pub(crate) fn find(&self, circuit: &CircuitId) -> Found<'_> {
        let mut known = self.known();
        match known.get(circuit) {
            Some(Known::Cut(cut)) => Found::Cut(Arc::clone(cut)),
            Some(Known::Surveyed) => Found::Surveyed,
            Some(Known::Whole) => Found::Whole,
            Some(Known::Doubted) => {
                known.remove(circuit);
                Found::Whole
            }
            None => {
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
    pub(crate) fn found(&self, circuit: &CircuitId) -> Option<CutHint> {
        lock(&self.found).get(circuit).cloned()
    }

    /// Keeps what a survey found.
    pub(crate) fn keep_found(&self, circuit: &CircuitId, found: CutHint) {
        lock(&self.found).insert(circuit.clone(), found);
    }

    /// Gives up the template of a circuit, if there is one: until it is surveyed anew, or
    /// for good. How often it was doubted.
    pub(crate) fn doubt(&self, circuit: &CircuitId) -> Option<u32> {
        lock(&self.found).remove(circuit);
        let mut known = self.known();
        if !matches!(known.get(circuit), Some(Known::Cut(_))) {
            return None;
        }
        let mut doubts = lock(&self.doubts);
        let count = doubts.entry(circuit.clone()).or_default();
        *count += 1;
        let next = if *count < DOUBTS_MAX {
            Known::Doubted
        } else {
            Known::Whole
        };
        let before = known.insert(circuit.clone(), next);
        // Its reservation is given back without the lock.
        drop(known);
        drop(before);
        Some(*count)
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
            dropped.extend(known.remove(&circuit));
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
    /// Memory for a survey of a circuit of so many rows, if there is room now: a part
    /// that holds its columns waits for nothing.
    pub(crate) fn memory(&self, rows: usize) -> Option<Reservation> {
        let bytes = (rows as u64).saturating_mul(BYTES_PER_ROW);
        let bytes = bytes.clamp(1 << 20, SURVEY_BYTES_MAX);
        self.templates.budget.try_reserve(TEMPLATES, bytes).ok()
    }

    /// The circuit is cut.
    pub(crate) fn cut(
        mut self,
        template: Template,
        shape: Arc<CircuitShape>,
        mut held: Reservation,
    ) -> Arc<CutCircuit> {
        let excess = held.bytes().saturating_sub(template.bytes());
        held.shrink(excess).expect("no more than it holds");
        let cut = Arc::new(CutCircuit {
            template,
            shape,
            held,
        });
        self.end(Known::Cut(Arc::clone(&cut)));
        cut
    }

    /// The circuit is not cut.
    pub(crate) fn whole(mut self) {
        self.end(Known::Whole);
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
