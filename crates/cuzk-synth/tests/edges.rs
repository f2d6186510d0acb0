//! Circuits at the edges of what repeats, what is left out of segments, and passes that
//! are given up.

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellpepper_core::num::AllocatedNum;
use bellpepper_core::{ConstraintSystem, SynthesisError};
use blstrs::Scalar;
use cuzk_synth::*;
use ff::Field;

const CUT: Cut = Cut {
    depth: 0,
    name: "block ",
    apart: Some("apart"),
};
const LIMIT_BYTES: usize = 1 << 26;

/// Squares of squares: shared ones, some of them apart, and those of each block, which
/// begin with the first shared one times the last.
#[derive(Clone, Copy, Debug)]
struct Squares {
    before: usize,
    apart: usize,
    after: usize,
    blocks: usize,
    rows: usize,
    inputs: usize,
    /// Whether blocks use the last variable of what is said to stand apart.
    uses_apart: bool,
    /// Whether what stands apart has an input.
    input_apart: bool,
}

const PLAIN: Squares = Squares {
    before: 3,
    apart: 70,
    after: 2,
    blocks: 4,
    rows: 5,
    inputs: 1,
    uses_apart: false,
    input_apart: false,
};

type Num = AllocatedNum<Scalar>;

fn squares(
    space: &mut impl ConstraintSystem<Scalar>,
    first: &Num,
    count: usize,
) -> Result<Num, SynthesisError> {
    let mut last = first.clone();
    for _ in 0..count {
        last = last.square(&mut *space)?;
    }
    Ok(last)
}

impl Squares {
    fn synthesize(
        &self,
        pass: &mut Pass<'_>,
        blocks: Range<usize>,
        has_witness: bool,
    ) -> Result<(), SynthesisError> {
        let value = has_witness.then(|| Scalar::from(3));
        let get = || value.ok_or(SynthesisError::AssignmentMissing);
        let first = Num::alloc(pass.namespace(|| "x"), get)?;
        let before = squares(pass, &first, self.before)?;
        let mut apart = None;
        if !pass.leaves_out() {
            let mut space = pass.namespace(|| "apart");
            let last = squares(&mut space, &before, self.apart)?;
            if self.input_apart {
                last.inputize(&mut space)?;
            }
            apart = Some(last);
        }
        let last = squares(pass, &before, self.after)?;
        let last = apart.filter(|_| self.uses_apart).unwrap_or(last);
        for block in blocks {
            let mut space = pass.namespace(|| format!("block {block}"));
            if self.rows == 0 {
                continue;
            }
            let product = first.mul(&mut space, &last)?;
            let product = squares(&mut space, &product, self.rows - 1)?;
            for _ in 0..self.inputs {
                product.inputize(&mut space)?;
            }
        }
        Ok(())
    }

    fn survey(&self) -> Result<Template, Uncut> {
        survey(CUT, Extend::Whole, true, LIMIT_BYTES, |pass| {
            self.synthesize(pass, 0..self.blocks, false)
        })
        .expect("a blank circuit needs no witness")
    }

    fn whole(&self) -> (GrownColumns, Assigned) {
        assign_growing(true, |pass| self.synthesize(pass, 0..self.blocks, true))
            .expect("a good witness")
    }

    fn segments_are_the_whole(&self) -> Template {
        let template = self.survey().expect("it repeats");
        let (whole, assigned) = self.whole();
        assert_eq!(template.sizes(), assigned.sizes);
        assert_eq!(template.densities(), assigned.densities);
        let mut apart = dirty(&template.sizes());
        assert_eq!(self.fill_all(&template, &mut apart), assigned.inputs);
        assert!(apart == whole, "{self:?}");
        template
    }

    /// A segment for each block, the last one first; gives the inputs.
    fn fill_all(&self, template: &Template, columns: &mut GrownColumns) -> Vec<Scalar> {
        let segments = self.blocks;
        let cut = template.cut(into(columns), segments).expect("room enough");
        let mut filled: Vec<_> = (0..segments)
            .zip(cut.segments)
            .rev()
            .map(|(block, columns)| {
                let fill = template.fill(columns, |pass| {
                    self.synthesize(pass, block..block + 1, true)
                });
                fill.expect("a good witness")
            })
            .collect();
        filled.reverse();
        template.finish(cut.rest, filled).expect("all of the cut")
    }
}

