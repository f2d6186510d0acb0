//! A circuit that is compared with its first block by several walks: each block once, by
//! whoever comes first, and nothing is found where one of them is not read to its end.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellpepper_core::{ConstraintSystem, LinearCombination, SynthesisError};
use blstrs::Scalar;
use cuzk_synth::*;

const CUT: Cut = Cut {
    depth: 0,
    name: "block ",
    apart: None,
};
const LIMIT_BYTES: usize = 1 << 20;
const SHARED_ROWS: usize = 3;
const BLOCKS: usize = 6;
const ROWS: usize = 10;

/// What is unlike in the circuit that is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    Nothing,
    /// A row of the block has another coefficient.
    Coefficient(usize),
    /// The row has more terms than any that is stored.
    Long(usize),
    /// The row uses a variable of the block before.
    Reaches(usize),
    /// The block uses another shared variable.
    Link(usize),
    /// The block has a row more.
    Row(usize),
    /// A row that all blocks share uses another variable.
    Shared,
    /// There are so many blocks.
    Blocks(usize),
    /// The circuit goes on after its last block.
    End,
    /// It refuses, in the block.
    Refuses(usize),
}

/// Reads the blank circuit; `built` hears of each row that is built, `before` of each block.
fn synthesize(
    pass: &mut Pass<'_>,
    other: Other,
    built: impl Fn(),
    mut before: impl FnMut(usize),
) -> Result<(), SynthesisError> {
    let missing = || Err(SynthesisError::AssignmentMissing);
    let shared = [
        pass.alloc(|| "x", missing)?,
        pass.alloc_input(|| "y", missing)?,
        pass.alloc(|| "z", missing)?,
    ];
    for row in 0..SHARED_ROWS {
        let turn = usize::from(row == 1 && other == Other::Shared);
        let x = shared[2 * turn];
        let a = |lc: LinearCombination<Scalar>| {
            built();
            lc + x
        };
        pass.enforce(|| "row", a, |lc| lc + x, |lc| lc + shared[1]);
    }
    let mut last = shared[0];
    let blocks = match other {
        Other::Blocks(blocks) => blocks,
        _ => BLOCKS,
    };
    for block in 0..blocks {
        before(block);
        let mut space = pass.namespace(|| format!("block {block}"));
        let own = space.alloc(|| "own", missing)?;
        space.alloc_input(|| "public", missing)?;
        if other == Other::Refuses(block) {
            return Err(SynthesisError::DivisionByZero);
        }
        let linked = if other == Other::Link(block) { 2 } else { 0 };
        for row in 0..ROWS {
            let coefficient = u64::from(other == Other::Coefficient(block) && row == ROWS / 2);
            let a = |mut lc: LinearCombination<Scalar>| {
                built();
                if other == Other::Long(block) {
                    lc = lc + shared[1] + shared[2];
                }
                if other == Other::Reaches(block) {
                    return lc + last;
                }
                lc + (Scalar::from(coefficient + 5), own)
            };
            space.enforce(|| "row", a, |lc| lc + own, |lc| lc + shared[linked]);
        }
        if other == Other::Row(block) {
            space.enforce(|| "more", |lc| lc, |lc| lc, |lc| lc);
        }
        last = own;
    }
    if other == Other::End {
        pass.alloc(|| "more", missing)?;
    }
    Ok(())
}

fn blank(pass: &mut Pass<'_>, other: Other) -> Result<(), SynthesisError> {
    synthesize(pass, other, || {}, |_| {})
}

fn survey_of(extend: Extend, with_c: bool) -> Template {
    survey(CUT, extend, with_c, LIMIT_BYTES, |pass| {
        blank(pass, Other::Nothing)
    })
    .expect("a blank circuit needs no witness")
    .expect("it repeats")
}

fn first_block(blocks: usize) -> Template {
    survey_of(Extend::FirstBlock { blocks }, true)
}

fn comparison(template: &Template) -> Comparison<'_> {
    Comparison::new(template, CUT).expect("it has the rows of C")
}

#[test]
fn what_the_first_block_told_is_the_template_of_the_whole() {
    let (whole, first) = (survey_of(Extend::Whole, true), first_block(BLOCKS));
    let comparison = comparison(&first);
    assert!(!comparison.is_equal(), "nobody has looked");
    let walked = comparison.walk(|pass| blank(pass, Other::Nothing));
    walked.expect("a blank circuit needs no witness");
    assert!(comparison.is_equal());
    let told = |template: &Template| {
        let (sizes, densities) = (template.sizes(), template.densities());
        let bytes = (template.bytes(), template.survey_bytes());
        (template.digest(), sizes, densities, bytes)
    };
    let first = first.trimmed(true).expect("room enough");
    assert_eq!(told(&first), told(&whole));
    // Nobody evaluates C.
    let without = survey_of(Extend::Whole, false);
    let first = first_block(BLOCKS).trimmed(false).expect("room enough");
    assert!(!first.has_c());
    assert_eq!(told(&first), told(&without));
    assert!(matches!(Comparison::new(&first, CUT), Err(SynthError::NoC)));
}

#[test]
fn a_circuit_with_fewer_blocks_has_as_many_as_are_said() {
    let first = first_block(BLOCKS);
    for (said, blocks, is_equal) in [(3, 3, true), (2, 2, true), (3, 2, false), (3, 4, false)] {
        let comparison = comparison(&first).with_blocks(said);
        let walked = comparison.walk(|pass| blank(pass, Other::Blocks(blocks)));
        walked.expect("a blank circuit needs no witness");
        assert_eq!(comparison.is_equal(), is_equal, "{said} and {blocks}");
    }
}

