//! Circuits that repeat: a template gives what a synthesis of the whole gives, and a
//! circuit that only nearly repeats has none.

use std::ops::Range;

use bellpepper_core::{ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use cuzk_synth::*;
use ff::Field;
use proptest::prelude::*;

const CUT: Cut = Cut {
    apart: None,
    depth: 1,
    name: "block ",
};
const LIMIT_BYTES: usize = 1 << 24;

/// A circuit as data: shared variables with their squares, then blocks of products.
#[derive(Clone, Debug)]
struct Blocks {
    shared: Vec<u64>,
    rows: Vec<Row>,
    count: usize,
    /// Whether each block begins with a shared variable of its own.
    own_shared: bool,
    flaw: Option<Flaw>,
}

#[derive(Clone, Debug)]
struct Row {
    left: usize,
    right: usize,
    coefficients: [i64; 3],
    public: bool,
}

/// What makes one block unlike the others.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    Coefficient { block: usize, row: usize },
    Variable { block: usize, row: usize },
    MoreTerms { block: usize, row: usize },
    Rows { block: usize },
    Variables { block: usize },
}

fn scalar(value: i64) -> Scalar {
    let size = Scalar::from(value.unsigned_abs());
    if value < 0 { -size } else { size }
}

type Known = Vec<(Variable, Option<Scalar>)>;

impl Blocks {
    /// What is shared, then some of the blocks.
    fn synthesize(
        &self,
        pass: &mut Pass<'_>,
        blocks: Range<usize>,
        blank: bool,
    ) -> Result<(), SynthesisError> {
        self.synthesize_with(pass, blocks, blank, |_| {})
    }

    /// With something to be done before each block.
    fn synthesize_with(
        &self,
        pass: &mut Pass<'_>,
        blocks: Range<usize>,
        blank: bool,
        mut before: impl FnMut(usize),
    ) -> Result<(), SynthesisError> {
        let mut shared = Known::new();
        for (index, &seed) in self.shared.iter().enumerate() {
            let value = (!blank).then(|| Scalar::from(seed));
            let get = || value.ok_or(SynthesisError::AssignmentMissing);
            let variable = pass.alloc(|| "shared", get)?;
            shared.push((variable, value));
            let square = value.map(|value| value.square());
            let get = || square.ok_or(SynthesisError::AssignmentMissing);
            let product = if index == 0 {
                pass.alloc_input(|| "square", get)?
            } else {
                pass.alloc(|| "square", get)?
            };
            pass.enforce(
                || "square",
                |lc| lc + variable,
                |lc| lc + variable,
                |lc| lc + product,
            );
        }
        let mut outer = pass.namespace(|| "outer");
        for block in blocks {
            before(block);
            let mut space = outer.namespace(|| format!("block {block}"));
            self.block(&mut space, block, &shared)?;
        }
        Ok(())
    }

    fn block(
        &self,
        space: &mut impl ConstraintSystem<Scalar>,
        block: usize,
        shared: &Known,
    ) -> Result<(), SynthesisError> {
        let own = if self.own_shared {
            block % shared.len()
        } else {
            0
        };
        let mut known = vec![shared[own], *shared.last().expect("at least one")];
        for (index, row) in self.rows.iter().enumerate() {
            let at = |flaw: fn(usize, usize) -> Flaw| self.flaw == Some(flaw(block, index));
            let mut left = row.left % known.len();
            if at(|block, row| Flaw::Variable { block, row }) {
                left = (left + 1) % known.len();
            }
            let (left, right) = (known[left], known[row.right % known.len()]);
            let [mut one, x, y] = row.coefficients.map(scalar);
            if at(|block, row| Flaw::Coefficient { block, row }) {
                one += Scalar::ONE;
            }
            let value = left
                .1
                .zip(right.1)
                .map(|(left, right)| (one + x * left) * (y * right));
            let get = || value.ok_or(SynthesisError::AssignmentMissing);
            let product = if row.public {
                space.alloc_input(|| "product", get)?
            } else {
                space.alloc(|| "product", get)?
            };
            let more = at(|block, row| Flaw::MoreTerms { block, row });
            let a = |lc: LinearCombination<Scalar>| {
                let lc = lc + (x, left.0) + (one, Variable(bellpepper_core::Index::Input(0)));
                if more { lc + product } else { lc }
            };
            space.enforce(|| "multiply", a, |lc| lc + (y, right.0), |lc| lc + product);
            known.push((product, value));
        }
        if self.flaw == Some(Flaw::Rows { block }) {
            space.enforce(|| "nothing", |lc| lc, |lc| lc, |lc| lc);
        }
        if self.flaw == Some(Flaw::Variables { block }) {
            space.alloc(|| "nothing", || Ok(Scalar::ONE))?;
        }
        Ok(())
    }