/// Columns with what a pool might have left in them.
fn dirty(sizes: &Sizes) -> GrownColumns {
    let filled = |len| vec![Scalar::from(77); len];
    GrownColumns {
        a: filled(sizes.constraints),
        b: filled(sizes.constraints),
        c: filled(sizes.constraints),
        aux: filled(sizes.aux),
    }
}

fn into(columns: &mut GrownColumns) -> AssignColumns<'_> {
    AssignColumns {
        a: &mut columns.a,
        b: &mut columns.b,
        c: Some(&mut columns.c),
        aux: &mut columns.aux,
    }
}

#[test]
fn what_stands_apart_is_left_out_by_all_segments_but_the_first() {
    let scalars = |count: usize| (count * size_of::<Scalar>()) as u64;
    let shared = |circuit: &Squares| 1 + circuit.before + circuit.after;
    // A block uses the first shared variable and the last.
    let linked = 2;
    let template = PLAIN.segments_are_the_whole();
    assert_eq!(template.segment_bytes(), scalars(shared(&PLAIN) + linked));
    assert_eq!(template.first_segment_bytes(), scalars(linked));
    for (uses_apart, input_apart) in [(true, false), (false, true)] {
        // Such a thing does not stand apart, and no segment leaves it out.
        let circuit = Squares {
            uses_apart,
            input_apart,
            ..PLAIN
        };
        let template = circuit.segments_are_the_whole();
        let all = shared(&circuit) + circuit.apart;
        assert_eq!(template.segment_bytes(), scalars(all + linked));
    }
    let (first, last) = (
        Squares { before: 0, ..PLAIN },
        Squares { after: 0, ..PLAIN },
    );
    for circuit in [first, last, Squares { apart: 0, ..PLAIN }] {
        let template = circuit.segments_are_the_whole();
        assert_eq!(template.segment_bytes(), scalars(shared(&circuit) + linked));
    }
}

#[test]
fn a_segment_that_does_not_leave_it_out_is_refused() {
    let template = PLAIN.survey().expect("it repeats");
    let mut columns = dirty(&template.sizes());
    let mut cut = template.cut(into(&mut columns), 4).expect("room enough");
    let columns = cut.segments.remove(2);
    let fill = template.fill(columns, |pass| {
        let x = Num::alloc(pass.namespace(|| "x"), || Ok(Scalar::from(3)))?;
        let last = squares(pass, &x, PLAIN.before + PLAIN.apart + PLAIN.after)?;
        let product = x.mul(&mut *pass, &last)?;
        squares(pass, &product, PLAIN.rows - 1)?.inputize(&mut *pass)
    });
    let error = fill.expect_err("more than it is to have").to_string();
    let want = "a segment wrote 81 auxiliary variables, its circuit's has 11";
    assert_eq!(error, want);
}

#[test]
fn few_and_empty_and_large_repeat_too() {
    let circuits = [
        Squares { blocks: 1, ..PLAIN },
        Squares { rows: 0, ..PLAIN },
        Squares { inputs: 0, ..PLAIN },
        Squares {
            inputs: 70,
            ..PLAIN
        },
        Squares {
            before: 20_000,
            ..PLAIN
        },
        Squares {
            before: 0,
            apart: 0,
            after: 0,
            ..PLAIN
        },
        Squares {
            blocks: 130,
            rows: 1,
            inputs: 0,
            ..PLAIN
        },
    ];
    for circuit in circuits {
        circuit.segments_are_the_whole();
    }
    let none = Squares { blocks: 0, ..PLAIN };
    assert_eq!(none.survey().expect_err("no block"), Uncut::NoBlock);
}

/// What follows the last block belongs to it, so that it is unlike the others.
#[test]
fn rows_after_the_last_block_are_found() {
    let found = survey(CUT, Extend::Whole, true, LIMIT_BYTES, |pass| {
        PLAIN.synthesize(pass, 0..4, false)?;
        pass.enforce(|| "more", |lc| lc, |lc| lc, |lc| lc);
        Ok(())
    });
    let uncut = found.expect("synthesises").expect_err("not cut");
    // The row of the input is the last one of a block.
    let row = PLAIN.rows + PLAIN.inputs;
    assert_eq!(uncut, Uncut::Differs { block: 3, row });
}