/// The second walk begins and ends while the first is before a block: that and the later
/// ones are its, and no block is built twice.
#[test]
fn each_block_is_compared_once() {
    for split in 0..BLOCKS {
        let first = first_block(BLOCKS);
        let comparison = comparison(&first);
        let built = [0, 0].map(Cell::new);
        let count = |walk: usize| built[walk].set(built[walk].get() + 1);
        let other = || {
            let walk = |pass: &mut Pass<'_>| synthesize(pass, Other::Nothing, || count(1), |_| {});
            comparison.walk(walk).expect("a blank circuit");
        };
        let before = |block| {
            if block == split {
                other();
            }
        };
        let walk = |pass: &mut Pass<'_>| synthesize(pass, Other::Nothing, || count(0), before);
        comparison.walk(walk).expect("a blank circuit");
        assert!(comparison.is_equal());
        let of_first = split.saturating_sub(1);
        let of_second = BLOCKS - 1 - of_first;
        let want = [of_first, of_second].map(|blocks| SHARED_ROWS + blocks * ROWS);
        assert_eq!(built.map(Cell::into_inner), want, "split before {split}");
        // Who comes after all are taken does nothing.
        let late = comparison.walk(|_| unreachable!("nothing is left"));
        late.expect("nothing to do");
        assert!(comparison.is_equal());
    }
}

#[test]
fn threads_find_together_what_one_does() {
    for threads in [1, 2, 4, 9] {
        for other in [Other::Nothing, Other::Coefficient(2)] {
            let first = first_block(BLOCKS);
            let comparison = comparison(&first);
            let begin = Barrier::new(threads);
            let built = AtomicUsize::new(0);
            let count = || {
                built.fetch_add(1, Ordering::Relaxed);
            };
            let walk = |pass: &mut Pass<'_>| {
                begin.wait();
                synthesize(pass, other, count, |_| {})
            };
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| comparison.walk(walk).expect("a blank circuit"));
                }
            });
            let is_same = other == Other::Nothing;
            assert_eq!(comparison.is_equal(), is_same, "{threads} threads");
            let once = threads * SHARED_ROWS + (BLOCKS - 1) * ROWS;
            let built = built.into_inner();
            assert!(if is_same { built == once } else { built < once });
        }
    }
}

#[test]
fn whatever_differs_is_found() {
    let of_blocks = (1..BLOCKS).flat_map(|block| {
        [
            Other::Coefficient(block),
            Other::Long(block),
            Other::Reaches(block),
            Other::Link(block),
            Other::Row(block),
        ]
    });
    let of_all = [
        Other::Shared,
        Other::End,
        Other::Row(0),
        Other::Blocks(BLOCKS - 1),
        Other::Blocks(BLOCKS + 1),
        Other::Blocks(0),
    ];
    for other in of_blocks.chain(of_all) {
        let first = first_block(BLOCKS);
        let comparison = comparison(&first);
        let walked = comparison.walk(|pass| blank(pass, other));
        walked.expect("a blank circuit needs no witness");
        assert!(!comparison.is_equal(), "{other:?}");
    }
}

/// There is nothing to compare, but that there is no more.
#[test]
fn one_block_is_a_circuit_too() {
    for (blocks, is_equal) in [(1, true), (2, false), (0, false)] {
        let first = first_block(1);
        let comparison = comparison(&first);
        let walked = comparison.walk(|pass| blank(pass, Other::Blocks(blocks)));
        walked.expect("a blank circuit needs no witness");
        assert_eq!(comparison.is_equal(), is_equal, "{blocks} blocks");
    }
}

/// A block that was taken and not compared to its end is nobody's any more: the other walk
/// ends at its next block, and nothing is found.
#[test]
fn a_walk_that_does_not_come_to_its_end_ends_the_others() {
    for way in ["panics", "refuses", "gives up"] {
        let first = first_block(BLOCKS);
        let comparison = comparison(&first);
        let lost = || match way {
            "panics" => {
                let walk = |pass: &mut Pass<'_>| {
                    // After its second block.
                    synthesize(
                        pass,
                        Other::Nothing,
                        || {},
                        |block| {
                            assert_ne!(block, 3, "a fault of the test");
                        },
                    )
                };
                let panic = catch_unwind(AssertUnwindSafe(|| comparison.walk(walk)));
                assert!(panic.is_err(), "it panics");
            }
            "refuses" => {
                let error = comparison.walk(|pass| blank(pass, Other::Refuses(2)));
                let error = error.expect_err("it refuses");
                assert!(matches!(error, SynthError::Circuit(_)), "{error}");
            }
            _ => {
                let error = comparison.walk(|pass| {
                    pass.give_up_when(|| true);
                    blank(pass, Other::Nothing)
                });
                let error = error.expect_err("it is given up");
                assert!(matches!(error, SynthError::GivenUp), "{error}");
            }
        };
        let reached = Cell::new(0);
        let before = |block| {
            reached.set(block);
            if block == 1 {
                lost();
            }
        };
        let walk = |pass: &mut Pass<'_>| synthesize(pass, Other::Nothing, || {}, before);
        comparison.walk(walk).expect("told to stop");
        assert_eq!(reached.get(), 1, "{way}: it need not go on");
        assert!(!comparison.is_equal(), "{way}");
    }
}
