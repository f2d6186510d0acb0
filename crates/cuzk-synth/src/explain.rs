//! The explain pass: is a witness satisfied, and if not, where does it fail first?
//! Every row is checked as it appears. Slow, and only run when something is wrong.

use std::fmt;

use bellpepper_core::{LinearCombination, SynthesisError};
use blstrs::Scalar;

use crate::error::SynthError;
use crate::linear::{Values, evaluate};
use crate::{Pass, run};

/// What an explain pass found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explained {
    /// All rows hold.
    Satisfied {
        /// Number of rows checked.
        constraints: usize,
    },
    /// A row does not hold.
    Unsatisfied(FailedConstraint),
}

/// The first row that does not hold. It names the constraint and never a value:
/// values are witness data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedConstraint {
    /// Index of the row, counted from 0.
    pub row: usize,
    /// Namespaces and the constraint's own name, joined by `/`.
    pub name: String,
}

impl fmt::Display for FailedConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "constraint {} ({})", self.row, self.name)
    }
}

/// Checks every row of a circuit with its witness.
///
/// # Errors
/// [`SynthError::Circuit`] if the circuit refused its witness before all rows
/// were there.
pub fn explain(
    synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
) -> Result<Explained, SynthError> {
    let mut pass = Pass::explaining();
    run(&mut pass, synthesize)?;
    let state = pass.into_explain();
    Ok(match state.failed {
        None => Explained::Satisfied {
            constraints: state.rows,
        },
        Some(failed) => Explained::Unsatisfied(failed),
    })
}

/// State of the pass.
#[derive(Default)]
pub(crate) struct Explain {
    inputs: Vec<Scalar>,
    aux: Vec<Scalar>,
    namespaces: Vec<String>,
    rows: usize,
    failed: Option<FailedConstraint>,
}

impl Explain {
    pub(crate) fn alloc(&mut self, value: Scalar) -> usize {
        self.aux.push(value);
        self.aux.len() - 1
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs.len()
    }

    pub(crate) fn alloc_input(&mut self, value: Scalar) -> usize {
        self.inputs.push(value);
        self.inputs.len() - 1
    }

    pub(crate) fn enforce(
        &mut self,
        name: impl FnOnce() -> String,
        lcs: [LinearCombination<Scalar>; 3],
    ) {
        let row = self.rows;
        self.rows += 1;
        if self.failed.is_some() {
            return;
        }
        let values = Values {
            inputs: &self.inputs,
            aux: &self.aux,
        };
        let [a, b, c] = lcs.map(|lc| evaluate(&lc, &values, None, None));
        if a * b != c {
            let mut path = self.namespaces.clone();
            path.push(name());
            self.failed = Some(FailedConstraint {
                row,
                name: path.join("/"),
            });
        }
    }

    pub(crate) fn push_namespace(&mut self, name: String) {
        self.namespaces.push(name);
    }

    pub(crate) fn pop_namespace(&mut self) {
        self.namespaces.pop();
    }
}
