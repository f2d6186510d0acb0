//! Columns and segments that are handed to the wrong template, cut or place: an error each
//! time, and columns in which nothing was written.

use std::ops::Range;

use bellpepper_core::num::AllocatedNum;
use bellpepper_core::{ConstraintSystem, SynthesisError};
use blstrs::Scalar;
use cuzk_synth::*;

const CUT: Cut = Cut {
    depth: 0,
    name: "block ",
    apart: None,
};

type Num = AllocatedNum<Scalar>;

/// A shared number with its public square; in each block its product with one of the block's
/// own, squared so many times, public.
#[derive(Clone, Copy)]
struct Products {
    blocks: usize,
    squares: usize,
}

const PLAIN: Products = Products {
    blocks: 4,
    squares: 2,
};

impl Products {
    fn synthesize(
        self,
        pass: &mut Pass<'_>,
        blocks: Range<usize>,
        shared: u64,
    ) -> Result<(), SynthesisError> {
        let shared = Num::alloc(pass.namespace(|| "shared"), || Ok(Scalar::from(shared)))?;
        shared.square(&mut *pass)?.inputize(&mut *pass)?;
        for block in blocks {
            let mut space = pass.namespace(|| format!("block {block}"));
            let own = Num::alloc(&mut space, || Ok(Scalar::from(7 + block as u64)))?;
            let mut product = shared.mul(&mut space, &own)?;
            for _ in 0..self.squares {
                product = product.square(&mut space)?;
            }
            product.inputize(&mut space)?;
        }
        Ok(())
    }

    fn survey(self, with_c: bool) -> Template {
        survey(CUT, Extend::Whole, with_c, 1 << 20, |pass| {
            self.synthesize(pass, 0..self.blocks, 3)
        })
        .expect("synthesises")
        .expect("it repeats")
    }
}

fn untouched(len: usize) -> Vec<Scalar> {
    vec![Scalar::from(77); len]
}

/// Columns of four.
struct Owned([Vec<Scalar>; 4]);

impl Owned {
    fn new(sizes: &Sizes) -> Self {
        let Sizes {
            aux, constraints, ..
        } = *sizes;
        Self([constraints, constraints, constraints, aux].map(untouched))
    }

    fn columns(&mut self, with_c: bool) -> AssignColumns<'_> {
        let [a, b, c, aux] = &mut self.0;
        AssignColumns {
            a,
            b,
            c: with_c.then_some(c),
            aux,
        }
    }

    fn is_untouched(&self) -> bool {
        self.0
            .iter()
            .all(|column| *column == untouched(column.len()))
    }
}

fn fill(template: &Template, columns: SegmentColumns<'_>, shared: u64) -> FilledSegment {
    let blocks = columns.blocks();
    let fill = template.fill(columns, |pass| PLAIN.synthesize(pass, blocks, shared));
    fill.expect("a segment of the circuit")
}

fn fill_all(template: &Template, segments: Vec<SegmentColumns<'_>>) -> Vec<FilledSegment> {
    let segments = segments.into_iter();
    segments.map(|columns| fill(template, columns, 3)).collect()
}

type Change = dyn Fn(&mut Vec<FilledSegment>);

#[test]
fn segments_are_finished_in_their_order_and_all_of_them() {
    let template = PLAIN.survey(true);
    let finish = |change: &Change| {
        let mut owned = Owned::new(&template.sizes());
        let cut = template.cut(owned.columns(true), 4).expect("room enough");
        let mut filled = fill_all(&template, cut.segments);
        change(&mut filled);
        template.finish(cut.rest, filled)
    };
    let inputs = finish(&|_| ()).expect("all of the cut");
    assert_eq!(inputs.len(), template.sizes().inputs);
    // Each has the same number of inputs, so that a sum of them tells nothing.
    let cases: [(&Change, usize); 5] = [
        (&|filled| filled.swap(1, 2), 1),
        (&|filled| filled.reverse(), 0),
        (&|filled| drop(filled.remove(2)), 2),
        (&|filled| drop(filled.pop()), 3),
        (&|filled| filled.clear(), 0),
    ];
    for (change, want) in cases {
        let error = finish(change).expect_err("not the segments of the cut");
        assert!(
            matches!(error, SynthError::OtherCut { block } if block == want),
            "{error}, not {want}"
        );
    }
}

#[test]
fn segments_of_another_part_are_refused_before_anything_is_written() {
    let template = PLAIN.survey(true);
    let (mut ours, mut theirs) = (Owned::new(&template.sizes()), Owned::new(&template.sizes()));
    let ours = template.cut(ours.columns(true), 2).expect("room enough");
    let theirs = template.cut(theirs.columns(true), 2).expect("room enough");
    let (ours_filled, mut filled) = (
        fill_all(&template, ours.segments),
        fill_all(&template, theirs.segments),
    );
    filled.splice(1.., ours_filled.into_iter().skip(1));
    let error = template.finish(theirs.rest, filled);
    assert!(matches!(error, Err(SynthError::OtherCut { block: 2 })));

    // Columns of a segment alone are of no part.
    let mut owned = Owned::new(&template.sizes());
    let mut alone = Owned::new(&template.sizes());
    let cut = template.cut(owned.columns(true), 4).expect("room enough");
    let mut filled = fill_all(&template, cut.segments);
    let columns = template.alone(alone.columns(true), None, 3..4);
    filled.pop();
    filled.push(fill(&template, columns.expect("room enough"), 3));
    let error = template.finish(cut.rest, filled);
    assert!(matches!(error, Err(SynthError::OtherCut { block: 3 })));
    let rest = 2 + PLAIN.squares;
    let [a, ..] = &owned.0;
    assert_eq!(a[a.len() - rest..], untouched(rest));
}

