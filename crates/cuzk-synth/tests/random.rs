//! Circuits of random rows: whatever a survey finds to repeat, its template gives what a
//! synthesis of the whole gives, and what was made to repeat is found to.

use std::cell::Cell;
use std::ops::Range;

use bellpepper_core::{ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use cuzk_synth::*;
use ff::Field;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Of each test.
const CASES: u32 = 2000;

const CUT: Cut = Cut {
    depth: 1,
    name: "block ",
    apart: Some("apart"),
};

/// What a term is of. Numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Of {
    One,
    /// In a block, each has its own numbering of the shared ones.
    Shared(usize),
    SharedInput(usize),
    Own(usize),
    OwnInput(usize),
    /// Of the block before, if there is one.
    Before(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Aux,
    Input,
    Row([Vec<(i64, Of)>; 3]),
}

#[derive(Clone, Debug)]
struct Random {
    before: Vec<Step>,
    apart: Vec<Step>,
    after: Vec<Step>,
    block: Vec<Step>,
    count: usize,
    /// How far the shared variables are turned from block to block.
    turn: usize,
    /// Whether blocks and what comes before them see what is apart.
    sees_apart: bool,
    /// What one block has otherwise, and at which of its steps.
    other: Option<(usize, usize, Other)>,
}

#[derive(Clone, Debug)]
enum Other {
    /// A step more.
    More(Step),
    /// A step in place of the rest.
    Step(Step),
    /// If it is a row, another variable in the first sum that has any.
    Variable(usize, Of),
    /// And another coefficient.
    Coefficient(usize, i64),
}

impl Other {
    fn change(&self, steps: &mut Vec<Step>, place: usize) {
        match self {
            Self::More(step) => steps.insert(place, step.clone()),
            Self::Step(step) => steps.splice(place.., [step.clone()]).for_each(drop),
            Self::Variable(at, of) => {
                if let Some(term) = term(steps, place, *at) {
                    term.1 = *of;
                }
            }
            Self::Coefficient(at, coefficient) => {
                if let Some(term) = term(steps, place, *at) {
                    term.0 = *coefficient;
                }
            }
        }
    }
}

/// A term of the first sum that has any.
fn term(steps: &mut [Step], place: usize, at: usize) -> Option<&mut (i64, Of)> {
    let Some(Step::Row(sums)) = steps.get_mut(place) else {
        return None;
    };
    let sum = sums.iter_mut().find(|sum| !sum.is_empty())?;
    let at = at % sum.len();
    sum.get_mut(at)
}

/// Variables so far.
#[derive(Clone, Default)]
struct Known {
    aux: Vec<Variable>,
    inputs: Vec<Variable>,
}

/// Any value that differs from variable to variable; zeros and ones have ways of their own.
fn value(seed: usize) -> Scalar {
    match seed % 5 {
        0 => Scalar::ZERO,
        1 => Scalar::ONE,
        _ => Scalar::from(seed as u64).square() - Scalar::from(7),
    }
}

fn pick(from: &[Variable], at: usize) -> Variable {
    match from.len() {
        0 => Variable(Index::Input(0)),
        len => from[at % len],
    }
}

/// The steps, with values from `seed` on.
fn run(
    space: &mut impl ConstraintSystem<Scalar>,
    steps: &[Step],
    seed: usize,
    known: &mut Known,
    of: impl Fn(Of, &Known) -> Variable,
) -> Result<(), SynthesisError> {
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Aux => {
                let aux = space.alloc(|| "x", || Ok(value(seed + index)))?;
                known.aux.push(aux);
            }
            Step::Input => {
                let input = space.alloc_input(|| "y", || Ok(value(seed + index)))?;
                known.inputs.push(input);
            }
            Step::Row(sums) => {
                let sum = |terms: &[(i64, Of)], lc: LinearCombination<Scalar>| {
                    terms.iter().fold(lc, |lc, &(coefficient, term)| {
                        let size = Scalar::from(coefficient.unsigned_abs());
                        let coefficient = if coefficient < 0 { -size } else { size };
                        lc + (coefficient, of(term, known))
                    })
                };
                let [a, b, c] = sums;
                space.enforce(|| "row", |lc| sum(a, lc), |lc| sum(b, lc), |lc| sum(c, lc));
            }
        }
    }
    Ok(())
}

impl Random {
    fn synthesize(&self, pass: &mut Pass<'_>, blocks: Range<usize>) -> Result<(), SynthesisError> {
        let mut outer = pass.namespace(|| "outer");
        let mut shared = Known::default();
        let own = |of: Of, known: &Known| match of {
            Of::One | Of::Before(_) => Variable(Index::Input(0)),
            Of::Shared(at) | Of::Own(at) => pick(&known.aux, at),
            Of::SharedInput(at) | Of::OwnInput(at) => pick(&known.inputs, at),
        };
        run(&mut outer, &self.before, 0, &mut shared, own)?;
        if !outer.get_root().leaves_out() {
            // It sees what is before it.
            let mut known = shared.clone();
            let mut space = outer.namespace(|| "apart");
            run(&mut space, &self.apart, 1000, &mut known, own)?;
            if self.sees_apart {
                shared = known;
            }
        }
        run(&mut outer, &self.after, 2000, &mut shared, own)?;
        let mut before = Known::default();
        for block in blocks {
            let mut space = outer.namespace(|| format!("block {block}"));
            let turn = block * self.turn;
            let of = |of: Of, known: &Known| match of {
                Of::One => Variable(Index::Input(0)),
                Of::Shared(at) => pick(&shared.aux, at % shared.aux.len().max(1) + turn),
                Of::SharedInput(at) => pick(&shared.inputs, at),
                Of::Own(at) => pick(&known.aux, at),
                Of::OwnInput(at) => pick(&known.inputs, at),
                Of::Before(at) => pick(&before.aux, at),
            };
            let mut steps = self.block.clone();
            if let Some((at, place, other)) = &self.other
                && at % self.count == block
            {
                let place = place % (steps.len() + 1);
                other.change(&mut steps, place);
            }
            let mut known = Known::default();
            run(&mut space, &steps, 3000 + 1000 * block, &mut known, of)?;
            before = known;
        }
        Ok(())
    }

