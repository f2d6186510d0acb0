//! The assign pass: a witness becomes columns.

use bellpepper_core::{LinearCombination, SynthesisError};
use blstrs::Scalar;
use ff::Field;

use crate::density::Densities;
use crate::error::{ColumnName, SynthError};
use crate::linear::{Values, evaluate};
use crate::{Pass, Sizes, run};

/// Where the columns of a part are written. `a` and `b` (and `c`, if asked for)
/// take one value a constraint, `aux` one a private variable; what is longer than
/// the circuit is filled with zeros.
#[derive(Debug)]
pub struct AssignColumns<'a> {
    /// Evaluations of A.
    pub a: &'a mut [Scalar],
    /// Evaluations of B.
    pub b: &'a mut [Scalar],
    /// Evaluations of C, for provers that do not take it as the product of A and B.
    pub c: Option<&'a mut [Scalar]>,
    /// The auxiliary assignment.
    pub aux: &'a mut [Scalar],
}

/// Columns on the heap that grew as the circuit wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrownColumns {
    /// Evaluations of A.
    pub a: Vec<Scalar>,
    /// Evaluations of B.
    pub b: Vec<Scalar>,
    /// Evaluations of C, empty unless asked for.
    pub c: Vec<Scalar>,
    /// The auxiliary assignment.
    pub aux: Vec<Scalar>,
}

/// What an assign pass gives beside the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// Public inputs, the constant one first.
    pub inputs: Vec<Scalar>,
    /// Element counts.
    pub sizes: Sizes,
    /// Densities, as the key generator has them.
    pub densities: Densities,
}

/// Synthesises into columns whose sizes are known, from a hint or a count.
///
/// # Errors
/// [`SynthError::HintTooSmall`] with the true sizes if a column was too short,
/// [`SynthError::Circuit`] if the circuit refused its witness.
pub fn assign(
    columns: AssignColumns<'_>,
    synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
) -> Result<Assigned, SynthError> {
    let hint = Sizes {
        inputs: 0,
        aux: columns.aux.len(),
        constraints: columns.a.len(),
    };
    let mut pass = Assign::new(
        Sink::slice(columns.a),
        Sink::slice(columns.b),
        columns.c.map(Sink::slice),
        Sink::slice(columns.aux),
    );
    pass.densities.a_aux.reserve(hint.aux);
    pass.densities.b_aux.reserve(hint.aux);
    pass.run(synthesize).map(|(assigned, _)| assigned)
}

/// Synthesises a circuit of unknown size: the columns grow on the heap.
///
/// # Errors
/// [`SynthError::Circuit`] if the circuit refused its witness.
pub fn assign_growing(
    with_c: bool,
    synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
) -> Result<(GrownColumns, Assigned), SynthError> {
    let grow = || Sink::Grow(Vec::new());
    let pass = Assign::new(grow(), grow(), with_c.then(grow), grow());
    let (assigned, pass) = pass.run(synthesize)?;
    let columns = GrownColumns {
        a: pass.a.into_vec(),
        b: pass.b.into_vec(),
        c: pass.c.map(Sink::into_vec).unwrap_or_default(),
        aux: pass.aux.into_vec(),
    };
    Ok((columns, assigned))
}

/// A column being written: the caller's memory with a cursor, or a vector.
enum Sink<'a> {
    Slice { out: &'a mut [Scalar], len: usize },
    Grow(Vec<Scalar>),
}

impl<'a> Sink<'a> {
    fn slice(out: &'a mut [Scalar]) -> Self {
        Sink::Slice { out, len: 0 }
    }

    /// Past the end of a slice values are counted and lost; `overflow` tells.
    #[inline]
    fn push(&mut self, value: Scalar) {
        match self {
            Sink::Slice { out, len } => {
                if let Some(place) = out.get_mut(*len) {
                    *place = value;
                }
                *len += 1;
            }
            Sink::Grow(values) => values.push(value),
        }
    }

