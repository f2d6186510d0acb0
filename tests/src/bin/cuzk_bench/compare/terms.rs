//! Where a linear combination keeps its terms: the combinations of a real circuit, recorded
//! once, are built and evaluated again term by term. How bellpepper keeps them is its own
//! matter, so that this is studied by replay.
//!
//! What gadgets build on the way and drop before a constraint is not recorded: the figures
//! are of building and evaluating, not of a whole synthesis.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail, ensure};
use bellpepper_core::{
    Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError, Variable,
};
use blstrs::Scalar;
use cuzk_core::Config;
use cuzk_filecoin::fixture::{self, FixtureOptions};
use cuzk_filecoin::{FilecoinCircuit, ProofKind};
use cuzk_tests::oracle;
use cuzk_tests::request::RequestFile;
use filecoin_proofs::PoStType;
use smallvec::SmallVec;

use super::{Options, Run, Runner, Timer};

const REQUEST_SEED: u64 = 1;

/// A term: variable and coefficient.
type Term = (usize, Scalar);

/// What keeps terms.
trait Terms: Default {
    fn push(&mut self, term: Term);
    fn terms(&self) -> &[Term];
    fn clear(&mut self);
}

impl Terms for Vec<Term> {
    #[inline]
    fn push(&mut self, term: Term) {
        Vec::push(self, term);
    }

    fn terms(&self) -> &[Term] {
        self
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }
}

impl<const INLINE: usize> Terms for SmallVec<[Term; INLINE]>
where
    [Term; INLINE]: smallvec::Array<Item = Term>,
{
    #[inline]
    fn push(&mut self, term: Term) {
        SmallVec::push(self, term);
    }

    fn terms(&self) -> &[Term] {
        self
    }

    fn clear(&mut self) {
        SmallVec::clear(self);
    }
}

/// Replays what was recorded, and gives what each combination comes to.
type Replay = fn(&Recorded, &mut Vec<Scalar>);

/// The ways, by the value of `bench.terms`.
const WAYS: [(&str, Replay); 6] = [
    ("vec", replay::<Vec<Term>, false>),
    ("recycled", replay::<Vec<Term>, true>),
    ("smallvec-1", replay::<SmallVec<[Term; 1]>, false>),
    ("smallvec-2", replay::<SmallVec<[Term; 2]>, false>),
    ("smallvec-4", replay::<SmallVec<[Term; 4]>, false>),
    ("smallvec-8", replay::<SmallVec<[Term; 8]>, false>),
];