#[test]
fn shared_inputs_are_the_same_in_all_segments() {
    let template = PLAIN.survey(true);
    let mut owned = Owned::new(&template.sizes());
    let cut = template.cut(owned.columns(true), 2).expect("room enough");
    let shared = [3, 4].into_iter();
    let filled = cut
        .segments
        .into_iter()
        .zip(shared)
        .map(|(columns, shared)| fill(&template, columns, shared))
        .collect();
    let error = template.finish(cut.rest, filled).expect_err("3 is not 4");
    assert!(
        matches!(error, SynthError::OtherShared { block: 2 }),
        "{error}"
    );
}

/// Templates of more and fewer blocks, of larger and smaller ones: their columns are longer
/// or shorter than those that are filled.
#[test]
fn columns_of_another_template_are_refused_before_the_circuit_is_asked() {
    let template = PLAIN.survey(true);
    let others = [
        Products { blocks: 2, ..PLAIN },
        Products { blocks: 8, ..PLAIN },
        Products {
            squares: 1,
            ..PLAIN
        },
        Products {
            squares: 3,
            ..PLAIN
        },
    ];
    for other in others {
        let other = other.survey(true);
        let mut owned = Owned::new(&other.sizes());
        let cut = other.cut(owned.columns(true), 2).expect("room enough");
        for columns in cut.segments {
            let error = template.fill(columns, |_| panic!("it is not asked"));
            assert!(matches!(error, Err(SynthError::OtherTemplate)));
        }
        let error = template.finish(cut.rest, Vec::new());
        assert!(matches!(error, Err(SynthError::OtherTemplate)));
        assert!(owned.is_untouched());
    }
    // One of an equal circuit is as good.
    let again = PLAIN.survey(true);
    let mut owned = Owned::new(&template.sizes());
    let cut = template.cut(owned.columns(true), 2).expect("room enough");
    let filled = fill_all(&again, cut.segments);
    again.finish(cut.rest, filled).expect("all of the cut");
}

#[test]
fn c_is_refused_before_a_segment_is_filled_where_its_rows_are_not_stored() {
    let (without, with) = (PLAIN.survey(false), PLAIN.survey(true));
    let sizes = without.sizes();
    let (mut owned, mut shared) = (Owned::new(&sizes), Owned::new(&sizes));
    let cut = without.cut(owned.columns(true), 2);
    assert!(matches!(cut, Err(SynthError::NoC)));
    for (own_c, shared_c) in [(true, false), (false, true)] {
        let shared = shared.columns(shared_c);
        let alone = without.alone(owned.columns(own_c), Some(shared), 0..1);
        assert!(matches!(alone, Err(SynthError::NoC)));
        // Both have the same digest.
        let mut shared = Owned::new(&sizes);
        let shared = shared.columns(shared_c);
        let alone = with.alone(owned.columns(own_c), Some(shared), 0..1);
        let columns = alone.expect("room enough");
        let filled = without.fill(columns, |_| panic!("it is not asked"));
        assert!(matches!(filled, Err(SynthError::NoC)));
    }
    assert!(owned.is_untouched());
    let cut = without.cut(owned.columns(false), 2).expect("room enough");
    let filled = fill_all(&without, cut.segments);
    without.finish(cut.rest, filled).expect("all of the cut");
}

/// What is said of columns that are too short is what they were for, not the whole circuit.
#[test]
fn columns_alone_that_are_too_short_are_told_what_the_segment_has() {
    let template = PLAIN.survey(true);
    let (shared, block) = (template.shared(), template.block());
    let of = |extent: Extent, times: usize| Sizes {
        inputs: times * extent.inputs,
        aux: times * extent.aux,
        constraints: times * extent.constraints,
    };
    let short = |sizes: Sizes| Sizes {
        aux: sizes.aux - 1,
        ..sizes
    };
    let (own, shared) = (of(block, 2), of(shared, 1));
    for (own_sizes, shared_sizes, want) in [(short(own), shared, own), (own, short(shared), shared)]
    {
        let (mut own, mut shared) = (Owned::new(&own_sizes), Owned::new(&shared_sizes));
        let shared = shared.columns(true);
        let alone = template.alone(own.columns(true), Some(shared), 1..3);
        let said = alone.expect_err("too short");
        assert!(
            matches!(said, SynthError::HintTooSmall { column: ColumnName::Aux, want: said, .. }
                if said == want),
            "{said}"
        );
        let (have, want) = (want.aux - 1, want.aux);
        let text = format!("column aux has room for {have} values, {want} are written to it");
        assert_eq!(said.to_string(), text);
    }
}
