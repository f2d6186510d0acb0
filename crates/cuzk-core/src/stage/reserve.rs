//! Reserve: one request for the columns of a part and the bytes of its proof.

use cuzk_budget::{CancelToken, Consumer, Priority as BudgetPriority, Wait};
use cuzk_gpu::{CircuitSizes, Column, ColumnLayout, Columns, Key, Section};
use cuzk_pinned::{AcquireError, AcquireRequest};
use cuzk_synth::{Sizes, count};

use super::{Job, Reserved, Shared, refused};
use crate::CircuitSpec;
use crate::config::KeyTier;
use crate::error::{Failure, ProveError};
use crate::keystore::KeyLease;
use crate::memory::PartMemory;
use crate::placement::{Granted, PlacementError, Waits};
use crate::schedule::Priority;
use crate::shapes::to_circuit_sizes;

/// On whom the columns and working memory of parts are booked.
const PARTS: Consumer = Consumer("parts");

/// Waits for the part's memory, in the budget's order: columns, working memory, and
/// the points of the key if they are to be resident and are not. All of it is one
/// request, so that nobody waits while it holds what others wait for. `outgrown` are
/// the true sizes of a circuit that was larger than its columns.
pub(crate) fn reserve(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
    outgrown: Option<Sizes>,
) -> Result<Reserved, Failure> {
    let sizes = match (outgrown, shared.shapes.sizes(&job.circuit.id())) {
        (Some(sizes), _) => sizes,
        (None, Some(hint)) if fits(key, &hint) => hint,
        (None, Some(_)) => recount(job, key, part)?,
        (None, None) => sizes_from_key(key),
    };
    let ask = Ask {
        shared,
        job,
        key,
        part,
        sizes: to_circuit_sizes(&sizes),
    };
    // Before anything expensive begins.
    let able = shared.backends.able(&ask.sizes, key);
    able.map_err(Failure::fatal)?;
    let (granted, lease) = match shared.tuning.key_tier {
        KeyTier::File => (ask.wait(Points::InFile)?, None),
        KeyTier::Resident => ask.resident()?,
        KeyTier::Auto => ask.resident_if_room()?,
    };
    let layout = shared.backends.any().layout(&ask.sizes);
    let Granted {
        acquired,
        way,
        refused,
    } = granted;
    if let Some(reason) = refused {
        shared.tell_refused(job, part, &reason);
    }
    Ok(Reserved {
        columns: Columns::from_buffers(acquired.buffers, &layout),
        work: acquired.reservation,
        lease,
        way,
        is_resized: outgrown.is_some(),
    })
}

/// Where the points of the key are once a request is granted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Points {
    /// In the file: a section at a time is decoded into working memory.
    InFile,
    /// In memory already.
    Resident,
    /// They come into memory that this request asks for.
    ToLoad,
}

/// What a part asks for.
struct Ask<'a> {
    shared: &'a Shared,
    job: &'a Job,
    key: &'a Key,
    part: usize,
    sizes: CircuitSizes,
}

