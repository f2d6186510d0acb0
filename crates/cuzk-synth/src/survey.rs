//! The survey: whether a circuit repeats where it is said to, row by row, and the rows
//! of what repeats, stored once.
//!
//! A blank circuit is synthesised whole. What comes before the first mark is shared by
//! all blocks; the first block is stored; of every later one each row is compared with
//! the stored one, its variables taken relative to where the block begins. Nothing is
//! left to chance: the circuit is the stored rows, repeated, or the survey says why not.
//!
//! Blocks may use different shared variables where the first uses one, such as each its
//! own challenge of those that are drawn before: a block has a list of *links*, the
//! shared variables that its rows use, in the order in which the first block meets them.

use std::collections::HashMap;

use bellpepper_core::{LinearCombination, SynthesisError};
use blstrs::Scalar;

use crate::allowance::{Allowance, list_bytes, map_bytes};
use crate::error::SynthError;
use crate::rows::{Coefficients, Cursor, Origin, Place, Rows, Term, code, gather, place};
use crate::template::{Apart, Extent, Template};
use crate::{Pass, Sizes, Uncut};

/// Where a circuit repeats, as its namespaces tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How deep the namespaces lie that begin blocks: how many are open around one, counted
    /// from the closure that is surveyed. 0 are those that it opens itself.
    pub depth: usize,
    /// How the names of those begin (`challenge_`). A block goes on to where the next one
    /// begins, the last to the end of the circuit.
    pub name: &'static str,
    /// The name of a namespace as deep as those, before the first of them, that is much
    /// work and has no variable that a block uses. All segments but the first do without
    /// it: the circuit asks [`Pass::leaves_out`] just before it would open the namespace, and
    /// skips it if so. Where the survey finds that a block does use it, or that it has inputs,
    /// nothing is left out.
    pub apart: Option<&'static str>,
}

/// How much of a circuit a survey reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// All of it.
    Whole,
    /// Up to the end of its first block; the others are taken to be like it and are not
    /// compared. For a circuit of which a survey of all of it, earlier, found so many blocks
    /// ([`Template::blocks`]), all with the same shared variables
    /// ([`Template::is_uniform`]), or of which a [`Comparison`](crate::Comparison) is to find
    /// it. So the rows of C are there in any case, and lists are as they grew, until the
    /// template is [`trimmed`](Template::trimmed): it is one of the whole then, with the
    /// same digest, and took as much memory as a survey of the whole.
    FirstBlock {
        /// Blocks of the circuit.
        blocks: usize,
    },
}

/// Surveys a blank circuit, none of whose values is asked for. What is stored takes at most
/// `limit_bytes` at any time, which is asked before it is taken. Of a whole circuit, C stays
/// with the rows `with_c`.
///
/// # Errors
/// [`SynthError::Circuit`] if the circuit refused, [`SynthError::GivenUp`]. A circuit that
/// cannot be cut is `Ok(Err(_))`.
pub fn survey(
    cut: Cut,
    extend: Extend,
    with_c: bool,
    limit_bytes: usize,
    synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
) -> Result<Result<Template, Uncut>, SynthError> {
    use bellpepper_core::ConstraintSystem as _;
    let survey = match Survey::new(cut, extend, limit_bytes) {
        Ok(survey) => survey,
        Err(uncut) => return Ok(Err(uncut)),
    };
    let mut pass = Pass::surveying(survey);
    pass.alloc_input(|| "one", || Err(SynthesisError::AssignmentMissing))?;
    let ended = synthesize(&mut pass);
    let ended = pass.ended(ended);
    let state = pass.into_survey();
    match (ended, &state.stopped) {
        // The circuit was told to stop.
        (Err(SynthError::Circuit(_)), Some(_)) | (Ok(()), _) => {
            let found = state.finish();
            Ok(match extend {
                Extend::Whole => found.and_then(|template| template.trimmed(with_c)),
                Extend::FirstBlock { .. } => found,
            })
        }
        (Err(error), _) => Err(error),
    }
}

/// Why the circuit need not go on.
#[derive(Clone, Debug)]
enum Stopped {
    Uncut(Uncut),
    /// The first block is complete, and no more was asked for.
    Enough,
}

