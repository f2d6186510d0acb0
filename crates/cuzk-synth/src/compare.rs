//! The comparison of a circuit with the stored rows of its first block, by several threads.
//!
//! A survey of a whole circuit is the work of one thread. The first block alone tells the
//! stored rows in a fraction of that; whether they are the circuit is found by *walks*. Each
//! reads the blank circuit from its beginning and takes the next block that nobody has
//! taken, whenever it comes to one. A block that it takes is compared row by row, as a survey
//! does; of the others it builds no row, and counts alone. Since every walk comes to every
//! block, none is left out, however many threads there are and whenever they begin: a walk
//! that is alone compares all blocks, and one that comes too late ends at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bellpepper_core::{LinearCombination, SynthesisError};
use blstrs::Scalar;

use crate::allowance::Allowance;
use crate::error::SynthError;
use crate::rows::{Cursor, Origin, SKIPPED, Term, gather, place};
use crate::template::{Extent, Template};
use crate::{Cut, Pass, Sizes, Uncut};

/// Whether a circuit is what a [`Template`] says that it is, found out by any number of
/// threads at the same time. The template is one of the first block
/// ([`Extend::FirstBlock`](crate::Extend::FirstBlock)), which is not compared with itself.
///
/// Memory beside the template: [`walk_bytes`](Self::walk_bytes) for each thread.
#[derive(Debug)]
pub struct Comparison<'a> {
    template: &'a Template,
    cut: Cut,
    /// Of the circuit that is walked.
    blocks: usize,
    walk_bytes: usize,
    /// The first block that no walk has taken.
    next: AtomicUsize,
    /// Blocks that were taken and are like the first one.
    equal: AtomicUsize,
    /// Whether a walk came to the end, and the circuit has no more than it should.
    is_at_end: AtomicBool,
    /// Whether something differs, or a walk ended before its block did: no walk need go on.
    is_in_vain: AtomicBool,
}

impl<'a> Comparison<'a> {
    /// Of a circuit with the same [`Cut`] as that of the survey.
    ///
    /// # Errors
    /// [`SynthError::NoC`] if the template has no rows of C: they are compared too.
    pub fn new(template: &'a Template, cut: Cut) -> Result<Self, SynthError> {
        if !template.has_c() {
            return Err(SynthError::NoC);
        }
        let stored = [template.shared_rows(), template.block_rows()];
        let longest = stored.into_iter().map(|rows| rows.longest()).max();
        let scratch_bytes = longest.unwrap_or(0) * size_of::<Term>();
        Ok(Self {
            template,
            cut,
            blocks: template.blocks(),
            walk_bytes: size_of::<Compare<'_>>() + scratch_bytes,
            next: AtomicUsize::new(1),
            equal: AtomicUsize::new(0),
            is_at_end: AtomicBool::new(false),
            is_in_vain: AtomicBool::new(false),
        })
    }

    /// Of the circuit with fewer blocks than the template has. What it says of the whole is
    /// what whoever makes circuits of either length knows: that they are a loop over their
    /// blocks. At least the first of several, one in the middle and the last should be there.
    ///
    /// # Panics
    /// If that is none, or more than the template has.
    pub fn with_blocks(self, blocks: usize) -> Self {
        let known = 1..=self.template.blocks();
        assert!(known.contains(&blocks), "{blocks} of {known:?} blocks");
        Self { blocks, ..self }
    }

    /// Bytes that each walk holds: those of one row. The circuit's own variables and linear
    /// combinations are not counted, as in a survey.
    pub fn walk_bytes(&self) -> usize {
        self.walk_bytes
    }

    /// One thread's share of it: as many blocks as the others leave.
    ///
    /// # Errors
    /// [`SynthError::Circuit`] if the circuit refused, [`SynthError::GivenUp`]. The other
    /// walks end soon then, and also where this one panics; nothing is found.
    pub fn walk(
        &self,
        synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
    ) -> Result<(), SynthError> {
        use bellpepper_core::ConstraintSystem as _;
        if self.is_over() {
            return Ok(());
        }
        let mut unfinished = Unfinished(Some(self));
        let mut pass = Pass::comparing(Compare::new(self));
        pass.alloc_input(|| "one", || Err(SynthesisError::AssignmentMissing))?;
        let ended = synthesize(&mut pass);
        let ended = pass.ended(ended);
        let state = pass.into_compare();
        match ended {
            // The circuit was told to stop.
            Err(SynthError::Circuit(_)) if state.is_over => {}
            Err(error) => return Err(error),
            Ok(()) => state.finish(),
        }
        unfinished.0 = None;
        Ok(())
    }

    /// Whether the circuit that was walked is the template's: every block was compared and is
    /// like the first one, uses the same shared variables, and nothing is before, between or
    /// behind them that the template has not. To be asked after the walks.
    pub fn is_equal(&self) -> bool {
        let equal = self.equal.load(Ordering::Relaxed);
        equal + 1 == self.blocks
            && self.is_at_end.load(Ordering::Relaxed)
            && !self.is_in_vain.load(Ordering::Relaxed)
    }

    /// Whether a walk has nothing to do. Where there is but one block, it has to look
    /// whether there is another.
    fn is_over(&self) -> bool {
        self.is_in_vain.load(Ordering::Relaxed)
            || self.next.load(Ordering::Relaxed) >= self.blocks.max(2)
    }

    /// Whether a walk that comes to a block has it to itself. All before it are taken, since
    /// it came to them.
    fn takes(&self, block: usize) -> bool {
        let (old, new) = (block, block + 1);
        let taken = self
            .next
            .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    }
}

