//! One concrete constraint system for all passes, so that a circuit is compiled
//! once and not once a pass.

use bellpepper_core::{ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::Field;

use crate::assign::Assign;
use crate::count::Count;
use crate::explain::Explain;
use crate::qap::Qap;

/// The constraint system that circuits are synthesised into. What it does with
/// them is its mode: [`assign`](crate::assign), [`count`](crate::count),
/// [`qap`](crate::qap) or [`explain`](crate::explain) make one.
pub struct Pass<'a> {
    mode: Mode<'a>,
}

enum Mode<'a> {
    Assign(Assign<'a>),
    Count(Count),
    Qap(Qap),
    Explain(Explain),
}

impl<'a> Pass<'a> {
    pub(crate) fn assigning(state: Assign<'a>) -> Self {
        Self {
            mode: Mode::Assign(state),
        }
    }

    pub(crate) fn counting() -> Self {
        Self {
            mode: Mode::Count(Count::default()),
        }
    }

    pub(crate) fn evaluating(state: Qap) -> Self {
        Self {
            mode: Mode::Qap(state),
        }
    }

    pub(crate) fn explaining() -> Self {
        Self {
            mode: Mode::Explain(Explain::default()),
        }
    }

    pub(crate) fn into_assign(self) -> Assign<'a> {
        match self.mode {
            Mode::Assign(state) => state,
            _ => unreachable!("made by `assigning`"),
        }
    }

    pub(crate) fn into_count(self) -> Count {
        match self.mode {
            Mode::Count(state) => state,
            _ => unreachable!("made by `counting`"),
        }
    }

    pub(crate) fn into_qap(self) -> Qap {
        match self.mode {
            Mode::Qap(state) => state,
            _ => unreachable!("made by `evaluating`"),
        }
    }

    pub(crate) fn into_explain(self) -> Explain {
        match self.mode {
            Mode::Explain(state) => state,
            _ => unreachable!("made by `explaining`"),
        }
    }
}

/// Synthesises a whole Groth16 circuit: the constant one, the circuit, and the
/// row `input * 0 = 0` for each input, which keeps every input in the A query.
pub(crate) fn run<'a>(
    pass: &mut Pass<'a>,
    synthesize: impl FnOnce(&mut Pass<'a>) -> Result<(), SynthesisError>,
) -> Result<(), SynthesisError> {
    pass.alloc_input(|| "one", || Ok(Scalar::ONE))?;
    synthesize(pass)?;
    for input in 0..pass.inputs() {
        pass.enforce(
            || format!("input {input}"),
            |lc| lc + Variable::new_unchecked(Index::Input(input)),
            |lc| lc,
            |lc| lc,
        );
    }
    Ok(())
}

impl Pass<'_> {
    fn inputs(&self) -> usize {
        match &self.mode {
            Mode::Assign(state) => state.inputs(),
            Mode::Count(state) => state.inputs(),
            Mode::Qap(state) => state.inputs(),
            Mode::Explain(state) => state.inputs(),
        }
    }
}

impl ConstraintSystem<Scalar> for Pass<'_> {
    type Root = Self;

    #[inline]
    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        let index = match &mut self.mode {
            Mode::Assign(state) => state.alloc(value()?),
            Mode::Count(state) => state.alloc(),
            Mode::Qap(state) => state.alloc(),
            Mode::Explain(state) => state.alloc(value()?),
        };
        Ok(Variable::new_unchecked(Index::Aux(index)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        let index = match &mut self.mode {
            Mode::Assign(state) => state.alloc_input(value()?),
            Mode::Count(state) => state.alloc_input(),
            Mode::Qap(state) => state.alloc_input(),
            Mode::Explain(state) => state.alloc_input(value()?),
        };
        Ok(Variable::new_unchecked(Index::Input(index)))
    }

    #[inline]
    fn enforce<A, AR, LA, LB, LC>(&mut self, name: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        let zero = LinearCombination::zero;
        match &mut self.mode {
            Mode::Assign(state) => state.enforce(a(zero()), b(zero()), || c(zero())),
            Mode::Count(state) => state.enforce([a(zero()), b(zero()), c(zero())]),
            Mode::Qap(state) => state.enforce([a(zero()), b(zero()), c(zero())]),
            Mode::Explain(state) => {
                state.enforce(|| name().into(), [a(zero()), b(zero()), c(zero())]);
            }
        }
    }

    fn push_namespace<NR, N>(&mut self, name: N)
    where
        NR: Into<String>,
        N: FnOnce() -> NR,
    {
        if let Mode::Explain(state) = &mut self.mode {
            state.push_namespace(name().into());
        }
    }

    fn pop_namespace(&mut self) {
        if let Mode::Explain(state) = &mut self.mode {
            state.pop_namespace();
        }
    }

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}
