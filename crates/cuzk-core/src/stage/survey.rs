//! The survey: whether a circuit repeats where it is said to, found out at its first part
//! or before the first job.
//!
//! At its first part it is the work of one thread: the others have parts of their own. Before
//! the first job they have not, and where a circuit says that its first block tells the
//! others, that is read by one thread, and then all compare the others with it. One that is a
//! loop over blank blocks is compared with as many as tell that, at its first part too. What
//! is kept is the same, and a circuit of which it is not true is surveyed whole, which says
//! why.

use bellpepper_core::SynthesisError;
use cuzk_budget::{BudgetError, Reservation};
use cuzk_gpu::{CColumn, Key};
use cuzk_synth::{Comparison, Cut, CutHint, Extend, Pass, SynthError, Template, Uncut, survey};

use super::{Job, Shared, refused, sizes_from_key};
use crate::config::{Sizing, Synthesis};
use crate::crew::Unfinished;
use crate::error::Failure;
use crate::schedule::Priority;
use crate::shapes::circuit_shape;
use crate::templates::{Found, InUse, Seen, Surveying};
use crate::workload::{COMPARED_BLOCKS, shortened, uniform_blocks};
use crate::{BlankCircuit, CircuitId, CircuitSpec, Obstacle};

/// Bytes that a survey may take, and a template at the most: twice what a challenge of a
/// 32 GiB PoRep takes with C while its lists grow.
const SURVEY_BYTES_MAX: u64 = 1 << 30;

/// And at the least.
const SURVEY_BYTES_MIN: u64 = 1 << 16;

/// Bytes that a row takes at the most, on the average, in the circuits that are known.
const BYTES_PER_ROW: u64 = 160;

/// Threads that compare blocks of one circuit, at the most. Each reads the whole circuit beside
/// its share, which one more of so many makes hardly shorter.
const WALKS_MAX: usize = 16;

/// A circuit as what it repeats, or why it is synthesised whole.
pub(super) type Known = Result<InUse, Obstacle>;

/// Why parts of circuits that repeat are not synthesised in segments, or that they are.
pub(crate) fn asked(shared: &Shared) -> Result<bool, Obstacle> {
    match (shared.tuning.synthesis, shared.tuning.sizing) {
        (Synthesis::Whole, _) => Ok(false),
        (Synthesis::Segments, Sizing::Growing) => Err(Obstacle::Growing),
        (Synthesis::Segments, Sizing::Exact) => Ok(true),
    }
}

/// Stores the rows of a circuit before a part of it asks for them, by a thread of the crew and
/// those that are free. None if they are not asked for, or cannot be stored, which is told:
/// its first part will meet the same.
pub(crate) fn store(shared: &Shared, circuit: &dyn CircuitSpec, key: &Key) -> Option<InUse> {
    let (Ok(true), Some(cut)) = (asked(shared), circuit.cut()) else {
        return None;
    };
    let id = circuit.id();
    let known = match shared.templates.find(&id) {
        Found::Cut(cut) => Ok(Ok(cut)),
        Found::Whole(obstacle) => Ok(Err(obstacle)),
        Found::Unknown(surveying) => {
            let look = Look {
                shared,
                circuit,
                key,
                part: 0,
                cut,
                job: None,
            };
            look.find_out(surveying, None)
        }
    };
    let reason = match known {
        Ok(Ok(cut)) => return Some(cut),
        Ok(Err(obstacle)) => obstacle.to_string(),
        Err(failure) => failure.error.to_string(),
    };
    tracing::warn!(circuit = %id, reason, "its rows are not stored before the first job");
    None
}

/// A circuit to be surveyed.
pub(super) struct Look<'a> {
    pub(super) shared: &'a Shared,
    pub(super) circuit: &'a dyn CircuitSpec,
    pub(super) key: &'a Key,
    /// The part that does it.
    pub(super) part: usize,
    pub(super) cut: Cut,
    /// With which it is given up. Without one it is before the first job, and on a thread of
    /// the crew.
    pub(super) job: Option<&'a Job>,
}