/// Records and lets the ways run.
pub(super) fn with(options: &Options, drive: impl FnOnce(Runner<'_>) -> Result<()>) -> Result<()> {
    let mut ways = Vec::new();
    for switches in options.switches()? {
        switches.apply(Config::new("keys".into()), &["terms"])?;
        let name = switches.own("terms").context("want bench.terms")?;
        let way = WAYS.iter().find(|(way, _)| *way == name);
        let (_, replay) = way.with_context(|| format!("bench.terms: {name} is no way"))?;
        ways.push(*replay);
    }
    let recorded = record(options.circuit.parse()?)?;
    eprintln!(
        "{} combinations of {} terms, {} coefficients",
        recorded.combinations.len(),
        recorded.terms.len(),
        recorded.coefficients.len()
    );
    let mut results = Vec::with_capacity(recorded.expected.len());
    drive(&mut |setting, spoil| {
        results.clear();
        let timer = Timer::start();
        ways[setting](&recorded, &mut results);
        let metrics = timer.told();
        if spoil {
            results.pop();
        }
        ensure!(
            results == recorded.expected,
            "other values than the circuit's"
        );
        Ok(Run {
            metrics,
            used: BTreeMap::from([(
                "terms".to_owned(),
                format!(
                    "{} of {}",
                    recorded.combinations.len(),
                    recorded.terms.len()
                ),
            )]),
        })
    })
}

fn record(circuit: FilecoinCircuit) -> Result<Recorded> {
    let FilecoinCircuit { kind, sector_size } = circuit;
    let options = FixtureOptions::default();
    let fixture = fixture::generate(kind, sector_size, REQUEST_SEED, &options)?;
    let mut json = Vec::new();
    fixture.write_json(&mut json)?;
    let file = RequestFile::parse(&json)?;
    let mut recorder = Recorder::default();
    match kind {
        ProofKind::PoRep => oracle::porep(&file)?.synthesize(&mut recorder)?,
        ProofKind::SnapDeals => oracle::snap(&file)?.synthesize(&mut recorder)?,
        ProofKind::WindowPost => {
            oracle::post(&file, PoStType::Window)?.synthesize(&mut recorder)?;
        }
        ProofKind::WinningPost => {
            oracle::post(&file, PoStType::Winning)?.synthesize(&mut recorder)?;
        }
    }
    recorder.end()
}

/// The combinations of a circuit, and the values of its variables.
struct Recorded {
    /// Terms of inputs and of others, of each combination.
    combinations: Vec<[u32; 2]>,
    /// Variable and coefficient of each term, by their places.
    terms: Vec<[u32; 2]>,
    coefficients: Vec<Scalar>,
    inputs: Vec<Scalar>,
    aux: Vec<Scalar>,
    /// What each combination comes to.
    expected: Vec<Scalar>,
}

/// A combination of inputs and other variables, built as bellpepper's: taken by value with
/// each term more and given back, so that what lies in it moves with it.
#[derive(Default)]
struct Combination<T> {
    inputs: T,
    aux: T,
}

impl<T: Terms> Combination<T> {
    fn with_input(mut self, term: Term) -> Self {
        self.inputs.push(term);
        self
    }

    fn with_aux(mut self, term: Term) -> Self {
        self.aux.push(term);
        self
    }

    fn cleared(mut self) -> Self {
        self.inputs.clear();
        self.aux.clear();
        self
    }

    fn evaluate(&self, inputs: &[Scalar], aux: &[Scalar]) -> Scalar {
        let one = Scalar::from(1);
        let mut sum = Scalar::from(0);
        for (terms, values) in [(&self.inputs, inputs), (&self.aux, aux)] {
            for (variable, coefficient) in terms.terms() {
                let value = &values[*variable];
                if *coefficient == one {
                    sum += value;
                } else {
                    sum += *value * coefficient;
                }
            }
        }
        sum
    }
}

/// Builds and evaluates every combination. Without `RECYCLED` each one's terms have a place
/// of their own, which goes with it.
fn replay<T: Terms, const RECYCLED: bool>(recorded: &Recorded, results: &mut Vec<Scalar>) {
    let mut terms = recorded.terms.iter().map(|[variable, coefficient]| {
        let coefficient = recorded.coefficients[*coefficient as usize];
        (*variable as usize, coefficient)
    });
    let mut kept = Combination::<T>::default();
    for [inputs, aux] in &recorded.combinations {
        let mut built = if RECYCLED {
            std::mem::take(&mut kept).cleared()
        } else {
            Combination::default()
        };
        for term in terms.by_ref().take(*inputs as usize) {
            built = built.with_input(term);
        }
        for term in terms.by_ref().take(*aux as usize) {
            built = built.with_aux(term);
        }
        results.push(built.evaluate(&recorded.inputs, &recorded.aux));
        if RECYCLED {
            kept = built;
        }
    }
}

/// The constraint system that records.
struct Recorder {
    combinations: Vec<[u32; 2]>,
    terms: Vec<[u32; 2]>,
    /// Places of coefficients, by their bytes.
    places: HashMap<[u8; 32], u32>,
    coefficients: Vec<Scalar>,
    inputs: Vec<Scalar>,
    aux: Vec<Scalar>,
    expected: Vec<Scalar>,
    /// Whether there was more than a place has room for.
    is_full: bool,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            combinations: Vec::new(),
            terms: Vec::new(),
            places: HashMap::new(),
            coefficients: Vec::new(),
            // The constant.
            inputs: vec![Scalar::from(1)],
            aux: Vec::new(),
            expected: Vec::new(),
            is_full: false,
        }
    }
}

impl Recorder {
    fn keep(&mut self, combination: &LinearCombination<Scalar>) {
        let inputs: Vec<Term> = combination
            .iter_inputs()
            .map(|(at, by)| (*at, *by))
            .collect();
        let aux: Vec<Term> = combination.iter_aux().map(|(at, by)| (*at, *by)).collect();
        for (variable, coefficient) in inputs.iter().chain(&aux) {
            let next = self.coefficients.len();
            let place = *self
                .places
                .entry(coefficient.to_bytes_le())
                .or_insert_with(|| {
                    self.coefficients.push(*coefficient);
                    next as u32
                });
            self.is_full |= u32::try_from(next.max(*variable)).is_err();
            self.terms.push([*variable as u32, place]);
        }
        self.combinations
            .push([inputs.len() as u32, aux.len() as u32]);
        self.expected
            .push(combination.eval(&self.inputs, &self.aux));
    }

    fn end(self) -> Result<Recorded> {
        if self.is_full {
            bail!("more variables than 32 bits count");
        }
        Ok(Recorded {
            combinations: self.combinations,
            terms: self.terms,
            coefficients: self.coefficients,
            inputs: self.inputs,
            aux: self.aux,
            expected: self.expected,
        })
    }
}

impl ConstraintSystem<Scalar> for Recorder {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.aux.push(value()?);
        Ok(Variable::new_unchecked(Index::Aux(self.aux.len() - 1)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.inputs.push(value()?);
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
        self.keep(&a(LinearCombination::zero()));
        self.keep(&b(LinearCombination::zero()));
        self.keep(&c(LinearCombination::zero()));
    }

    fn push_namespace<NR, N>(&mut self, _: N)
    where
        NR: Into<String>,
        N: FnOnce() -> NR,
    {
    }

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self {
        self
    }
}