    fn whole(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.synthesize(pass, 0..self.count, false)
    }

    fn survey(&self, extend: Extend) -> Result<Template, Uncut> {
        survey(CUT, extend, true, LIMIT_BYTES, |pass| {
            self.synthesize(pass, 0..self.count, true)
        })
        .expect("a blank circuit needs no witness")
    }

    /// Whether two walks find that the first block tells the circuit, the second of them
    /// begun and ended before the first comes to block `split`.
    fn is_told_by_the_first(&self, split: usize) -> bool {
        let blocks = self.count;
        let first = self.survey(Extend::FirstBlock { blocks });
        let first = first.expect("has one");
        let comparison = Comparison::new(&first, CUT).expect("it has the rows of C");
        let other = || {
            let walked = comparison.walk(|pass| self.synthesize(pass, 0..blocks, true));
            walked.expect("a blank circuit needs no witness");
        };
        let walked = comparison.walk(|pass| {
            self.synthesize_with(pass, 0..blocks, true, |block| {
                if block == split {
                    other();
                }
            })
        });
        walked.expect("a blank circuit needs no witness");
        comparison.is_equal()
    }
}

/// Coefficients 0, 1 and -1 have ways of their own; three more are enough to differ.
fn row() -> impl Strategy<Value = Row> {
    (
        any::<usize>(),
        any::<usize>(),
        prop::array::uniform3(-2..4i64),
        any::<bool>(),
    )
        .prop_map(|(left, right, coefficients, public)| Row {
            left,
            right,
            coefficients,
            public,
        })
}

/// Rows of a block up to more than a word of a density, so that blocks lie across words.
fn blocks() -> impl Strategy<Value = Blocks> {
    (
        // Values 0 and 1 have ways of their own.
        prop::collection::vec(0..4u64, 1..5),
        prop::collection::vec(row(), 1..80),
        1..7usize,
        any::<bool>(),
    )
        .prop_map(|(shared, rows, count, own_shared)| Blocks {
            shared,
            rows,
            count,
            own_shared,
            flaw: None,
        })
}

/// Columns of four, filled with what a pool might have left in them.
struct Owned([Vec<Scalar>; 4]);

impl Owned {
    fn new(constraints: usize, aux: usize) -> Self {
        let dirty = |len| vec![Scalar::from(77); len];
        Self([constraints, constraints, constraints, aux].map(dirty))
    }

    fn columns(&mut self) -> AssignColumns<'_> {
        let [a, b, c, aux] = &mut self.0;
        AssignColumns {
            a,
            b,
            c: Some(c),
            aux,
        }
    }
}