/// State of the pass.
pub(crate) struct Survey {
    cut: Cut,
    extend: Extend,
    allowance: Allowance,
    depth: usize,
    /// Variables and rows so far.
    at: Sizes,
    /// Where the current block begins, once there is one.
    begin: Option<Sizes>,
    /// Blocks begun.
    blocks: usize,
    shared: Extent,
    /// Where what stands apart begins and, once it does, ends.
    apart: Option<(Sizes, Option<Sizes>)>,
    block: Option<Extent>,
    coefficients: Coefficients,
    shared_rows: Rows,
    block_rows: Rows,
    cursors: [Cursor; 3],
    /// Places of shared variables among the links.
    known_links: HashMap<u32, u32>,
    /// Links of the current block.
    links: Vec<Option<u32>>,
    /// Links of the blocks before it.
    all_links: Vec<Box<[u32]>>,
    scratch: Vec<Term>,
    stopped: Option<Stopped>,
}

impl Survey {
    fn new(cut: Cut, extend: Extend, limit_bytes: usize) -> Result<Self, Uncut> {
        let mut allowance = Allowance::new(limit_bytes);
        allowance.take(size_of::<Template>())?;
        let coefficients = Coefficients::new(&mut allowance)?;
        Ok(Self {
            cut,
            extend,
            allowance,
            depth: 0,
            at: Sizes::default(),
            begin: None,
            blocks: 0,
            shared: Extent::default(),
            apart: None,
            block: None,
            coefficients,
            shared_rows: Rows::default(),
            block_rows: Rows::default(),
            cursors: Default::default(),
            known_links: HashMap::new(),
            links: Vec::new(),
            all_links: Vec::new(),
            scratch: Vec::new(),
            stopped: None,
        })
    }

    /// An error ends a circuit early where the survey knows enough.
    fn go_on(&self) -> Result<(), SynthesisError> {
        match self.stopped {
            None => Ok(()),
            Some(_) => Err(SynthesisError::Unsatisfiable),
        }
    }

    pub(crate) fn alloc(&mut self) -> Result<usize, SynthesisError> {
        self.go_on()?;
        self.at.aux += 1;
        Ok(self.at.aux - 1)
    }

    pub(crate) fn alloc_input(&mut self) -> Result<usize, SynthesisError> {
        self.go_on()?;
        self.at.inputs += 1;
        Ok(self.at.inputs - 1)
    }

    /// A row is not built once enough is known.
    pub(crate) fn enforce(&mut self, lcs: impl FnOnce() -> [LinearCombination<Scalar>; 3]) {
        if self.stopped.is_some() {
            return;
        }
        if let Err(uncut) = self.row(&lcs()) {
            self.stopped = Some(Stopped::Uncut(uncut));
        }
        self.at.constraints += 1;
    }

    fn row(&mut self, lcs: &[LinearCombination<Scalar>; 3]) -> Result<(), Uncut> {
        let origin = Origin {
            shared: self.shared,
            begin: self.begin,
        };
        let block = self.blocks.saturating_sub(1);
        let row = self.at.constraints - self.begin.map_or(0, |begin| begin.constraints);
        let reaches = || Uncut::Reaches { block, row };
        let input = |index| origin.input(index).ok_or_else(reaches);
        let aux = |index| origin.aux(index).ok_or_else(reaches);
        let rows = match self.begin {
            None => &mut self.shared_rows,
            Some(_) => &mut self.block_rows,
        };
        let allowance = &mut self.allowance;
        let matrices = [&mut rows.a, &mut rows.b, &mut rows.c];
        for ((matrix, lc), cursor) in matrices.into_iter().zip(lcs).zip(&mut self.cursors) {
            gather(&mut self.scratch, lc, input, aux, allowance)?;
            if self.blocks > 1 {
                // The variable that stands there in this block is the one that it has first.
                let links = &mut self.links;
                let linked = |link: usize, code| *links[link].get_or_insert(code) == code;
                if !matrix.matches(cursor, &self.scratch, &self.coefficients, linked) {
                    return Err(Uncut::Differs { block, row });
                }
                continue;
            }
            if self.blocks == 1 {
                for (variable, _) in &mut self.scratch {
                    link(variable, &mut self.known_links, &mut self.links, allowance)?;
                }
            }
            matrix.push(&self.scratch, &mut self.coefficients, allowance)?;
        }
        Ok(())
    }

