//! Random circuits, and a constraint system that records what a prover needs.

use bellpepper_core::{
    Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError, Variable,
};
use blstrs::Scalar;
use ff::Field;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::cpu::tests::scalar;
use crate::shape::{Bitmap, CircuitShape, CircuitSizes};

/// A circuit drawn from a seed: the same seed and counts give the same circuit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RandomCircuit {
    pub(crate) seed: u64,
    /// Products, each with its own variable for the result.
    pub(crate) products: usize,
    /// Inputs before the products, beside the constant one.
    pub(crate) early_inputs: usize,
    /// Inputs allocated after the products.
    pub(crate) late_inputs: usize,
    /// Variables in no constraint.
    pub(crate) unused: usize,
    /// Whether all variables but the constant one are bits.
    pub(crate) is_boolean: bool,
    /// Whether results are inputs, so that there are no auxiliary variables.
    pub(crate) has_no_aux: bool,
    /// Whether B takes inputs too.
    pub(crate) has_inputs_in_b: bool,
}

impl RandomCircuit {
    /// All kinds of circuits, with the number of constraints (products, inputs and
    /// the constant's row) on both sides of the powers of two up to 64.
    pub(crate) fn strategy() -> impl Strategy<Value = Self> {
        (
            any::<u64>(),
            prop_oneof![0usize..8, 11usize..18, 26usize..34, 56usize..66],
            0usize..4,
            0usize..3,
            0usize..3,
            any::<[bool; 3]>(),
        )
            .prop_map(
                |(seed, products, early_inputs, late_inputs, unused, flags)| Self {
                    seed,
                    products,
                    early_inputs,
                    late_inputs,
                    unused,
                    is_boolean: flags[0],
                    has_no_aux: flags[1],
                    has_inputs_in_b: flags[2],
                },
            )
    }

    /// A plain circuit of some products.
    pub(crate) fn of_products(products: usize, seed: u64) -> Self {
        Self {
            seed,
            products,
            early_inputs: 2,
            late_inputs: 1,
            unused: 0,
            is_boolean: false,
            has_no_aux: false,
            has_inputs_in_b: true,
        }
    }
}

/// A variable and its value.
type Known = (Variable, Scalar);

impl Circuit<Scalar> for RandomCircuit {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut known: Vec<Known> = vec![(CS::one(), Scalar::ONE)];
        for _ in 0..self.early_inputs {
            let value = self.value(&mut rng);
            known.push((cs.alloc_input(|| "early", || Ok(value))?, value));
        }
        if !self.has_no_aux {
            for _ in 0..self.unused {
                let value = scalar(&mut rng);
                cs.alloc(|| "unused", || Ok(value))?;
            }
        }
        for _ in 0..self.products {
            let left = self.combination(&mut rng, &known, true);
            let right = self.combination(&mut rng, &known, self.has_inputs_in_b);
            let value = left.1 * right.1;
            // A bit is a bit's product with itself; the combinations above are
            // then of no use.
            let (left, right, value) = if self.is_boolean {
                let bit = Scalar::from(u64::from(rng.next_u32() % 2));
                (None, None, bit)
            } else {
                (Some(left.0), Some(right.0), value)
            };
            let result = if self.has_no_aux {
                cs.alloc_input(|| "result", || Ok(value))?
            } else {
                cs.alloc(|| "result", || Ok(value))?
            };
            cs.enforce(
                || "product",
                |lc| left.unwrap_or(lc + result),
                |lc| right.unwrap_or(lc + result),
                |lc| lc + result,
            );
            known.push((result, value));
        }
        for _ in 0..self.late_inputs {
            let value = self.value(&mut rng);
            cs.alloc_input(|| "late", || Ok(value))?;
        }
        Ok(())
    }
}

impl RandomCircuit {
    fn value(&self, rng: &mut ChaCha8Rng) -> Scalar {
        if self.is_boolean {
            Scalar::from(u64::from(rng.next_u32() % 2))
        } else {
            scalar(rng)
        }
    }