/// A walk that does not come to its end keeps no other at work.
struct Unfinished<'a>(Option<&'a Comparison<'a>>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(comparison) = self.0 {
            comparison.is_in_vain.store(true, Ordering::Relaxed);
        }
    }
}

/// State of the pass.
pub(crate) struct Compare<'a> {
    all: &'a Comparison<'a>,
    depth: usize,
    /// Variables and rows so far.
    at: Sizes,
    /// Where the current block begins, once there is one.
    begin: Option<Sizes>,
    /// Blocks begun.
    blocks: usize,
    /// Whether rows are compared here: those of what is shared, and of blocks that are taken.
    is_compared: bool,
    cursors: [Cursor; 3],
    /// Of as many terms as the longest stored row.
    scratch: Vec<Term>,
    /// Refuses rows that are longer.
    allowance: Allowance,
    is_over: bool,
}

impl<'a> Compare<'a> {
    fn new(all: &'a Comparison<'a>) -> Self {
        let scratch_bytes = all.walk_bytes - size_of::<Self>();
        let mut allowance = Allowance::new(scratch_bytes);
        let mut scratch = Vec::new();
        allowance
            .reserve_exact(&mut scratch, scratch_bytes / size_of::<Term>())
            .expect("it is allowed as much");
        Self {
            all,
            depth: 0,
            at: Sizes::default(),
            begin: None,
            blocks: 0,
            is_compared: true,
            cursors: Default::default(),
            scratch,
            allowance,
            is_over: false,
        }
    }

    /// An error ends a circuit early where there is nothing more to find.
    fn go_on(&self) -> Result<(), SynthesisError> {
        if self.is_over {
            return Err(SynthesisError::Unsatisfiable);
        }
        Ok(())
    }

    fn differs(&mut self) {
        self.is_over = true;
        self.all.is_in_vain.store(true, Ordering::Relaxed);
    }

    pub(crate) fn alloc(&mut self) -> Result<usize, SynthesisError> {
        self.go_on()?;
        self.at.aux += 1;
        Ok(self.named(self.at.aux - 1))
    }

    pub(crate) fn alloc_input(&mut self) -> Result<usize, SynthesisError> {
        self.go_on()?;
        self.at.inputs += 1;
        Ok(self.named(self.at.inputs - 1))
    }

    /// What a new variable is called: one name stands for all that nobody reads, so that
    /// sums of them stay one term long.
    fn named(&self, index: usize) -> usize {
        if self.is_compared { index } else { SKIPPED }
    }

    pub(crate) fn enforce(&mut self, lcs: impl FnOnce() -> [LinearCombination<Scalar>; 3]) {
        if self.is_over {
            return;
        }
        if self.is_compared && !self.row(&lcs()).unwrap_or(false) {
            self.differs();
        }
        self.at.constraints += 1;
    }

    /// Whether a row is the stored one. Why it cannot be is told by a survey.
    fn row(&mut self, lcs: &[LinearCombination<Scalar>; 3]) -> Result<bool, Uncut> {
        let template = self.all.template;
        let origin = Origin {
            shared: template.shared(),
            begin: self.begin,
        };
        let (rows, links) = match self.begin {
            None => (template.shared_rows(), None),
            Some(_) => {
                let links = template.links(self.blocks - 1);
                (template.block_rows(), Some(links))
            }
        };
        let linked = |stored: usize, variable: u32| {
            let (_, index) = place(variable);
            index == links.map_or(stored, |links| links[stored] as usize)
        };
        let matrices = [&rows.a, &rows.b, &rows.c];
        for ((matrix, lc), cursor) in matrices.into_iter().zip(lcs).zip(&mut self.cursors) {
            // Which error it is nobody hears.
            let reaches = || Uncut::NoBlock;
            let input = |index| origin.input(index).ok_or_else(reaches);
            let aux = |index| origin.aux(index).ok_or_else(reaches);
            gather(&mut self.scratch, lc, input, aux, &mut self.allowance)?;
            if !matrix.matches(cursor, &self.scratch, template.coefficients(), linked) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn push_namespace<N: Into<String>>(&mut self, name: impl FnOnce() -> N) {
        let cut = &self.all.cut;
        if self.depth == cut.depth && !self.is_over && name().into().starts_with(cut.name) {
            self.begin_block();
        }
        self.depth += 1;
    }

    pub(crate) fn pop_namespace(&mut self) {
        self.depth -= 1;
    }

    fn begin_block(&mut self) {
        let block = self.blocks;
        if !self.end_block() || block == self.all.blocks {
            return self.differs();
        }
        if self.all.is_over() {
            self.is_over = true;
            return;
        }
        self.is_compared = self.all.takes(block);
        self.begin = Some(self.at);
        self.blocks += 1;
        self.cursors = Default::default();
    }

    /// What was read since the last mark is a whole: whether it is as large as what is stored.
    /// It counts as equal then if its rows were compared.
    fn end_block(&self) -> bool {
        let template = self.all.template;
        let Some(begin) = self.begin else {
            return Extent::between(&Sizes::default(), &self.at) == template.shared();
        };
        if Extent::between(&begin, &self.at) != template.block() {
            return false;
        }
        if self.is_compared {
            self.all.equal.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// The circuit is at its end.
    fn finish(mut self) {
        if self.is_over {
            return;
        }
        if self.end_block() && self.blocks == self.all.blocks {
            self.all.is_at_end.store(true, Ordering::Relaxed);
        } else {
            self.differs();
        }
    }
}