    pub(crate) fn push_namespace<N: Into<String>>(&mut self, name: impl FnOnce() -> N) {
        if self.depth == self.cut.depth && self.stopped.is_none() {
            let name = name().into();
            if name.starts_with(self.cut.name) {
                self.begin_block();
            } else if self.cut.apart == Some(&name) && self.begin.is_none() {
                self.apart = Some((self.at, None));
            }
        }
        self.depth += 1;
    }

    pub(crate) fn pop_namespace(&mut self) {
        self.depth -= 1;
        if self.depth == self.cut.depth
            && let Some((_, end @ None)) = &mut self.apart
        {
            *end = Some(self.at);
        }
    }

    fn begin_block(&mut self) {
        if let Err(uncut) = self.end_block() {
            self.stopped = Some(Stopped::Uncut(uncut));
        } else if self.blocks == 1 && matches!(self.extend, Extend::FirstBlock { .. }) {
            self.stopped = Some(Stopped::Enough);
        } else {
            self.begin = Some(self.at);
            self.blocks += 1;
            self.cursors = Default::default();
            if self.blocks > 1 {
                self.links.fill(None);
            }
        }
    }

    /// What was read since the last mark is a whole: the shared beginning, the first
    /// block, or one that must be as large as that.
    fn end_block(&mut self) -> Result<(), Uncut> {
        let Some(begin) = self.begin else {
            self.shared = Extent::between(&Sizes::default(), &self.at);
            return Ok(());
        };
        let extent = Extent::between(&begin, &self.at);
        let block = self.blocks - 1;
        if *self.block.get_or_insert(extent) != extent {
            return Err(Uncut::OtherSize { block });
        }
        let Self {
            allowance, links, ..
        } = self;
        allowance.reserve(&mut self.all_links, 1)?;
        allowance.take(links.len() * size_of::<u32>())?;
        let mut met = Vec::with_capacity(links.len());
        for link in links {
            // A block of other rows has not met all links.
            let (_, index) = place(link.ok_or(Uncut::OtherSize { block })?);
            met.push(u32::try_from(index).expect("of a code"));
        }
        self.all_links.push(met.into_boxed_slice());
        Ok(())
    }

    fn finish(mut self) -> Result<Template, Uncut> {
        match self.stopped.take() {
            Some(Stopped::Uncut(uncut)) => return Err(uncut),
            Some(Stopped::Enough) => {}
            None => self.end_block()?,
        }
        let block = self.block.ok_or(Uncut::NoBlock)?;
        let mut allowance = self.allowance;
        let mut links = self.all_links;
        if let Extend::FirstBlock { blocks } = self.extend {
            // The caller's number may be any. One block's links are held.
            let more = blocks.checked_sub(1).ok_or(Uncut::NoBlock)?;
            // As the list grows in a survey of the whole.
            for _ in 0..more {
                allowance.reserve(&mut links, 1)?;
                allowance.take(size_of_val(&*links[0]))?;
                links.push(links[0].clone());
            }
        }
        allowance.give_back(
            list_bytes(&self.links) + map_bytes(&self.known_links) + list_bytes(&self.scratch),
        );
        drop((self.links, self.known_links, self.scratch));
        let apart = self.apart.and_then(|(begin, end)| {
            let apart = Apart::between(&begin, &end?);
            apart.filter(|apart| links.iter().flatten().all(|&link| !apart.has(link)))
        });
        Template::new(
            (self.shared, self.shared_rows),
            apart,
            (block, self.block_rows),
            links,
            self.coefficients,
            allowance,
        )
    }
}

/// Turns the code of a shared variable into that of its place among the links, which is
/// the next one if it is new. Other codes stay.
fn link(
    variable: &mut u32,
    known: &mut HashMap<u32, u32>,
    links: &mut Vec<Option<u32>>,
    allowance: &mut Allowance,
) -> Result<(), Uncut> {
    if place(*variable).0 != Place::SharedAux {
        return Ok(());
    }
    if let Some(&known) = known.get(variable) {
        *variable = known;
        return Ok(());
    }
    let next = code(Place::SharedAux, links.len()).expect("fewer links than shared variables");
    allowance.reserve_entry(known)?;
    allowance.reserve(links, 1)?;
    links.push(Some(*variable));
    known.insert(*variable, next);
    *variable = next;
    Ok(())
}