    /// Up to four terms of known variables, some with a coefficient of zero, and
    /// their value.
    fn combination(
        &self,
        rng: &mut ChaCha8Rng,
        known: &[Known],
        with_inputs: bool,
    ) -> (LinearCombination<Scalar>, Scalar) {
        let mut terms = LinearCombination::zero();
        let mut value = Scalar::ZERO;
        for _ in 0..rng.next_u32() % 5 {
            let (variable, assigned) = known[rng.next_u32() as usize % known.len()];
            let coefficient = scalar(rng);
            if with_inputs || matches!(variable.get_unchecked(), Index::Aux(_)) {
                terms = terms + (coefficient, variable);
                value += coefficient * assigned;
            }
        }
        (terms, value)
    }
}

/// What a prover needs of a synthesised circuit, in the clear.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    pub(crate) a: Vec<Scalar>,
    pub(crate) b: Vec<Scalar>,
    pub(crate) c: Vec<Scalar>,
    pub(crate) inputs: Vec<Scalar>,
    pub(crate) aux: Vec<Scalar>,
    /// The rows of the three matrices.
    pub(crate) rows: Vec<[LinearCombination<Scalar>; 3]>,
    a_aux: Vec<bool>,
    b_inputs: Vec<bool>,
    b_aux: Vec<bool>,
}

impl Assignment {
    /// Synthesises a circuit and adds the rows of the inputs.
    pub(crate) fn of(circuit: impl Circuit<Scalar>) -> Self {
        let mut assignment = Self::default();
        assignment
            .alloc_input(|| "one", || Ok(Scalar::ONE))
            .expect("the constant is known");
        circuit
            .synthesize(&mut assignment)
            .expect("all values are known");
        for input in 0..assignment.inputs.len() {
            let input = Variable::new_unchecked(Index::Input(input));
            assignment.enforce(|| "input", |lc| lc + input, |lc| lc, |lc| lc);
        }
        assignment
    }

    pub(crate) fn shape(&self) -> CircuitShape {
        CircuitShape {
            sizes: CircuitSizes {
                inputs: self.inputs.len(),
                aux: self.aux.len(),
                constraints: self.a.len(),
            },
            a_aux: bitmap(&self.a_aux),
            b_inputs: bitmap(&self.b_inputs),
            b_aux: bitmap(&self.b_aux),
        }
    }
}

/// A bitmap of some bits.
pub(crate) fn bitmap(bits: &[bool]) -> Bitmap {
    let words: Vec<u64> = bits
        .chunks(64)
        .map(|bits| {
            bits.iter()
                .enumerate()
                .fold(0, |word, (at, &bit)| word | u64::from(bit) << at)
        })
        .collect();
    Bitmap::new(words.into(), bits.len())
}

impl ConstraintSystem<Scalar> for Assignment {
    type Root = Self;

    fn new() -> Self {
        Self::default()
    }

    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.aux.push(value()?);
        self.a_aux.push(false);
        self.b_aux.push(false);
        Ok(Variable::new_unchecked(Index::Aux(self.aux.len() - 1)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.inputs.push(value()?);
        self.b_inputs.push(false);
        Ok(Variable::new_unchecked(Index::Input(self.inputs.len() - 1)))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        let a = a(LinearCombination::zero());
        let b = b(LinearCombination::zero());
        let c = c(LinearCombination::zero());
        for (&at, coefficient) in a.iter_aux() {
            self.a_aux[at] |= !coefficient.is_zero_vartime();
        }
        for (&at, coefficient) in b.iter_inputs() {
            self.b_inputs[at] |= !coefficient.is_zero_vartime();
        }
        for (&at, coefficient) in b.iter_aux() {
            self.b_aux[at] |= !coefficient.is_zero_vartime();
        }
        self.a.push(a.eval(&self.inputs, &self.aux));
        self.b.push(b.eval(&self.inputs, &self.aux));
        self.c.push(c.eval(&self.inputs, &self.aux));
        self.rows.push([a, b, c]);
    }

    fn push_namespace<NR, N>(&mut self, _: N)
    where
        NR: Into<String>,
        N: FnOnce() -> NR,
    {
    }

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}