#[test]
fn inputs_of_another_block_are_out_of_reach() {
    let found = survey(CUT, Extend::Whole, true, LIMIT_BYTES, |pass| {
        let mut before = None;
        for block in 0..3 {
            let mut space = pass.namespace(|| format!("block {block}"));
            let input = space.alloc_input(|| "y", || Ok(Scalar::ONE))?;
            let other = before.replace(input).unwrap_or(input);
            space.enforce(|| "row", |lc| lc + other, |lc| lc + input, |lc| lc);
        }
        Ok(())
    });
    let uncut = found.expect("synthesises").expect_err("not cut");
    assert_eq!(uncut, Uncut::Reaches { block: 1, row: 0 });
}

/// The same columns are filled anew, with the same template: what a panic left in them of
/// another part is gone.
#[test]
fn what_a_panic_in_any_block_leaves_is_overwritten() {
    let template = PLAIN.survey().expect("it repeats");
    let (whole, assigned) = PLAIN.whole();
    for bad in 0..PLAIN.blocks {
        let mut columns = dirty(&template.sizes());
        let cut = template.cut(into(&mut columns), 4).expect("room enough");
        for (block, columns) in cut.segments.into_iter().enumerate() {
            let fill = || {
                template.fill(columns, |pass| {
                    if block == bad {
                        // All that is shared and some of the block.
                        for _ in 0..template.shared().aux + PLAIN.rows / 2 {
                            pass.alloc(|| "another", || Ok(Scalar::from(5)))?;
                        }
                        panic!("a fault of the test");
                    }
                    PLAIN.synthesize(pass, block..block + 1, true)
                })
            };
            let filled = catch_unwind(AssertUnwindSafe(fill));
            assert_eq!(filled.is_err(), block == bad);
        }
        assert!(columns != whole, "block {bad} is not filled");
        let inputs = PLAIN.fill_all(&template, &mut columns);
        assert_eq!(inputs, assigned.inputs);
        assert!(columns == whole, "after block {bad}");
    }
}

/// Any blocks that there are, also none, and no others.
#[test]
fn columns_alone_are_those_of_the_blocks_that_were_asked_for() {
    let template = PLAIN.survey().expect("it repeats");
    let (whole, _) = PLAIN.whole();
    let (shared, block) = (template.shared(), template.block());
    let alone = |blocks: Range<usize>| -> Result<GrownColumns, String> {
        let count = blocks.len().min(PLAIN.blocks);
        let mut own = dirty(&Sizes {
            inputs: 0,
            aux: count * block.aux,
            constraints: count * block.constraints,
        });
        let columns = template
            .alone(into(&mut own), None, blocks.clone())
            .map_err(|error| error.to_string())?;
        let fill = |pass: &mut Pass<'_>| PLAIN.synthesize(pass, blocks, true);
        template.fill(columns, fill).expect("a good witness");
        Ok(own)
    };
    for first in 0..=PLAIN.blocks {
        for end in first..=PLAIN.blocks {
            let own = alone(first..end).expect("such blocks");
            let begin = shared.constraints + first * block.constraints;
            assert_eq!(own.a, whole.a[begin..][..own.a.len()]);
            let begin = shared.aux + first * block.aux;
            assert_eq!(own.aux, whole.aux[begin..][..own.aux.len()]);
        }
    }
    #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
    let others = [0..5, 4..5, 5..5, 3..2, 0..usize::MAX, usize::MAX..0];
    for blocks in others {
        let want = format!("blocks {blocks:?} were asked for, the circuit has 4");
        assert_eq!(alone(blocks).expect_err("no such blocks"), want);
    }
}