    fn survey(&self, extend: Extend) -> Result<Template, Uncut> {
        survey(CUT, extend, true, 1 << 26, |pass| {
            self.synthesize(pass, 0..self.count)
        })
        .expect("it refuses nothing")
    }

    fn segments_are_the_whole(&self, template: &Template) {
        let all = 0..self.count;
        let (whole, assigned) =
            assign_growing(true, |pass| self.synthesize(pass, all.clone())).expect("assigns");
        assert_eq!(template.sizes(), assigned.sizes);
        assert_eq!(template.densities(), assigned.densities);
        for segments in all
            .map(|segment| segment + 1)
            .filter(|count| self.count.is_multiple_of(*count))
        {
            let dirty = |len: usize| vec![Scalar::from(77); len];
            let mut columns = GrownColumns {
                a: dirty(whole.a.len()),
                b: dirty(whole.b.len()),
                c: dirty(whole.c.len()),
                aux: dirty(whole.aux.len()),
            };
            let GrownColumns { a, b, c, aux } = &mut columns;
            let into = AssignColumns {
                a,
                b,
                c: Some(c),
                aux,
            };
            let cut = template.cut(into, segments).expect("room enough");
            let each = self.count / segments;
            let fill = |(segment, columns)| {
                let blocks = segment * each..(segment + 1) * each;
                template
                    .fill(columns, |pass| self.synthesize(pass, blocks))
                    .expect("it is of the template")
            };
            let filled = cut.segments.into_iter().enumerate().map(fill).collect();
            let inputs = template.finish(cut.rest, filled).expect("all of the cut");
            assert_eq!(inputs, assigned.inputs);
            assert!(columns == whole, "{segments} segments");
        }
    }
}

fn of(reaches: bool) -> impl Strategy<Value = Of> {
    let at = 0..20usize;
    prop_oneof![
        1 => Just(Of::One),
        3 => at.clone().prop_map(Of::Shared),
        1 => at.clone().prop_map(Of::SharedInput),
        3 => at.clone().prop_map(Of::Own),
        1 => at.clone().prop_map(Of::OwnInput),
        3 * u32::from(reaches) => at.prop_map(Of::Before),
    ]
}

/// Some coefficients cancel, and others have codes of their own.
fn step() -> impl Strategy<Value = Step> {
    let sum = prop::collection::vec((-2..4i64, of(false)), 0..5);
    prop_oneof![
        3 => Just(Step::Aux),
        1 => Just(Step::Input),
        3 => prop::array::uniform3(sum).prop_map(Step::Row),
    ]
}

fn other() -> impl Strategy<Value = Other> {
    let at = 0..5usize;
    prop_oneof![
        1 => step().prop_map(Other::More),
        1 => step().prop_map(Other::Step),
        3 => (at.clone(), of(true)).prop_map(|(at, of)| Other::Variable(at, of)),
        1 => (at, -2..4i64).prop_map(|(at, coefficient)| Other::Coefficient(at, coefficient)),
    ]
}

/// Ranges of few steps, so that some are empty, some have rows and no variables, and some
/// variables and no rows.
fn random() -> impl Strategy<Value = Random> {
    let steps = |most| prop::collection::vec(step(), 0..most);
    let ranges = (steps(8), steps(6), steps(6), steps(12));
    (ranges, 1..7usize, 0..3usize, any::<bool>()).prop_map(
        |((before, apart, after, block), count, turn, sees_apart)| Random {
            before,
            apart,
            after,
            block,
            count,
            turn,
            sees_apart,
            other: None,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Unless shared variables that are turned change the order of a sum's terms.
    #[test]
    fn what_repeats_is_found_and_the_whole(circuit in random()) {
        match circuit.survey(Extend::Whole) {
            Ok(template) => {
                circuit.segments_are_the_whole(&template);
                let first = Extend::FirstBlock { blocks: circuit.count };
                let first = circuit.survey(first).expect("it has a block");
                prop_assert_eq!(template.is_uniform(), template.digest() == first.digest());
            }
            Err(uncut) => {
                prop_assert!(circuit.turn > 0, "{uncut}");
                prop_assert!(matches!(uncut, Uncut::Differs { .. }), "{uncut}");
            }
        }
    }
}

/// What differs may still come to the same rows: then they are right, and else they are
/// not taken for them. Both are to be met often.
#[test]
fn what_is_found_to_repeat_is_the_whole() {
    let (found, refused) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(ProptestConfig {
        source_file: Some(file!()),
        ..ProptestConfig::with_cases(CASES)
    });
    let run = runner.run(
        &(random(), 0..7usize, 0..13usize, other()),
        |(circuit, block, place, other)| {
            let other = Some((block, place, other));
            let circuit = Random { other, ..circuit };
            let counter = match circuit.survey(Extend::Whole) {
                Ok(template) => {
                    circuit.segments_are_the_whole(&template);
                    &found
                }
                Err(_) => &refused,
            };
            // One block is like itself.
            if circuit.count > 1 {
                counter.set(counter.get() + 1);
            }
            Ok(())
        },
    );
    run.unwrap_or_else(|error| panic!("{error}"));
    let (found, refused) = (found.get(), refused.get());
    assert!(
        found.min(refused) >= CASES / 4,
        "{found} found to repeat, {refused} not"
    );
}
