//! Columns by plan, and the rows of circuits that repeat: allocated and stored before the
//! first job, so that no job does.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuzk_budget::{BudgetError, Consumer, Factor, Plan};
use cuzk_gpu::{ColumnLayout, Key};

use super::Engine;
use super::kept::Kept;
use super::table::Message;
use super::thread::panic_message;
use crate::CircuitSpec;
use crate::config::KeyTier;
use crate::error::ProveError;
use crate::keystore::KEYS;
use crate::schedule::Priority;
use crate::stage;
use crate::templates::{InUse, TEMPLATES};

/// What is planned, by the names in the plan.
const COLUMNS: Consumer = Consumer("columns");
const WORK: Consumer = Consumer("work");
const KEPT: Consumer = Consumer("kept for the highest priority");
const BACKEND: Consumer = Consumer("backend's buffers");

const BYTES_PER_SCALAR: u64 = size_of::<blstrs::Scalar>() as u64;

/// What parts of one circuit take.
struct Need {
    key: Arc<Key>,
    layout: ColumnLayout,
    work_bytes: u64,
    /// As many as may be in flight.
    parts_max: usize,
    /// Whether memory for one is kept.
    is_urgent: bool,
}

impl Engine {
    /// Allocates the columns of circuits before a job asks for them: for each circuit
    /// those of as many parts as may be in flight, or as many as fit. After it, parts
    /// of these circuits allocate no column, and what a device keeps of a circuit that
    /// repeats, beside its key, is there. Returns the plan that it carried out, with one
    /// line a consumer.
    ///
    /// Circuits that repeat are surveyed first; their stored rows have a line in the plan.
    /// A survey takes one thread as long as one synthesis of the blank circuit. Where the
    /// circuit says how many blocks it has ([`CircuitSpec::segments`]) and that the first
    /// tells the others ([`CircuitSpec::is_uniform`]), that one is read alone, and all threads
    /// that are free share the comparison of the others with it; each of them reads the whole
    /// circuit beside its share, without building its rows. A circuit that is a loop
    /// ([`CircuitSpec::shortened`]) takes the time of a few blocks. Rows for which there is no room
    /// beside the columns of one part are not kept: a warning says so, and parts are
    /// synthesised whole.
    ///
    /// Points of keys that are to be in memory have a line in the plan: all of those that must
    /// be, or the largest where they have no room together and take turns, and those that may
    /// be ([`KeyTier::Auto`](crate::config::KeyTier::Auto)) up to their share. They are not
    /// loaded here: [`preload`](Self::preload) does that, or the first part.
    ///
    /// The columns of one circuit are not those of another, so naming many takes the
    /// sum of them. Sizes come from surveys and capacity hints, or before there are any from
    /// the keys; of key files only the head is read.
    ///
    /// # Errors
    /// As [`check`](Self::check), [`ProveError::Plan`] if not even one part of each
    /// circuit fits, and [`ProveError::Warm`] if memory was refused.
    pub fn warm(&self, circuits: &[&dyn CircuitSpec]) -> Result<Plan, ProveError> {
        let mut needs = self.needs(circuits)?;
        // What can never fit is told before a survey is begun.
        let points_bytes = self.fitting_points(&needs)?;
        let mut stored = self.store(circuits, &needs);
        if !stored.is_empty() {
            // A key bounds the rows by its domain; a survey has counted them.
            needs = self.needs(circuits)?;
        }
        let (plan, parts) = loop {
            match self.fitting(&needs, &stored, points_bytes) {
                Ok(fitting) => break fitting,
                Err(error) => {
                    let Some(dropped) = stored.pop() else {
                        return Err(error);
                    };
                    let bytes = dropped.bytes();
                    tracing::warn!(bytes, "no room for the stored rows of a circuit");
                }
            }
        };
        let lens: Vec<(usize, usize)> = needs
            .iter()
            .flat_map(|need| {
                let parts = parts.min(need.parts_max);
                need.layout.lens().into_iter().map(move |len| (len, parts))
            })
            .filter_map(|(len, parts)| Some((cuzk_gpu::Column::bytes(len)?, parts)))
            .collect();
        let pool = self.shared.placing.pool(&self.shared.memory);
        pool.warm(&lens).map_err(ProveError::Warm)?;
        for cut in &stored {
            self.shared.backends.preload_shape(&cut.shape);
        }
        // One may have been found lost. Fails only if the dispatcher has ended.
        let _ = self.outbox.send(Message::Devices);
        // From here on they may be reclaimed, as idle columns may.
        drop(stored);
        let kept = self.kept(&needs);
        self.shared.keep(kept);
        Ok(plan)
    }

