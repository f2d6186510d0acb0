//! Replaying a template: a part's columns from its segments, each on its own.

use std::ops::Range;

use bellpepper_core::{ConstraintSystem as _, SynthesisError};
use blstrs::Scalar;
use ff::Field;

use crate::error::{ColumnName, SynthError};
use crate::template::{Extent, RowsOut, Template};
use crate::witness::Witness;
use crate::{AssignColumns, Pass};

/// The columns of a part, cut: ranges for each segment, and what is left for the end.
#[derive(Debug)]
pub struct CutColumns<'a> {
    /// One a segment, to be filled in any order, at the same time.
    pub segments: Vec<SegmentColumns<'a>>,
    /// To be filled when all segments are.
    pub rest: RestColumns<'a>,
}

/// Ranges of the columns that belong to one segment.
#[derive(Debug)]
pub struct SegmentColumns<'a> {
    /// What all blocks share; the first segment writes it.
    shared: Option<AssignColumns<'a>>,
    own: AssignColumns<'a>,
    /// Its blocks: the first, and how many.
    first: usize,
    blocks: usize,
}

/// The rows of the inputs, and what is longer than the circuit.
#[derive(Debug)]
pub struct RestColumns<'a> {
    columns: AssignColumns<'a>,
    inputs: usize,
}

/// Inputs of a segment that was filled.
#[derive(Debug)]
pub struct FilledSegment {
    /// Those of what is shared, then its own.
    inputs: Vec<Scalar>,
}

impl SegmentColumns<'_> {
    /// The blocks that are to be synthesised into it, numbered as in the circuit.
    pub fn blocks(&self) -> Range<usize> {
        self.first..self.first + self.blocks
    }
}

impl FilledSegment {
    /// The inputs of what is shared, then those of the segment.
    pub fn into_inputs(self) -> Vec<Scalar> {
        self.inputs
    }
}