impl Ask<'_> {
    /// Points in memory, whatever that takes.
    fn resident(&self) -> Result<(Granted, Option<KeyLease>), Failure> {
        if self.is_resident()
            && let Some(held) = self.leased()?
        {
            return Ok(held);
        }
        Ok(self.with_points(self.wait(Points::ToLoad)?))
    }

    /// Points in memory if they are there, or have room now within their share of it; and
    /// otherwise in the file.
    fn resident_if_room(&self) -> Result<(Granted, Option<KeyLease>), Failure> {
        if self.is_resident() {
            if let Some(held) = self.leased()? {
                return Ok(held);
            }
        } else if self.shared.keys.make_share(self.key) {
            match self.acquire(Points::ToLoad, Waits::No) {
                Err(Failure {
                    error: ProveError::Memory { .. },
                    ..
                }) => {}
                granted => return Ok(self.with_points(granted?)),
            }
        }
        self.shared.metrics.tiers_lowered.add(1);
        let circuit = self.job.circuit.id();
        tracing::info!(%circuit, "no room for the points of the key: they stay in its file");
        Ok((self.wait(Points::InFile)?, None))
    }

    fn lease(&self) -> Option<KeyLease> {
        self.shared.keys.lease(&self.job.circuit.id(), self.key)
    }

    fn is_resident(&self) -> bool {
        self.lease().is_some()
    }

    /// Memory beside points that are there; none if they were reclaimed while this part waited,
    /// which holds nothing meanwhile.
    fn leased(&self) -> Result<Option<(Granted, Option<KeyLease>)>, Failure> {
        let granted = self.wait(Points::Resident)?;
        Ok(self.lease().map(|lease| (granted, Some(lease))))
    }

    /// Memory for the points of the key apart from the part's own.
    fn with_points(&self, mut granted: Granted) -> (Granted, Option<KeyLease>) {
        let points = granted
            .acquired
            .reservation
            .split(self.key.resident_bytes())
            .expect("the request asked for them");
        let id = self.job.circuit.id();
        let lease = self.shared.keys.make_room(&id, self.key, points);
        (granted, Some(lease))
    }

    /// Working memory of the proof, with the points where they are.
    fn work_bytes(&self, points: Points) -> u64 {
        let tier = match points {
            Points::InFile => cuzk_gpu::KeyTier::File,
            Points::Resident | Points::ToLoad => cuzk_gpu::KeyTier::Resident,
        };
        let backend = self.shared.backends.any();
        backend.work_bytes(&self.sizes, self.key, tier)
    }

    fn wait(&self, points: Points) -> Result<Granted, Failure> {
        self.acquire(points, Waits::Yes)
    }

    fn acquire(&self, points: Points, waits: Waits) -> Result<Granted, Failure> {
        let standing = &self.job.standing;
        standing.ask(|priority, over| self.acquire_at(priority, over, points, waits))
    }

    /// With a priority, until the wait is over.
    fn acquire_at(
        &self,
        priority: Priority,
        over: &CancelToken,
        points: Points,
        waits: Waits,
    ) -> Result<Granted, Failure> {
        let Self {
            shared,
            job,
            key,
            part,
            sizes,
        } = *self;
        let lens = column_lens(&shared.backends.any().layout(&sizes));
        let to_load = match points {
            Points::InFile | Points::Resident => 0,
            Points::ToLoad => key.resident_bytes(),
        };
        let request = AcquireRequest {
            buffers: &lens,
            bytes: self.work_bytes(points).saturating_add(to_load),
            consumer: PARTS,
            wait: Wait::with_priority(budget_priority(priority)).cancelled_by(over),
        };
        let what = if to_load > 0 {
            "a part and its key"
        } else {
            "a part"
        };
        let priority = budget_priority(priority);
        let asked_bytes = shared
            .placing
            .check(&shared.memory, PARTS, &lens, request.bytes, priority)
            .map_err(|source| Failure::fatal(ProveError::Memory { what, source }))?;
        let waiting = shared.waits.enter(&job.label, part, "reserve", asked_bytes);
        let granted = shared.placing.acquire(&shared.memory, &request, waits);
        drop(waiting);
        granted.map_err(|error| {
            Failure::fatal(match error {
                PlacementError::Memory(AcquireError::Budget(source))
                    if job.standing.is_given_up() =>
                {
                    tracing::debug!(%source, part, "the wait for memory was given up");
                    ProveError::Cancelled
                }
                PlacementError::Memory(AcquireError::Budget(source)) => {
                    ProveError::Memory { what, source }
                }
                PlacementError::Memory(source) => ProveError::Allocation { part, source },
                PlacementError::PageLocked(source) => ProveError::PageLocked { part, source },
            })
        })
    }
}

/// Whether a hint agrees with the key. It comes from a file, so that its numbers may
/// be anything: the constraints are compared before a domain is made of them.
fn fits(key: &Key, hint: &Sizes) -> bool {
    hint.constraints <= sizes_from_key(key).constraints
        && key.check_sizes(&to_circuit_sizes(hint)).is_ok()
}