    /// What parts of each circuit take, as far as that is known now.
    fn needs(&self, circuits: &[&dyn CircuitSpec]) -> Result<Vec<Need>, ProveError> {
        circuits
            .iter()
            .map(|circuit| {
                let key = self.shared.keys.counts(*circuit)?;
                stage::check_fits(&self.shared, *circuit, &key)?;
                let (layout, work_bytes) = stage::need(&self.shared, *circuit, &key);
                let parts_max = self.parts_in_flight_max(*circuit);
                Ok(Need {
                    key,
                    layout,
                    work_bytes,
                    parts_max,
                    is_urgent: circuit.is_urgent(),
                })
            })
            .collect()
    }

    /// The stored rows of circuits that repeat, the largest first. A survey that panics
    /// stores nothing, and keeps no other circuit cold.
    fn store(&self, circuits: &[&dyn CircuitSpec], needs: &[Need]) -> Vec<InUse> {
        let shared = &self.shared;
        let pieces = circuits.iter().zip(needs).collect();
        let store = |_, (circuit, need): (&&dyn CircuitSpec, &Need)| {
            let store = || stage::store(shared, *circuit, &need.key);
            let stored = catch_unwind(AssertUnwindSafe(store)).unwrap_or_else(|panic| {
                let (circuit, reason) = (circuit.id(), panic_message(panic.as_ref()));
                tracing::warn!(%circuit, reason, "a survey before the first job panicked");
                None
            });
            Ok::<_, Infallible>(stored)
        };
        let stored = shared.crew.run(Priority::default, pieces, || false, store);
        let stored = stored.expect("nobody stops it, and nothing fails");
        let mut stored: Vec<_> = stored.into_iter().flatten().collect();
        stored.sort_by_key(|cut| std::cmp::Reverse(cut.bytes()));
        stored
    }

    /// Bytes of the points that have room beside one part of each circuit.
    fn fitting_points(&self, needs: &[Need]) -> Result<u64, ProveError> {
        let mut keys: Vec<&Key> = needs.iter().map(|need| need.key.as_ref()).collect();
        keys.sort_by(|left, right| left.path().cmp(right.path()));
        keys.dedup_by(|left, right| left.path() == right.path());
        let points = keys.iter().map(|key| key.resident_bytes());
        let largest = points.clone().max().unwrap_or(0);
        let (all, fewer) = match self.shared.tuning.key_tier {
            KeyTier::Resident => (points.fold(0, u64::saturating_add), largest),
            KeyTier::Auto => {
                let share = self.shared.keys.points_share();
                // Which of them are there changes from job to job; how much they take does not.
                let points = points.filter(|bytes| *bytes <= share);
                (points.fold(0, u64::saturating_add).min(share), 0)
            }
            KeyTier::File => (0, 0),
        };
        if self.fitting(needs, &[], all).is_ok() {
            return Ok(all);
        }
        self.fitting(needs, &[], fewer)?;
        Ok(fewer)
    }

    /// The plan for as many parts as fit beside stored rows, and how many these are.
    fn fitting(
        &self,
        needs: &[Need],
        stored: &[InUse],
        points_bytes: u64,
    ) -> Result<(Plan, usize), ProveError> {
        let max = needs.iter().map(|need| need.parts_max).max().unwrap_or(1);
        // More parts take more, so halving finds the most that fit: `parts` do, and more
        // than `parts_max` do not.
        let mut fitting = match self.fit(needs, stored, points_bytes, max) {
            Ok(plan) => return Ok((plan, max)),
            Err(error) if max == 1 => return Err(error),
            Err(_) => self.fit(needs, stored, points_bytes, 1)?,
        };
        let (mut parts, mut parts_max) = (1, max - 1);
        while parts < parts_max {
            let middle = parts_max - (parts_max - parts) / 2;
            match self.fit(needs, stored, points_bytes, middle) {
                Ok(plan) => (fitting, parts) = (plan, middle),
                Err(_) => parts_max = middle - 1,
            }
        }
        Ok((fitting, parts))
    }

    /// The plan for so many parts, if they fit.
    fn fit(
        &self,
        needs: &[Need],
        stored: &[InUse],
        points_bytes: u64,
        parts: usize,
    ) -> Result<Plan, ProveError> {
        let plan = self.plan(needs, stored, points_bytes, parts as u64)?;
        plan.check()?;
        let columns = self.check_columns(needs, stored, points_bytes, parts as u64);
        columns.map_err(|source| ProveError::Memory {
            what: "the columns of the circuits to be warmed",
            source,
        })?;
        Ok(plan)
    }