/// Bytes that a survey may take are told before they are taken.
#[test]
fn a_survey_of_too_many_links_is_refused() {
    let circuit = Squares {
        blocks: 3000,
        rows: 1,
        inputs: 0,
        ..PLAIN
    };
    let survey = |limit_bytes| {
        survey(CUT, Extend::Whole, true, limit_bytes, |pass| {
            circuit.synthesize(pass, 0..circuit.blocks, false)
        })
        .expect("synthesises")
        .map(|template| template.bytes())
    };
    let bytes = survey(LIMIT_BYTES).expect("room enough");
    assert!(bytes > 3000 * 24, "{bytes} bytes");
    let limit_bytes = 3000 * 8;
    assert_eq!(survey(limit_bytes), Err(Uncut::TooLarge { limit_bytes }));
}

/// A circuit long enough to be asked several times.
const LONG: Squares = Squares {
    before: 100,
    apart: 9_000,
    after: 100,
    blocks: 3,
    rows: 9_000,
    inputs: 1,
    uses_apart: false,
    input_apart: false,
};

/// Runs a pass that is given up when it is asked for the n-th time, for every n, and says
/// how often it was asked until it came to its end.
fn given_up_everywhere(
    mut run: impl FnMut(&dyn Fn(&mut Pass<'_>)) -> Result<(), SynthError>,
) -> usize {
    for most in 0..1000 {
        let asked = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&asked);
        let result = run(&|pass: &mut Pass<'_>| {
            let asked = Arc::clone(&asked);
            pass.give_up_when(move || asked.fetch_add(1, Ordering::Relaxed) == most);
        });
        match result {
            Ok(()) => {
                let count = seen.load(Ordering::Relaxed);
                assert_eq!(count, most);
                return count;
            }
            Err(SynthError::GivenUp) => {
                assert_eq!(seen.load(Ordering::Relaxed), most + 1, "not asked again");
            }
            Err(error) => panic!("asked {most} times: {error}"),
        }
    }
    panic!("it never came to an end");
}

#[test]
fn every_pass_can_be_given_up_at_any_point() {
    let all = 0..LONG.blocks;
    let sizes = count(|pass| LONG.synthesize(pass, 0..3, false))
        .expect("counts")
        .sizes;
    // Variables and rows, and now and then a question.
    let want = (sizes.aux + sizes.constraints) / (1 << 12);
    let template = LONG.survey().expect("it repeats");
    let whole = [
        given_up_everywhere(|arm| {
            count(|pass| {
                arm(pass);
                LONG.synthesize(pass, all.clone(), false)
            })
            .map(drop)
        }),
        given_up_everywhere(|arm| {
            let mut columns = dirty(&sizes);
            assign(into(&mut columns), |pass| {
                arm(pass);
                LONG.synthesize(pass, all.clone(), true)
            })
            .map(drop)
        }),
        given_up_everywhere(|arm| {
            explain(|pass| {
                arm(pass);
                LONG.synthesize(pass, all.clone(), true)
            })
            .map(drop)
        }),
        given_up_everywhere(|arm| {
            let found = survey(CUT, Extend::Whole, false, LIMIT_BYTES, |pass| {
                arm(pass);
                LONG.synthesize(pass, all.clone(), false)
            });
            found.map(|found| drop(found.expect("it repeats")))
        }),
    ];
    for asked in whole {
        assert!((want..want + 3).contains(&asked), "{asked} for {want}");
    }
    let asked = given_up_everywhere(|arm| {
        let mut columns = dirty(&sizes);
        let mut cut = template.cut(into(&mut columns), 3).expect("room enough");
        let columns = cut.segments.remove(1);
        let fill = template.fill(columns, |pass| {
            arm(pass);
            LONG.synthesize(pass, 1..2, true)
        });
        fill.map(drop)
    });
    assert!((want / 5..want / 2).contains(&asked), "{asked} for {want}");
}

/// A circuit that has only rows, and one that does not mind that a variable is refused.
#[test]
fn a_pass_is_given_up_whatever_the_circuit_makes_of_it() {
    let built = Cell::new(0);
    let given_up = count(|pass| {
        pass.give_up_when(|| true);
        for _ in 0..10 {
            let term = |lc| {
                built.set(built.get() + 1);
                lc
            };
            pass.enforce(|| "row", term, |lc| lc, |lc| lc);
            pass.alloc(|| "x", || Ok(Scalar::ONE)).ok();
        }
        Ok(())
    });
    assert!(matches!(given_up, Err(SynthError::GivenUp)));
    assert_eq!(built.get(), 0, "no row is built");
}