fn hex(template: &Template) -> String {
    template
        .digest()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

proptest! {
    #[test]
    fn a_template_gives_what_the_whole_circuit_gives(circuit in blocks(), slack in 0..3usize) {
        let template = circuit.survey(Extend::Whole).expect("it repeats");
        let Sizes { aux, constraints, .. } = template.sizes();
        let mut whole = Owned::new(constraints + slack, aux + slack);
        let assigned = assign(whole.columns(), |pass| circuit.whole(pass)).expect("room enough");
        prop_assert_eq!(template.sizes(), assigned.sizes);
        prop_assert_eq!(template.densities(), assigned.densities);

        // Every way of dividing the blocks, the last segment first.
        for segments in (1..=circuit.count).filter(|count| circuit.count % count == 0) {
            let mut apart = Owned::new(constraints + slack, aux + slack);
            let each = circuit.count / segments;
            let cut = template.cut(apart.columns(), segments).expect("room enough");
            let mut filled: Vec<_> = cut.segments.into_iter().enumerate().rev()
                .map(|(segment, columns)| {
                    let range = segment * each..(segment + 1) * each;
                    let circuit = |pass: &mut Pass<'_>| circuit.synthesize(pass, range, false);
                    template.fill(columns, circuit).expect("a good witness")
                })
                .collect();
            filled.reverse();
            let inputs = template.finish(cut.rest, filled).expect("all of the cut");
            prop_assert_eq!(&inputs, &assigned.inputs);
            prop_assert_eq!(&apart.0, &whole.0);
        }
    }

    #[test]
    fn the_first_block_tells_the_circuit_if_all_use_the_same(circuit in blocks()) {
        let whole = circuit.survey(Extend::Whole).expect("it repeats");
        let first = circuit.survey(Extend::FirstBlock { blocks: circuit.count }).expect("has one");
        prop_assert_eq!(whole.is_uniform(), hex(&whole) == hex(&first));
        prop_assert!(circuit.own_shared || whole.is_uniform());
    }

    #[test]
    fn a_template_gives_the_qap_of_the_whole_circuit(circuit in blocks(), pieces in 0..5usize) {
        let template = circuit.survey(Extend::Whole).expect("it repeats");
        let tau = Scalar::from(0x0123_4567_89ab_cdef);
        let sizes = template.sizes();
        let whole = qap(&sizes, tau, |pass| circuit.whole(pass)).expect("tau is no root");
        let zeros = || vec![Scalar::ZERO; sizes.aux];
        let mut aux = QapColumns { a: zeros(), b: zeros(), c: zeros() };
        let columns = QapAux { a: &mut aux.a, b: &mut aux.b, c: &mut aux.c };
        let (cut, rest) = template.cut_qap(columns, tau, pieces).expect("columns are long enough");
        prop_assert!(cut.len() <= pieces.max(1));
        // The last first: their order does not matter.
        let parts = cut.into_iter().rev().map(|piece| template.evaluate_qap(piece)).collect();
        let inputs = template.finish_qap(rest, parts);
        prop_assert_eq!(QapAtTau { inputs, aux }, whole);
    }

    #[test]
    fn two_walks_find_what_a_survey_of_the_whole_does(circuit in blocks(), split in 1..8usize) {
        let whole = circuit.survey(Extend::Whole).expect("it repeats");
        prop_assert_eq!(circuit.is_told_by_the_first(split), whole.is_uniform());
    }

    #[test]
    fn a_flaw_in_a_block_is_found(
        circuit in blocks(), block in 1..7usize, row in any::<prop::sample::Index>(), kind in 0..3,
    ) {
        prop_assume!(circuit.count > 1);
        let row = row.index(circuit.rows.len());
        let block = 1 + block % (circuit.count - 1);
        let flaw = match kind {
            0 => Flaw::Coefficient { block, row },
            1 => Flaw::MoreTerms { block, row },
            _ => Flaw::Rows { block },
        };
        let flawed = Blocks { flaw: Some(flaw), ..circuit.clone() };
        for split in 1..=circuit.count {
            prop_assert!(!flawed.is_told_by_the_first(split), "{split}");
        }
        let uncut = flawed.survey(Extend::Whole).expect_err("one block is another");
        match flaw {
            // A coefficient that is zero is no term.
            Flaw::Rows { .. } => {
                let rows = circuit.rows.len();
                prop_assert_eq!(uncut, Uncut::Differs { block, row: rows });
            }
            _ => prop_assert_eq!(uncut, Uncut::Differs { block, row }),
        }
    }
}

fn squares() -> Blocks {
    let row = Row {
        left: 0,
        right: 2,
        coefficients: [1, 2, 1],
        public: false,
    };
    Blocks {
        shared: vec![3, 5],
        rows: vec![row; 4],
        count: 3,
        own_shared: false,
        flaw: None,
    }
}

#[test]
fn what_does_not_repeat_is_said() {
    let flawed = |flaw| {
        let circuit = Blocks {
            flaw: Some(flaw),
            ..squares()
        };
        circuit
            .survey(Extend::Whole)
            .expect_err("flawed")
            .to_string()
    };
    assert_eq!(
        flawed(Flaw::Variable { block: 2, row: 3 }),
        "row 3 of block 2 differs from that of block 0"
    );
    assert_eq!(
        flawed(Flaw::Variables { block: 1 }),
        "block 1 is not of the size of block 0"
    );
    // Seen from the second block, it is the first one that has more.
    assert_eq!(
        flawed(Flaw::Rows { block: 0 }),
        "block 1 is not of the size of block 0"
    );
}

#[test]
fn a_row_that_reaches_into_another_block_is_found() {
    let found = survey(CUT, Extend::Whole, false, LIMIT_BYTES, |pass| {
        let mut outer = pass.namespace(|| "outer");
        let mut before = None;
        for block in 0..2 {
            let mut space = outer.namespace(|| format!("block {block}"));
            let variable = space.alloc(|| "x", || Ok(Scalar::ONE))?;
            let other = *before.get_or_insert(variable);
            space.enforce(|| "row", |lc| lc + other, |lc| lc + other, |lc| lc);
        }
        Ok(())
    });
    let uncut = found.expect("synthesises").expect_err("not cut");
    assert_eq!(uncut, Uncut::Reaches { block: 1, row: 0 });
}

#[test]
fn marks_and_limits_are_told() {
    let circuit = squares();
    let survey = |cut, limit_bytes| {
        survey(cut, Extend::Whole, false, limit_bytes, |pass| {
            circuit.whole(pass)
        })
        .expect("synthesises")
        .map(|template| template.blocks())
    };
    let other = Cut {
        name: "challenge",
        ..CUT
    };
    assert_eq!(survey(CUT, LIMIT_BYTES), Ok(3));
    assert_eq!(survey(other, LIMIT_BYTES), Err(Uncut::NoBlock));
    assert_eq!(
        survey(Cut { depth: 0, ..CUT }, LIMIT_BYTES),
        Err(Uncut::NoBlock)
    );
    assert_eq!(survey(CUT, 8), Err(Uncut::TooLarge { limit_bytes: 8 }));
}

#[test]
fn any_number_of_blocks_may_be_said() {
    let circuit = squares();
    let survey = |blocks| {
        let found = circuit.survey(Extend::FirstBlock { blocks });
        found.map(|template| (template.blocks(), template.sizes().constraints))
    };
    let limit_bytes = LIMIT_BYTES;
    assert_eq!(survey(3), Ok((3, 16)));
    assert_eq!(survey(0), Err(Uncut::NoBlock));
    for blocks in [1 << 30, usize::MAX] {
        assert_eq!(survey(blocks), Err(Uncut::TooLarge { limit_bytes }));
    }
    // The rows and what every block links to are held together.
    let found: Vec<_> = (0..64)
        .map(|step| {
            circuit.survey(Extend::FirstBlock {
                blocks: 1 + step * LIMIT_BYTES / 1024,
            })
        })
        .collect();
    let held = found.iter().flatten().map(|template| template.bytes());
    assert!(held.clone().all(|bytes| bytes <= LIMIT_BYTES as u64));
    assert!(
        held.max() > Some(LIMIT_BYTES as u64 / 2),
        "some come close to it"
    );
    assert!(found.iter().any(Result::is_err), "and some beyond");
}

#[test]
fn a_circuit_that_refuses_is_no_survey() {
    let error = survey(CUT, Extend::Whole, false, LIMIT_BYTES, |_| {
        Err(SynthesisError::DivisionByZero)
    })
    .expect_err("the circuit's error");
    assert!(matches!(error, SynthError::Circuit(_)), "{error}");
}

#[test]
fn a_segment_of_another_circuit_is_refused() {
    let circuit = squares();
    let template = circuit.survey(Extend::Whole).expect("it repeats");
    let Sizes {
        aux, constraints, ..
    } = template.sizes();
    let fill = |range: Range<usize>, circuit: &Blocks| {
        let mut owned = Owned::new(constraints, aux);
        let mut cut = template.cut(owned.columns(), 3).expect("room enough");
        let filled = template.fill(cut.segments.remove(1), |pass| {
            circuit.synthesize(pass, range, false)
        });
        filled.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(fill(1..2, &circuit), Ok(()));
    assert_eq!(
        fill(1..3, &circuit),
        Err("a segment wrote 11 auxiliary variables, its circuit's has 7".to_owned())
    );
    let mut more_rows = circuit.clone();
    more_rows.flaw = Some(Flaw::Rows { block: 1 });
    assert_eq!(
        fill(1..2, &more_rows),
        Err("a segment wrote 7 constraints, its circuit's has 6".to_owned())
    );
    let mut owned = Owned::new(constraints, aux);
    assert!(matches!(
        template.cut(owned.columns(), 2),
        Err(SynthError::UnevenSegments {
            blocks: 3,
            segments: 2
        })
    ));
    let mut short = Owned::new(constraints, aux - 1);
    let error = template.cut(short.columns(), 3).expect_err("too short");
    assert!(
        matches!(error, SynthError::HintTooSmall { column: ColumnName::Aux, want, .. }
            if want == template.sizes()),
        "{error}"
    );
}

#[test]
fn a_key_wants_the_rows_of_c_and_long_columns() {
    let circuit = squares();
    let survey = |with_c| {
        let blank = |pass: &mut Pass<'_>| circuit.synthesize(pass, 0..circuit.count, true);
        let found = survey(CUT, Extend::Whole, with_c, LIMIT_BYTES, blank);
        found.expect("a blank circuit").expect("it repeats")
    };
    let refused = |template: &Template, len: usize| {
        let [mut a, mut b, mut c] = [(); 3].map(|()| vec![Scalar::ZERO; len]);
        let aux = QapAux {
            a: &mut a,
            b: &mut b,
            c: &mut c,
        };
        let cut = template.cut_qap(aux, Scalar::from(7), 1).map(|_| ());
        cut.expect_err("nothing to evaluate")
    };
    let template = survey(true);
    let aux = template.sizes().aux;
    assert!(matches!(refused(&survey(false), aux), SynthError::NoC));
    assert!(matches!(
        refused(&template, aux - 1),
        SynthError::HintTooSmall { have, .. } if have == aux - 1
    ));
}