    fn len(&self) -> usize {
        match self {
            Sink::Slice { len, .. } => *len,
            Sink::Grow(values) => values.len(),
        }
    }

    fn values(&self) -> &[Scalar] {
        match self {
            Sink::Slice { out, len } => &out[..out.len().min(*len)],
            Sink::Grow(values) => values,
        }
    }

    /// Length of the memory if more was pushed than it holds.
    fn overflow(&self) -> Option<usize> {
        match self {
            Sink::Slice { out, len } => (*len > out.len()).then_some(out.len()),
            Sink::Grow(_) => None,
        }
    }

    fn zero_rest(&mut self) {
        if let Sink::Slice { out, len } = self {
            out[*len..].fill(Scalar::ZERO);
        }
    }

    fn into_vec(self) -> Vec<Scalar> {
        match self {
            Sink::Slice { out, len } => out[..len].to_vec(),
            Sink::Grow(values) => values,
        }
    }
}

/// State of the pass.
pub(crate) struct Assign<'a> {
    inputs: Vec<Scalar>,
    a: Sink<'a>,
    b: Sink<'a>,
    c: Option<Sink<'a>>,
    aux: Sink<'a>,
    densities: Densities,
}

impl<'a> Assign<'a> {
    fn new(a: Sink<'a>, b: Sink<'a>, c: Option<Sink<'a>>, aux: Sink<'a>) -> Self {
        Self {
            inputs: Vec::new(),
            a,
            b,
            c,
            aux,
            densities: Densities::default(),
        }
    }

    fn run(
        self,
        synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
    ) -> Result<(Assigned, Self), SynthError> {
        let mut pass = Pass::assigning(self);
        run(&mut pass, synthesize)?;
        let mut this = pass.into_assign();
        let sizes = this.sizes();
        let columns = [
            (ColumnName::Aux, Some(&mut this.aux)),
            (ColumnName::A, Some(&mut this.a)),
            (ColumnName::B, Some(&mut this.b)),
            (ColumnName::C, this.c.as_mut()),
        ];
        for (column, sink) in columns
            .into_iter()
            .filter_map(|(name, sink)| Some((name, sink?)))
        {
            if let Some(have) = sink.overflow() {
                return Err(SynthError::HintTooSmall {
                    column,
                    have,
                    want: sizes,
                });
            }
            sink.zero_rest();
        }
        let inputs = std::mem::take(&mut this.inputs);
        let densities = std::mem::take(&mut this.densities);
        Ok((
            Assigned {
                inputs,
                sizes,
                densities,
            },
            this,
        ))
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            inputs: self.inputs.len(),
            aux: self.aux.len(),
            constraints: self.a.len(),
        }
    }

    #[inline]
    pub(crate) fn alloc(&mut self, value: Scalar) -> usize {
        self.aux.push(value);
        self.densities.a_aux.push();
        self.densities.b_aux.push();
        self.aux.len() - 1
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs.len()
    }

    pub(crate) fn alloc_input(&mut self, value: Scalar) -> usize {
        self.inputs.push(value);
        self.densities.b_inputs.push();
        self.inputs.len() - 1
    }

    #[inline]
    pub(crate) fn enforce(
        &mut self,
        a: LinearCombination<Scalar>,
        b: LinearCombination<Scalar>,
        c: impl FnOnce() -> LinearCombination<Scalar>,
    ) {
        let values = Values {
            inputs: &self.inputs,
            aux: self.aux.values(),
        };
        let Densities {
            a_aux,
            b_inputs,
            b_aux,
        } = &mut self.densities;
        let a = evaluate(&a, &values, None, Some(a_aux));
        let b = evaluate(&b, &values, Some(b_inputs), Some(b_aux));
        // Nobody reads C when it is taken as the product of A and B: its linear
        // combination is not even built.
        let c = self
            .c
            .as_mut()
            .map(|sink| (sink, evaluate(&c(), &values, None, None)));
        if let Some((sink, value)) = c {
            sink.push(value);
        }
        self.a.push(a);
        self.b.push(b);
    }
}
