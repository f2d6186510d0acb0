//! The memory of a survey: nothing is taken beyond its limit, and the bytes that it is
//! said to need are enough, and the fewest that are.

use std::cell::Cell;

use bellpepper_core::{ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use cuzk_synth::*;

const CUT: Cut = Cut {
    depth: 0,
    name: "block ",
    apart: None,
};

/// Rows of one linear combination over many variables.
#[derive(Clone, Copy, Debug)]
struct Wide {
    shared: usize,
    blocks: usize,
    rows: usize,
    /// Terms of a row.
    terms: usize,
    /// Different coefficients.
    coefficients: u64,
}

const NARROW: Wide = Wide {
    shared: 3,
    blocks: 1,
    rows: 1,
    terms: 2,
    coefficients: 1,
};

impl Wide {
    fn synthesize(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        let missing = || Err(SynthesisError::AssignmentMissing);
        let shared = (0..self.shared)
            .map(|_| pass.alloc(|| "shared", missing))
            .collect::<Result<Vec<Variable>, _>>()?;
        for block in 0..self.blocks {
            let mut space = pass.namespace(|| format!("block {block}"));
            let own = space.alloc(|| "own", missing)?;
            for row in 0..self.rows {
                let sum = |mut lc: LinearCombination<Scalar>| {
                    for term in 0..self.terms {
                        let coefficient = (row * self.terms + term) as u64 % self.coefficients;
                        let variable = shared[term % shared.len()];
                        lc = lc + (Scalar::from(coefficient + 1), variable);
                    }
                    lc
                };
                space.enforce(|| "row", sum, |lc| lc + own, sum);
            }
        }
        Ok(())
    }

    fn survey(&self, extend: Extend, with_c: bool, limit_bytes: u64) -> Result<Template, Uncut> {
        let limit_bytes = usize::try_from(limit_bytes).expect("a small limit");
        let found = survey(CUT, extend, with_c, limit_bytes, |pass| {
            self.synthesize(pass)
        });
        let found = found.expect("a blank circuit needs no witness")?;
        assert!(found.bytes() <= limit_bytes as u64);
        found.trimmed(with_c)
    }
}

#[test]
fn what_a_survey_needs_is_enough_and_the_least_that_is() {
    let mut circuits: Vec<Wide> = (1..18).map(|blocks| Wide { blocks, ..NARROW }).collect();
    circuits.extend((1..40).map(|rows| Wide {
        rows,
        blocks: 2,
        ..NARROW
    }));
    circuits.extend([4095, 4096, 4097, 8191, 8192, 8193].map(|rows| Wide { rows, ..NARROW }));
    circuits.extend((1..40).map(|shared| Wide {
        shared,
        terms: shared,
        blocks: 3,
        ..NARROW
    }));
    circuits.extend((1..40).map(|coefficients| Wide {
        coefficients,
        rows: 30,
        ..NARROW
    }));
    for circuit in circuits {
        let first = Extend::FirstBlock {
            blocks: circuit.blocks,
        };
        for extend in [Extend::Whole, first] {
            let survey = |limit_bytes| {
                let template = circuit.survey(extend, true, limit_bytes)?;
                assert!(
                    template.bytes() <= template.survey_bytes(),
                    "{circuit:?} {extend:?}"
                );
                Ok(template.survey_bytes())
            };
            let need = survey(1 << 30).expect("room enough");
            for more in [need, need + 1] {
                assert_eq!(survey(more), Ok(need), "{circuit:?} {extend:?}");
            }
            let limit_bytes = need as usize - 1;
            assert_eq!(
                survey(need - 1),
                Err(Uncut::TooLarge { limit_bytes }),
                "{circuit:?} {extend:?}"
            );
        }
        // A process believes what an earlier one wrote, of whichever.
        for with_c in [true, false] {
            let found = [Extend::Whole, first].map(|extend| {
                let template = circuit.survey(extend, with_c, 1 << 30);
                let template = template.expect("room enough");
                assert_eq!(template.has_c(), with_c);
                (template.survey_bytes(), template.bytes())
            });
            assert_eq!(found[0], found[1], "{circuit:?}, C: {with_c}");
        }
    }
}

/// No row is built after the first for which there is no room, however long they are.
#[test]
fn long_rows_are_not_stored_beyond_the_limit() {
    let limit_bytes = 1 << 20;
    for terms in [1 << 10, 1 << 12, 1 << 14, u16::MAX.into()] {
        let built = Cell::new(0);
        let found = survey(CUT, Extend::Whole, false, limit_bytes, |pass| {
            let variables = (0..terms)
                .map(|_| pass.alloc(|| "x", || Ok(Scalar::from(1))))
                .collect::<Result<Vec<_>, _>>()?;
            for _ in 0..4096 {
                let sum = |lc| {
                    built.set(built.get() + 1);
                    variables.iter().fold(lc, |lc, &variable| lc + variable)
                };
                pass.enforce(|| "row", sum, |lc| lc, |lc| lc);
            }
            Ok(())
        });
        let uncut = found.expect("synthesises").expect_err("no room");
        assert_eq!(uncut, Uncut::TooLarge { limit_bytes });
        let term_bytes = size_of::<u32>() + size_of::<u16>();
        let most = limit_bytes / (terms * term_bytes) + 1;
        assert!(built.get() <= most, "{} rows of {terms} terms", built.get());
    }
}

/// What is too long for its code is not even gathered, in any block.
#[test]
fn a_row_has_fewer_than_two_to_the_sixteen_terms() {
    let found = |terms, long| {
        let found = survey(CUT, Extend::Whole, false, 1 << 26, |pass| {
            let variables = (0..terms)
                .map(|_| pass.alloc(|| "x", || Ok(Scalar::from(1))))
                .collect::<Result<Vec<_>, _>>()?;
            for block in 0..3 {
                let mut space = pass.namespace(|| format!("block {block}"));
                let terms = if block == long { terms } else { 1 };
                let sum = |lc| {
                    variables[..terms]
                        .iter()
                        .fold(lc, |lc, &variable| lc + variable)
                };
                space.enforce(|| "row", sum, |lc| lc, |lc| lc);
            }
            Ok(())
        });
        found.expect("synthesises").expect_err("blocks differ")
    };
    for long in 0..3 {
        assert_eq!(found(1 << 16, long), Uncut::TooVaried);
        let block = long.max(1);
        assert_eq!(found((1 << 16) - 1, long), Uncut::Differs { block, row: 0 });
    }
}
