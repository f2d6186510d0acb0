//! One concrete constraint system for all passes, so that a circuit is compiled
//! once and not once a pass.

use bellpepper_core::{ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::Field;

use crate::assign::Assign;
use crate::count::Count;
use crate::explain::Explain;
use crate::qap::Qap;
use crate::survey::Survey;
use crate::witness::Witness;

/// The constraint system that circuits are synthesised into. What it does with
/// them is its mode: [`assign`](crate::assign), [`count`](crate::count),
/// [`qap`](crate::qap), [`survey`](crate::survey), [`Template::fill`](crate::Template::fill)
/// or [`explain`](crate::explain) make one.
pub struct Pass<'a> {
    mode: Mode<'a>,
}

enum Mode<'a> {
    Assign(Assign<'a>),
    Count(Count),
    Qap(Qap),
    Survey(Box<Survey>),
    Witness(Witness<'a>),
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

    pub(crate) fn surveying(state: Survey) -> Self {
        Self {
            mode: Mode::Survey(Box::new(state)),
        }
    }

    pub(crate) fn witnessing(state: Witness<'a>) -> Self {
        Self {
            mode: Mode::Witness(state),
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

    pub(crate) fn into_survey(self) -> Survey {
        match self.mode {
            Mode::Survey(state) => *state,
            _ => unreachable!("made by `surveying`"),
        }
    }

    pub(crate) fn into_witness(self) -> Witness<'a> {
        match self.mode {
            Mode::Witness(state) => state,
            _ => unreachable!("made by `witnessing`"),
        }
    }

    pub(crate) fn into_explain(self) -> Explain {
        match self.mode {
            Mode::Explain(state) => state,
            _ => unreachable!("made by `explaining`"),
        }
    }
}

/// The variable that stands for every other where no linear combination is read. Gadgets
/// build some before they hand them over: of one variable those stay one term long.
const ANY: Variable = Variable(Index::Input(0));

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
            Mode::Survey(_) | Mode::Witness(_) => unreachable!("a template has the input rows"),
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
            Mode::Survey(state) => state.alloc()?,
            Mode::Witness(state) => {
                state.alloc(value()?);
                return Ok(ANY);
            }
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
            Mode::Survey(state) => state.alloc_input()?,
            Mode::Witness(state) => {
                state.alloc_input(value()?);
                return Ok(ANY);
            }
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
            Mode::Survey(state) => state.enforce([a(zero()), b(zero()), c(zero())]),
            Mode::Witness(state) => state.enforce(),
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
        match &mut self.mode {
            Mode::Explain(state) => state.push_namespace(name().into()),
            Mode::Survey(state) => state.push_namespace(name),
            _ => {}
        }
    }

    fn pop_namespace(&mut self) {
        match &mut self.mode {
            Mode::Explain(state) => state.pop_namespace(),
            Mode::Survey(state) => state.pop_namespace(),
            _ => {}
        }
    }

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}