    /// What is kept for the highest priority: as configured, or a part of the largest
    /// urgent circuit. Of the memory that columns lie in no more than its columns, where
    /// one is known.
    fn kept(&self, needs: &[Need]) -> Kept {
        let kept = self.shared.kept();
        let pool = self.shared.placing.pool(&self.shared.memory);
        let urgent = needs.iter().filter(|need| need.is_urgent);
        let part = urgent.map(|need| {
            let lens = need.layout.lens().into_iter();
            let capacity = |len| pool.capacity_of(cuzk_gpu::Column::bytes(len)?);
            let columns = lens.filter_map(capacity).map(|bytes| bytes as u64).sum();
            Kept {
                columns,
                total: need.work_bytes.saturating_add(columns),
            }
        });
        match (self.configured, part.reduce(Kept::max)) {
            (_, None) => kept,
            (None, Some(part)) => kept.max(part),
            (Some(configured), Some(part)) => Kept {
                columns: configured.columns.min(part.columns),
                ..configured
            },
        }
    }

    /// One line for each consumer of `parts` parts of each circuit.
    fn plan(
        &self,
        needs: &[Need],
        stored: &[InUse],
        points_bytes: u64,
        parts: u64,
    ) -> Result<Plan, ProveError> {
        let budget = self.budget();
        let mut plan = Plan::new(&*budget.name(), budget.limit_bytes());
        for Need {
            layout, parts_max, ..
        } in needs
        {
            let parts = parts.min(*parts_max as u64);
            let lens = layout.lens();
            let rows = lens.len() as u64 - 1;
            for (columns, len) in [(rows, layout.rows), (1, layout.aux)] {
                let factors = [
                    Factor::new(parts, "parts"),
                    Factor::new(columns, "columns"),
                    Factor::new(len as u64, "scalars"),
                    Factor::new(BYTES_PER_SCALAR, "bytes"),
                ];
                plan.add(COLUMNS, &factors)?;
            }
        }
        // So many parts are in flight in all, whatever their circuits.
        if !needs.is_empty() {
            let bytes = self.work_bytes(needs, stored);
            let factors = [Factor::new(parts, "parts"), Factor::new(bytes, "bytes")];
            plan.add(WORK, &factors)?;
        }
        if points_bytes > 0 {
            plan.add(KEYS, &[Factor::new(points_bytes, "bytes")])?;
        }
        for cut in stored {
            plan.add(TEMPLATES, &[Factor::new(cut.bytes(), "bytes")])?;
        }
        let kept = self.kept(needs).total;
        if kept > 0 {
            plan.add(KEPT, &[Factor::new(kept, "bytes")])?;
        }
        let fixed_bytes = self.shared.memory.fixed_bytes();
        if fixed_bytes > 0 {
            plan.add(BACKEND, &[Factor::new(fixed_bytes, "bytes")])?;
        }
        Ok(plan)
    }

    /// The most that a part takes beside its columns: for its proof or, before, for what its
    /// segments hold at the same time.
    fn work_bytes(&self, needs: &[Need], stored: &[InUse]) -> u64 {
        let threads = self.shared.crew.threads();
        let proofs = needs.iter().map(|need| need.work_bytes);
        let segments = stored.iter().map(|cut| cut.beside_bytes(threads));
        proofs.chain(segments).max().unwrap_or(0)
    }

    /// Whether the columns fit where they are placed, in the pages that they take
    /// there, beside what the backend has for good; and the work and the stored rows
    /// beside them.
    fn check_columns(
        &self,
        needs: &[Need],
        stored: &[InUse],
        points_bytes: u64,
        parts: u64,
    ) -> Result<(), BudgetError> {
        let pool = self.shared.placing.pool(&self.shared.memory);
        let part_bytes = |need: &Need| {
            let lens = need.layout.lens().into_iter();
            let mut bytes = lens.map(|len| pool.capacity_of(cuzk_gpu::Column::bytes(len)?));
            let bytes = bytes.try_fold(0_u64, |sum, bytes| sum.checked_add(bytes? as u64))?;
            bytes.checked_mul(parts.min(need.parts_max as u64))
        };
        let bytes = needs.iter().map(part_bytes);
        let bytes = bytes.reduce(|sum, bytes| sum?.checked_add(bytes?));
        let bytes = bytes.unwrap_or(Some(0)).unwrap_or(u64::MAX);
        let kept = self.kept(needs);
        let bytes = bytes
            .saturating_add(self.shared.memory.fixed_bytes())
            .saturating_add(kept.columns);
        let work_bytes = self.work_bytes(needs, stored).saturating_mul(parts);
        let stored_bytes: u64 = stored.iter().map(|cut| cut.bytes()).sum();
        let beside_bytes = work_bytes
            .saturating_add(stored_bytes)
            .saturating_add(points_bytes)
            .saturating_add(kept.total - kept.columns);
        pool.budget()
            .check_both(COLUMNS, bytes, self.budget(), beside_bytes)
    }
}