impl Template {
    /// Cuts columns for `segments` segments of equally many blocks.
    ///
    /// # Errors
    /// [`SynthError::HintTooSmall`] if a column is too short,
    /// [`SynthError::UnevenSegments`] if the blocks cannot be divided like that.
    pub fn cut<'a>(
        &self,
        columns: AssignColumns<'a>,
        segments: usize,
    ) -> Result<CutColumns<'a>, SynthError> {
        let blocks = self.blocks();
        if segments == 0 || !blocks.is_multiple_of(segments) {
            return Err(SynthError::UnevenSegments { blocks, segments });
        }
        self.check_lens(&columns)?;
        let each = blocks / segments;
        let extent = Extent::default().and(each, self.block());
        let (shared, mut left) = split(columns, self.shared());
        let mut shared = Some(shared);
        let mut cut = Vec::with_capacity(segments);
        for segment in 0..segments {
            let (own, rest) = split(left, extent);
            left = rest;
            cut.push(SegmentColumns {
                shared: shared.take(),
                own,
                first: segment * each,
                blocks: each,
            });
        }
        Ok(CutColumns {
            segments: cut,
            rest: RestColumns {
                columns: left,
                inputs: self.sizes().inputs,
            },
        })
    }

    /// Columns for one segment alone, as long as its own rows and variables. What is
    /// shared is evaluated into `shared`, if that is given. `blocks` are those of the
    /// segment.
    ///
    /// # Errors
    /// [`SynthError::HintTooSmall`] if a column is too short,
    /// [`SynthError::NoSuchBlocks`] if the circuit has not all of the blocks.
    pub fn alone<'a>(
        &self,
        own: AssignColumns<'a>,
        shared: Option<AssignColumns<'a>>,
        blocks: Range<usize>,
    ) -> Result<SegmentColumns<'a>, SynthError> {
        if blocks.start > blocks.end || blocks.end > self.blocks() {
            let (asked, blocks) = (blocks, self.blocks());
            return Err(SynthError::NoSuchBlocks { asked, blocks });
        }
        let first = blocks.start;
        let blocks = blocks.len();
        let extent = Extent::default().and(blocks, self.block());
        let pairs = [(Some(&own), extent), (shared.as_ref(), self.shared())];
        for (columns, extent) in pairs {
            if let Some(columns) = columns {
                self.check_extent(columns, extent)?;
            }
        }
        Ok(SegmentColumns {
            shared: shared.map(|columns| split(columns, self.shared()).0),
            own: split(own, extent).0,
            first,
            blocks,
        })
    }

    fn check_lens(&self, columns: &AssignColumns<'_>) -> Result<(), SynthError> {
        let want = self.sizes();
        self.check_extent(
            columns,
            Extent {
                inputs: 0,
                aux: want.aux,
                constraints: want.constraints,
            },
        )
    }

    fn check_extent(&self, columns: &AssignColumns<'_>, want: Extent) -> Result<(), SynthError> {
        let lens = [
            (ColumnName::Aux, columns.aux.len(), want.aux),
            (ColumnName::A, columns.a.len(), want.constraints),
            (ColumnName::B, columns.b.len(), want.constraints),
            (
                ColumnName::C,
                columns.c.as_ref().map_or(usize::MAX, |c| c.len()),
                want.constraints,
            ),
        ];
        match lens.into_iter().find(|(_, have, want)| have < want) {
            None => Ok(()),
            Some((column, have, _)) => Err(SynthError::HintTooSmall {
                column,
                have,
                want: self.sizes(),
            }),
        }
    }

    /// Fills one segment: `synthesize` runs what all blocks share and then the segment's
    /// [blocks](SegmentColumns::blocks), each in its namespaces, with a witness. What the
    /// [`Cut`](crate::Cut) says to stand apart it must leave out where
    /// [`Pass::leaves_out`] says so.
    ///
    /// # Errors
    /// [`SynthError::Circuit`] if the circuit refused its witness or has none,
    /// [`SynthError::OtherSegment`] if it is not of the template, [`SynthError::GivenUp`].
    ///
    /// # Panics
    /// If `columns` were cut by a template of other sizes, or have a column for C which
    /// the template [has not](Template::has_c).
    pub fn fill(
        &self,
        columns: SegmentColumns<'_>,
        synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
    ) -> Result<FilledSegment, SynthError> {
        let SegmentColumns {
            shared,
            own,
            first,
            blocks,
        } = columns;
        let AssignColumns { a, b, c, aux } = own;
        let mut beside = Vec::new();
        let (apart, shared_aux, shared_out) = match shared {
            Some(AssignColumns { a, b, c, aux }) => (None, aux, Some(RowsOut { a, b, c })),
            None => {
                let apart = self.apart();
                let left_out = apart.map_or(0, |apart| apart.extent.aux);
                beside.resize(self.shared().aux - left_out, Scalar::ZERO);
                (apart, beside.as_mut_slice(), None)
            }
        };
        let witness = Witness::new(self.shared(), apart, shared_aux, aux);
        let mut pass = Pass::witnessing(witness);
        pass.alloc_input(|| "one", || Ok(Scalar::ONE))?;
        let result = synthesize(&mut pass);
        pass.ended(result)?;
        let witness = pass.into_witness();
        witness.check(blocks, self.block())?;
        let written = witness.written();
        if let Some(out) = shared_out {
            self.evaluate_shared(&written, out);
        }
        let rows = self.block().constraints;
        let (mut a, mut b, mut c) = (a, b, c);
        for index in 0..blocks {
            let out = RowsOut {
                a: take(&mut a, rows),
                b: take(&mut b, rows),
                c: c.as_mut().map(|c| take(c, rows)),
            };
            self.evaluate_block(first + index, index, &written, out);
        }
        Ok(FilledSegment {
            inputs: witness.into_inputs(),
        })
    }

    /// Completes a part: writes the rows that Groth16 adds for its inputs, and zeros where
    /// a column is longer than the circuit. `filled` are all segments in the order of
    /// [`CutColumns::segments`]; gives the public inputs, the constant one first.
    ///
    /// # Panics
    /// If `filled` are not all segments that were cut with `rest`.
    pub fn finish(&self, rest: RestColumns<'_>, filled: Vec<FilledSegment>) -> Vec<Scalar> {
        let RestColumns { columns, inputs } = rest;
        let mut all = Vec::with_capacity(inputs);
        for segment in filled {
            let own = if all.is_empty() {
                0
            } else {
                self.shared().inputs
            };
            all.extend_from_slice(&segment.inputs[own..]);
        }
        assert_eq!(all.len(), inputs, "the inputs of all segments");
        let AssignColumns { a, b, c, aux } = columns;
        a[..inputs].copy_from_slice(&all);
        a[inputs..].fill(Scalar::ZERO);
        for column in [Some(b), c, Some(aux)].into_iter().flatten() {
            column.fill(Scalar::ZERO);
        }
        all
    }
}

/// The first variables and rows of columns, and what is left of them.
fn split(columns: AssignColumns<'_>, extent: Extent) -> (AssignColumns<'_>, AssignColumns<'_>) {
    let AssignColumns { a, b, c, aux } = columns;
    let rows = extent.constraints;
    let (a, a_rest) = a.split_at_mut(rows);
    let (b, b_rest) = b.split_at_mut(rows);
    let (c, c_rest) = c.map(|c| c.split_at_mut(rows)).unzip();
    let (aux, aux_rest) = aux.split_at_mut(extent.aux);
    let rest = AssignColumns {
        a: a_rest,
        b: b_rest,
        c: c_rest,
        aux: aux_rest,
    };
    (AssignColumns { a, b, c, aux }, rest)
}

/// Takes the first `len` values off a slice.
fn take<'a>(from: &mut &'a mut [Scalar], len: usize) -> &'a mut [Scalar] {
    let (taken, rest) = std::mem::take(from).split_at_mut(len);
    *from = rest;
    taken
}