impl Look<'_> {
    /// Surveys the circuit, and keeps what was found. `work` is what the part holds.
    pub(super) fn find_out(
        &self,
        surveying: Surveying<'_>,
        work: Option<&mut Reservation>,
    ) -> Result<Known, Failure> {
        let Self { shared, key, .. } = *self;
        let id = self.circuit.id();
        let hint = shared.shapes.cut(&id);
        if let Some(CutHint::Uncut(reason)) = hint {
            tracing::info!(circuit = %id, reason, "synthesised whole, as an earlier survey found");
            surveying.whole(Obstacle::Differs);
            return Ok(Err(Obstacle::Differs));
        }
        let (template, memory) = match self.with_memory(&surveying, work, hint)? {
            Surveyed::Repeats(template, memory) => (*template, memory),
            Surveyed::NoMemory(refused) => {
                if let Some(error) = refused {
                    tell_no_memory(&id, &error);
                }
                return Ok(Err(Obstacle::NoMemory));
            }
            // The bound is the key's, which may be another circuit's: nothing that a later
            // process should believe.
            Surveyed::Uncut(uncut @ Uncut::TooLarge { .. }) => {
                let reason = uncut.to_string();
                tracing::warn!(circuit = %id, reason, "synthesised whole: its rows are not stored");
                surveying.whole(Obstacle::NoMemory);
                return Ok(Err(Obstacle::NoMemory));
            }
            Surveyed::Uncut(uncut) => {
                self.refuse(uncut.to_string());
                surveying.whole(Obstacle::Differs);
                return Ok(Err(Obstacle::Differs));
            }
        };
        let (sizes, densities) = (template.sizes(), template.densities());
        let shape = shared
            .shapes
            .learn(&id, self.part, &sizes, &densities, key)
            .map_err(Failure::fatal)?;
        let seen = Seen {
            blocks: template.blocks(),
            is_uniform: template.is_uniform(),
            digest: template.digest(),
        };
        let (blocks, bytes) = (seen.blocks, template.bytes());
        tracing::info!(circuit = %id, blocks, bytes, "the circuit repeats, and is stored once");
        // One of the first block alone takes less.
        if shared.templates.keep_seen(&id, seen) {
            let survey_bytes = template.survey_bytes();
            let repeats = CutHint::Repeats { survey_bytes };
            shared.shapes.keep_cut(&id, Some(repeats));
        }
        Ok(Ok(surveying.cut(template, shape, memory)))
    }

    /// Says that the circuit does not repeat, and remembers it.
    pub(super) fn refuse(&self, reason: String) {
        let id = self.circuit.id();
        self.shared.metrics.cuts_refused.add(1);
        tracing::warn!(circuit = %id, reason, "synthesised whole: the circuit is not cut");
        self.shared
            .shapes
            .keep_cut(&id, Some(CutHint::Uncut(reason)));
    }

    /// Surveys in as much memory as an earlier one took or, if that is not known or too
    /// little, as much as any could take, or half or a quarter of it.
    fn with_memory(
        &self,
        surveying: &Surveying<'_>,
        mut work: Option<&mut Reservation>,
        hint: Option<CutHint>,
    ) -> Result<Surveyed, Failure> {
        let rows = sizes_from_key(self.key).constraints as u64;
        let bound = rows.saturating_mul(BYTES_PER_ROW);
        let bound = bound.clamp(SURVEY_BYTES_MIN, SURVEY_BYTES_MAX);
        let mut too_few = 0;
        let mut refused = None;
        if let Some(CutHint::Repeats { survey_bytes }) = hint {
            // The file may say too much, or too little.
            let bytes = survey_bytes.max(SURVEY_BYTES_MIN);
            if bytes < bound
                && let Ok(memory) = surveying.memory(work.as_deref_mut(), bytes)
            {
                match self.survey(memory)? {
                    Surveyed::Uncut(Uncut::TooLarge { .. }) => too_few = bytes,
                    surveyed => return Ok(surveyed),
                }
            }
        }
        // What was too little would be so again.
        let asks = [bound, bound / 2, bound / 4].into_iter();
        let mut asks = asks.filter(|&bytes| bytes > too_few);
        let memory = asks.find_map(|bytes| {
            let memory = surveying.memory(work.as_deref_mut(), bytes);
            memory.map_err(|error| refused = Some(error)).ok()
        });
        let Some(memory) = memory else {
            return Ok(Surveyed::NoMemory(refused));
        };
        let is_less = memory.bytes() < bound;
        Ok(match self.survey(memory)? {
            // With more, it might not be.
            Surveyed::Uncut(Uncut::TooLarge { .. }) if is_less => Surveyed::NoMemory(refused),
            surveyed => surveyed,
        })
    }

    /// By the first block alone, if an earlier survey of the whole found that it tells the
    /// rest, and it is the one that it saw; or by that and those who compare the rest with it.
    fn survey(&self, memory: Reservation) -> Result<Surveyed, Failure> {
        let id = self.circuit.id();
        let seen = self.shared.templates.seen(&id);
        let is_doubted = self.shared.templates.is_doubted(&id);
        let found = match seen {
            Some(seen) if seen.is_uniform => {
                let blocks = seen.blocks;
                let found = self.look(Extend::FirstBlock { blocks }, &memory)?.ok();
                found.filter(|template| template.digest() == seen.digest)
            }
            // What is doubted is not told by less than the whole.
            None if !is_doubted => self.compared(&memory)?,
            _ => None,
        };
        let found = match found {
            Some(template) => template.trimmed(self.with_c()),
            None => {
                let found = self.look(Extend::Whole, &memory)?;
                if is_doubted {
                    self.shared.shapes.forget(&id);
                }
                found
            }
        };
        Ok(match found {
            Ok(template) => Surveyed::Repeats(Box::new(template), memory),
            Err(uncut) => Surveyed::Uncut(uncut),
        })
    }

    /// The first block, if the circuit says that it tells the others and that is found to be
    /// so. Walks hold a row each, in what is reserved for the survey: of that its lists leave
    /// something when they do not grow any more.
    fn compared(&self, memory: &Reservation) -> Result<Option<Template>, Failure> {
        let Some(blocks) = uniform_blocks(self.circuit) else {
            return Ok(None);
        };
        let short = shortened(self.circuit, blocks);
        // By several threads before the first job alone, and two can share what comes after
        // two blocks.
        let is_shared = blocks > 2 && self.shared.crew.threads() > 1 && self.job.is_none();
        if short.is_none() && !is_shared {
            return Ok(None);
        }
        let Ok(template) = self.look(Extend::FirstBlock { blocks }, memory)? else {
            return Ok(None);
        };
        let failed = |source| refused(self.part, source);
        let comparison = Comparison::new(&template, self.cut).map_err(failed)?;
        let free_bytes = memory.bytes().saturating_sub(template.bytes());
        let is_equal = match short {
            Some(blank) => self.compare_short(&template, comparison, blank, free_bytes)?,
            None => self.compare_all(&comparison, blocks, free_bytes)?,
        };
        Ok(is_equal.then_some(template))
    }

    /// By this thread, which reads four blocks in all. Where the whole is not what its key
    /// says, reading all of it is to tell which of them is wrong; and what the short circuit
    /// refuses says nothing of the whole.
    fn compare_short(
        &self,
        template: &Template,
        comparison: Comparison<'_>,
        blank: BlankCircuit<'_>,
        free_bytes: u64,
    ) -> Result<bool, Failure> {
        let shape = circuit_shape(&template.sizes(), &template.densities());
        let fits = self.key.check_shape(&shape).is_ok();
        if !fits || free_bytes < comparison.walk_bytes() as u64 {
            return Ok(false);
        }
        let comparison = comparison.with_blocks(COMPARED_BLOCKS);
        let walked = comparison.walk(|pass| self.synthesize(&blank, pass));
        match walked {
            Ok(()) => {}
            Err(SynthError::Circuit(error)) => {
                let (circuit, blocks) = (self.circuit.id(), COMPARED_BLOCKS);
                tracing::warn!(%circuit, blocks, %error, "not with so few blocks: surveyed whole");
                return Ok(false);
            }
            Err(source) => return Err(refused(self.part, source)),
        }
        Ok(comparison.is_equal())
    }

    /// By all threads that are free.
    fn compare_all(
        &self,
        comparison: &Comparison<'_>,
        blocks: usize,
        free_bytes: u64,
    ) -> Result<bool, Failure> {
        let crew = &self.shared.crew;
        let walk_bytes = comparison.walk_bytes() as u64;
        let threads = walks(blocks, crew.threads(), free_bytes, walk_bytes);
        if threads == 0 {
            return Ok(false);
        }
        let walk = |_, ()| comparison.walk(|pass| self.circuit.synthesize_blank(pass));
        let walked = crew.run_within(Priority::default, vec![(); threads], || false, walk);
        walked.map_err(|unfinished| {
            let source = match unfinished {
                Unfinished::Stopped => SynthError::GivenUp,
                Unfinished::Failed(source) => source,
            };
            refused(self.part, source)
        })?;
        let is_equal = comparison.is_equal();
        tracing::debug!(circuit = %self.circuit.id(), threads, blocks, is_equal, "blocks were compared");
        Ok(is_equal)
    }

    /// Whether C is evaluated from stored rows.
    fn with_c(&self) -> bool {
        self.shared.backends.any().c_column() == CColumn::Synthesised
    }

    fn look(
        &self,
        extend: Extend,
        memory: &Reservation,
    ) -> Result<Result<Template, Uncut>, Failure> {
        let limit_bytes = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        let blank = |pass: &mut Pass<'_>| self.circuit.synthesize_blank(pass);
        let circuit = |pass: &mut Pass<'_>| self.synthesize(blank, pass);
        survey(self.cut, extend, self.with_c(), limit_bytes, circuit)
            .map_err(|source| refused(self.part, source))
    }

    /// Synthesises until the job ends, if there is one.
    fn synthesize(
        &self,
        blank: impl Fn(&mut Pass<'_>) -> Result<(), SynthesisError>,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        if let Some(job) = self.job {
            job.ends(pass);
        }
        blank(pass)
    }
}