/// Bytes that a part of a circuit takes, columns and working memory together, as far
/// as its hint or its key can tell. What is kept for the highest priority is there for
/// circuits alone that are urgent.
///
/// # Errors
/// [`ProveError::Memory`] if the budget could never grant them, [`ProveError::TooLarge`]
/// if no backend could prove the circuit with them, and [`ProveError::OutOfService`].
pub(crate) fn check_fits(
    shared: &Shared,
    circuit: &dyn CircuitSpec,
    key: &Key,
) -> Result<u64, ProveError> {
    let sizes = foreseen(shared, circuit, key);
    shared.backends.able(&sizes, key)?;
    let memory = PartMemory::of(shared.backends.any(), &sizes, key, shared.tuning.key_tier);
    let lens = column_lens(&shared.backends.any().layout(&sizes));
    let bytes = memory.work_bytes.saturating_add(memory.key_bytes);
    let priority = match circuit.is_urgent() {
        true => BudgetPriority::HIGHEST,
        false => BudgetPriority::NORMAL,
    };
    let placing = &shared.placing;
    let checked = placing.check(&shared.memory, PARTS, &lens, bytes, priority);
    checked.map_err(|source| ProveError::Memory {
        what: "a part",
        source,
    })
}

/// Bytes of each column.
fn column_lens(layout: &ColumnLayout) -> Vec<usize> {
    let lens = layout.lens().into_iter();
    // What overflows is more than any budget has, and refused as such.
    lens.map(|len| Column::bytes(len).unwrap_or(usize::MAX))
        .collect()
}

/// The columns of a part of a circuit and its working memory, as far as its hint or
/// its key can tell.
pub(crate) fn need(shared: &Shared, circuit: &dyn CircuitSpec, key: &Key) -> (ColumnLayout, u64) {
    let sizes = foreseen(shared, circuit, key);
    let tier = match shared.tuning.key_tier {
        KeyTier::Resident => cuzk_gpu::KeyTier::Resident,
        KeyTier::File | KeyTier::Auto => cuzk_gpu::KeyTier::File,
    };
    let work_bytes = shared.backends.any().work_bytes(&sizes, key, tier);
    (shared.backends.any().layout(&sizes), work_bytes)
}

/// The sizes of a circuit by its hint, or by its key if there is none or the key
/// contradicts it.
fn foreseen(shared: &Shared, circuit: &dyn CircuitSpec, key: &Key) -> CircuitSizes {
    let hint = shared.shapes.sizes(&circuit.id());
    hint.map(|hint| to_circuit_sizes(&hint))
        .filter(|sizes| key.check_sizes(sizes).is_ok())
        .unwrap_or_else(|| to_circuit_sizes(&sizes_from_key(key)))
}

/// Key and hint disagree, and neither is believed: the circuit is counted. A key of
/// another circuit is told here, before anything is synthesised with a witness.
fn recount(job: &Job, key: &Key, part: usize) -> Result<Sizes, Failure> {
    let counted = count(|pass| {
        job.ends(pass);
        job.circuit.synthesize_blank(pass)
    })
    .map_err(|source| refused(part, source))?;
    key.check_sizes(&to_circuit_sizes(&counted.sizes))
        .map_err(Failure::fatal)?;
    Ok(counted.sizes)
}

/// Before a shape is known its key bounds it: inputs and auxiliary variables are
/// exact, the constraints are at most the domain.
pub(crate) fn sizes_from_key(key: &Key) -> Sizes {
    Sizes {
        inputs: key.count(Section::Ic),
        aux: key.count(Section::L),
        constraints: key.count(Section::H) + 1,
    }
}

/// The budget's word for a priority.
pub(crate) fn budget_priority(priority: Priority) -> BudgetPriority {
    match priority {
        Priority::Low => BudgetPriority::LOWEST,
        Priority::Normal => BudgetPriority::NORMAL,
        Priority::High => BudgetPriority(192),
        Priority::Critical => BudgetPriority::HIGHEST,
    }
}
