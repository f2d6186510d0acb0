//! One concrete constraint system for all passes, so that a circuit is compiled
//! once and not once a pass.

use bellpepper_core::{ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::Field;

use crate::assign::Assign;
use crate::compare::Compare;
use crate::count::Count;
use crate::error::SynthError;
use crate::explain::Explain;
use crate::qap::Qap;
use crate::survey::Survey;
use crate::witness::Witness;

/// The constraint system that circuits are synthesised into. What it does with
/// them is its mode: [`assign`](crate::assign), [`count`](crate::count),
/// [`qap`](crate::qap), [`survey`](crate::survey),
/// [`Comparison::walk`](crate::Comparison::walk), [`Template::fill`](crate::Template::fill)
/// or [`explain`](crate::explain) make one.
pub struct Pass<'a> {
    mode: Mode<'a>,
    stop: Stop,
}

/// Variables and rows between two times that a pass asks whether it is to go on: a few
/// milliseconds of the slowest one.
const STOP_INTERVAL: u32 = 1 << 12;

/// Whether the pass is given up.
struct Stop {
    ask: Option<Box<dyn Fn() -> bool + Send>>,
    /// Variables and rows until it is asked next.
    left: u32,
    is_told: bool,
}

impl Stop {
    fn never() -> Self {
        Self {
            ask: None,
            left: STOP_INTERVAL,
            is_told: false,
        }
    }

    #[inline]
    fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0 && self.is_asked()
    }

    #[cold]
    fn is_asked(&mut self) -> bool {
        self.is_told = self.is_told || self.ask.as_ref().is_some_and(|ask| ask());
        self.left = if self.is_told { 1 } else { STOP_INTERVAL };
        self.is_told
    }
}

enum Mode<'a> {
    Assign(Assign<'a>),
    Count(Count),
    Qap(Qap),
    Survey(Box<Survey>),
    Compare(Box<Compare<'a>>),
    Witness(Witness<'a>),
    Explain(Explain),
}

impl<'a> Pass<'a> {
    fn new(mode: Mode<'a>) -> Self {
        let stop = Stop::never();
        Self { mode, stop }
    }

    /// From now on the pass asks now and then, within milliseconds, whether it is to be
    /// given up. Once it is, it takes no variable and builds no row, and what ran it
    /// gives [`SynthError::GivenUp`].
    pub fn give_up_when(&mut self, ask: impl Fn() -> bool + Send + 'static) {
        self.stop = Stop {
            ask: Some(Box::new(ask)),
            // What is begun after that is known is not begun.
            left: 1,
            is_told: false,
        };
    }

    /// Whether the circuit is to leave out what its [`Cut`](crate::Cut) says to stand
    /// apart, and which would begin here: the segment does without, and another one has
    /// it. Elsewhere, and in every other pass, it is false.
    pub fn leaves_out(&self) -> bool {
        match &self.mode {
            Mode::Witness(state) => state.leaves_out(),
            _ => false,
        }
    }

    /// What a circuit ended with.
    pub(crate) fn ended(&self, result: Result<(), SynthesisError>) -> Result<(), SynthError> {
        if self.stop.is_told {
            return Err(SynthError::GivenUp);
        }
        Ok(result?)
    }

    #[inline]
    fn go_on(&mut self) -> Result<(), SynthesisError> {
        if self.stop.is_due() {
            return Err(SynthesisError::Unsatisfiable);
        }
        Ok(())
    }

    pub(crate) fn assigning(state: Assign<'a>) -> Self {
        Self::new(Mode::Assign(state))
    }

    pub(crate) fn counting() -> Self {
        Self::new(Mode::Count(Count::default()))
    }

    pub(crate) fn evaluating(state: Qap) -> Self {
        Self::new(Mode::Qap(state))
    }

    pub(crate) fn surveying(state: Survey) -> Self {
        Self::new(Mode::Survey(Box::new(state)))
    }

    pub(crate) fn comparing(state: Compare<'a>) -> Self {
        Self::new(Mode::Compare(Box::new(state)))
    }

    pub(crate) fn witnessing(state: Witness<'a>) -> Self {
        Self::new(Mode::Witness(state))
    }

    pub(crate) fn explaining() -> Self {
        Self::new(Mode::Explain(Explain::default()))
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

    pub(crate) fn into_compare(self) -> Compare<'a> {
        match self.mode {
            Mode::Compare(state) => *state,
            _ => unreachable!("made by `comparing`"),
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
) -> Result<(), SynthError> {
    pass.alloc_input(|| "one", || Ok(Scalar::ONE))?;
    let result = synthesize(pass);
    pass.ended(result)?;
    for input in 0..pass.inputs() {
        pass.enforce(
            || format!("input {input}"),
            |lc| lc + Variable::new_unchecked(Index::Input(input)),
            |lc| lc,
            |lc| lc,
        );
    }
    pass.ended(Ok(()))
}

impl Pass<'_> {
    fn inputs(&self) -> usize {
        match &self.mode {
            Mode::Assign(state) => state.inputs(),
            Mode::Count(state) => state.inputs(),
            Mode::Qap(state) => state.inputs(),
            Mode::Explain(state) => state.inputs(),
            Mode::Survey(_) | Mode::Compare(_) | Mode::Witness(_) => {
                unreachable!("a template has the input rows")
            }
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
        self.go_on()?;
        let index = match &mut self.mode {
            Mode::Assign(state) => state.alloc(value()?),
            Mode::Count(state) => state.alloc(),
            Mode::Qap(state) => state.alloc(),
            Mode::Survey(state) => state.alloc()?,
            Mode::Compare(state) => state.alloc()?,
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
        self.go_on()?;
        let index = match &mut self.mode {
            Mode::Assign(state) => state.alloc_input(value()?),
            Mode::Count(state) => state.alloc_input(),
            Mode::Qap(state) => state.alloc_input(),
            Mode::Survey(state) => state.alloc_input()?,
            Mode::Compare(state) => state.alloc_input()?,
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
        if self.stop.is_due() {
            return;
        }
        let zero = LinearCombination::zero;
        match &mut self.mode {
            Mode::Assign(state) => state.enforce(a(zero()), b(zero()), || c(zero())),
            Mode::Count(state) => state.enforce([a(zero()), b(zero()), c(zero())]),
            Mode::Qap(state) => state.enforce([a(zero()), b(zero()), c(zero())]),
            Mode::Survey(state) => state.enforce(|| [a(zero()), b(zero()), c(zero())]),
            Mode::Compare(state) => state.enforce(|| [a(zero()), b(zero()), c(zero())]),
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
            Mode::Compare(state) => state.push_namespace(name),
            _ => {}
        }
    }

    fn pop_namespace(&mut self) {
        match &mut self.mode {
            Mode::Explain(state) => state.pop_namespace(),
            Mode::Survey(state) => state.pop_namespace(),
            Mode::Compare(state) => state.pop_namespace(),
            _ => {}
        }
    }

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}