/// Threads that compare blocks of one circuit with the first, no more than there is memory
/// for.
fn walks(blocks: usize, threads: usize, free_bytes: u64, walk_bytes: u64) -> usize {
    let fitting = free_bytes / walk_bytes.max(1);
    let most = blocks.saturating_sub(1).min(threads).min(WALKS_MAX);
    most.min(usize::try_from(fitting).unwrap_or(usize::MAX))
}

/// What came of a survey.
enum Surveyed {
    Repeats(Box<Template>, Reservation),
    Uncut(Uncut),
    /// With the least that was asked for and refused.
    NoMemory(Option<BudgetError>),
}

/// Says what a circuit's stored rows, or the survey for them, asked of the budget.
pub(super) fn tell_no_memory(circuit: &CircuitId, error: &BudgetError) {
    tracing::warn!(
        %circuit,
        %error,
        "no memory (memory.limit) for what the circuit repeats"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_share_a_survey_as_have_memory_and_a_block() {
        for (free_bytes, count) in [(99, 0), (100, 1), (199, 1), (200, 2), (u64::MAX, 5)] {
            assert_eq!(walks(18, 5, free_bytes, 100), count, "{free_bytes} bytes");
        }
        let of = |blocks, threads| walks(blocks, threads, u64::MAX, 100);
        assert_eq!((of(3, 8), of(18, 1), of(18, 200)), (2, 1, WALKS_MAX));
        assert_eq!(of(1, 8), 0, "nothing is left to compare");
    }
}
