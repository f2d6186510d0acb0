//! Replaying a template: a part's columns from its segments, each on its own.

use std::ops::Range;
use std::sync::Arc;

use bellpepper_core::{ConstraintSystem as _, SynthesisError};
use blstrs::Scalar;
use ff::Field;

use crate::error::{ColumnName, SynthError};
use crate::template::{Extent, RowsOut, Template};
use crate::witness::Witness;
use crate::{AssignColumns, Pass, Sizes};

/// The columns of a part, cut: ranges for each segment, and what is left for the end.
#[derive(Debug)]
pub struct CutColumns<'a> {
    /// One a segment, to be filled in any order, at the same time.
    pub segments: Vec<SegmentColumns<'a>>,
    /// To be filled when all segments are.
    pub rest: RestColumns<'a>,
}

/// A template that cut columns. Segments are of one cut if they have the same one of these,
/// which no two cuts share.
#[derive(Debug)]
struct Cutter {
    /// The template's.
    digest: [u8; 32],
}

/// Ranges of the columns that belong to one segment.
#[derive(Debug)]
pub struct SegmentColumns<'a> {
    cutter: Arc<Cutter>,
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
    cutter: Arc<Cutter>,
    columns: AssignColumns<'a>,
}

/// Inputs of a segment that was filled.
#[derive(Debug)]
pub struct FilledSegment {
    cutter: Arc<Cutter>,
    /// Its blocks.
    blocks: Range<usize>,
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
    /// [`SynthError::HintTooSmall`] if a column is too short, [`SynthError::NoC`] if there is
    /// one for C which the template [has not](Template::has_c),
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
        self.check_columns(&columns, self.sizes())?;
        let cutter = self.cutter();
        let each = blocks / segments;
        let extent = Extent::default().and(each, self.block());
        let (shared, mut left) = split(columns, self.shared());
        let mut shared = Some(shared);
        let mut cut = Vec::with_capacity(segments);
        for segment in 0..segments {
            let (own, rest) = split(left, extent);
            left = rest;
            cut.push(SegmentColumns {
                cutter: Arc::clone(&cutter),
                shared: shared.take(),
                own,
                first: segment * each,
                blocks: each,
            });
        }
        Ok(CutColumns {
            segments: cut,
            rest: RestColumns {
                cutter,
                columns: left,
            },
        })
    }

    /// Columns for one segment alone, as long as its own rows and variables. What is
    /// shared is evaluated into `shared`, if that is given. `blocks` are those of the
    /// segment.
    ///
    /// # Errors
    /// [`SynthError::HintTooSmall`] if a column is too short for the segment or for what is
    /// shared, [`SynthError::NoC`] as for [`cut`](Self::cut),
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
                self.check_columns(columns, extent.sizes())?;
            }
        }
        Ok(SegmentColumns {
            cutter: self.cutter(),
            shared: shared.map(|columns| split(columns, self.shared()).0),
            own: split(own, extent).0,
            first,
            blocks,
        })
    }

    fn cutter(&self) -> Arc<Cutter> {
        let digest = self.digest();
        Arc::new(Cutter { digest })
    }

    /// Whether columns can take what has these sizes.
    fn check_columns(&self, columns: &AssignColumns<'_>, want: Sizes) -> Result<(), SynthError> {
        if columns.c.is_some() && !self.has_c() {
            return Err(SynthError::NoC);
        }
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
            Some((column, have, _)) => Err(SynthError::HintTooSmall { column, have, want }),
        }
    }

    /// Whether columns were cut by this template or one of an equal circuit.
    fn check_cutter(&self, cutter: &Cutter) -> Result<(), SynthError> {
        if cutter.digest == self.digest() {
            Ok(())
        } else {
            Err(SynthError::OtherTemplate)
        }
    }

    /// Fills one segment: `synthesize` runs what all blocks share and then the segment's
    /// [blocks](SegmentColumns::blocks), each in its namespaces, with a witness. What the
    /// [`Cut`](crate::Cut) says to stand apart it must leave out where
    /// [`Pass::leaves_out`] says so. Values of what is shared must be the same in all segments
    /// of a part: the columns have those of the first, the rows of each block are evaluated
    /// from its own segment's. [`finish`](Self::finish) compares the public ones alone.
    ///
    /// # Errors
    /// Before anything is synthesised [`SynthError::OtherTemplate`] if another circuit's
    /// template cut `columns`, and [`SynthError::NoC`] if one of an equal circuit did, with a
    /// column for C, which this one [has not](Template::has_c).
    /// Then [`SynthError::Circuit`] if the circuit refused its witness or has none,
    /// [`SynthError::OtherSegment`] if it is not of the template, [`SynthError::GivenUp`].
    pub fn fill(
        &self,
        columns: SegmentColumns<'_>,
        synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
    ) -> Result<FilledSegment, SynthError> {
        let SegmentColumns {
            cutter,
            shared,
            own,
            first,
            blocks,
        } = columns;
        self.check_cutter(&cutter)?;
        let shared_c = shared.as_ref().is_some_and(|shared| shared.c.is_some());
        if (own.c.is_some() || shared_c) && !self.has_c() {
            return Err(SynthError::NoC);
        }
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
        let inputs = self.shared().and(blocks, self.block()).inputs;
        let witness = Witness::new(self.shared(), inputs, apart, shared_aux, aux);
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
            cutter,
            blocks: first..first + blocks,
            inputs: witness.into_inputs(),
        })
    }

    /// Completes a part: writes the rows that Groth16 adds for its inputs, and zeros where
    /// a column is longer than the circuit. `filled` are all segments in the order of
    /// [`CutColumns::segments`]; gives the public inputs, the constant one first.
    ///
    /// # Errors
    /// [`SynthError::OtherTemplate`] if another circuit's template cut the columns,
    /// [`SynthError::OtherCut`] if `filled` are not all segments that were cut with `rest`,
    /// in their order, and [`SynthError::OtherShared`] if their shared inputs are not equal.
    /// Nothing is written then.
    pub fn finish(
        &self,
        rest: RestColumns<'_>,
        filled: Vec<FilledSegment>,
    ) -> Result<Vec<Scalar>, SynthError> {
        let RestColumns { cutter, columns } = rest;
        self.check_cutter(&cutter)?;
        let shared = self.shared().inputs;
        let inputs = self.sizes().inputs;
        let mut all: Vec<Scalar> = Vec::with_capacity(inputs);
        let mut block = 0;
        for segment in filled {
            if !Arc::ptr_eq(&segment.cutter, &cutter) || segment.blocks.start != block {
                return Err(SynthError::OtherCut { block });
            }
            // The first segment has them for all.
            let (own_shared, own) = segment.inputs.split_at(shared);
            if block == 0 {
                all.extend_from_slice(own_shared);
            } else if *own_shared != all[..shared] {
                return Err(SynthError::OtherShared { block });
            }
            all.extend_from_slice(own);
            block = segment.blocks.end;
        }
        if block != self.blocks() {
            return Err(SynthError::OtherCut { block });
        }
        assert_eq!(
            all.len(),
            inputs,
            "each segment was checked when it was filled"
        );
        let AssignColumns { a, b, c, aux } = columns;
        a[..inputs].copy_from_slice(&all);
        a[inputs..].fill(Scalar::ZERO);
        for column in [Some(b), c, Some(aux)].into_iter().flatten() {
            column.fill(Scalar::ZERO);
        }
        Ok(all)
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
