//! The count pass: how large a circuit is, and which variables are dense. It asks
//! for no witness, so a blank circuit serves.

use bellpepper_core::{LinearCombination, SynthesisError};
use blstrs::Scalar;
use ff::Field;

use crate::density::{Densities, DensityBits};
use crate::error::SynthError;
use crate::{Pass, Sizes, run};

/// What a count pass found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Element counts.
    pub sizes: Sizes,
    /// Densities.
    pub densities: Densities,
    /// Non-zero coefficients of A, B and C.
    pub nonzeros: [u64; 3],
}

/// Counts a circuit without a witness.
///
/// # Errors
/// [`SynthError::Circuit`] if the circuit needs a value outside of an allocation.
pub fn count(
    synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
) -> Result<Counted, SynthError> {
    let mut pass = Pass::counting();
    run(&mut pass, synthesize)?;
    Ok(pass.into_count().0)
}

/// State of the pass.
#[derive(Default)]
pub(crate) struct Count(Counted);

impl Count {
    pub(crate) fn alloc(&mut self) -> usize {
        self.0.densities.a_aux.push();
        self.0.densities.b_aux.push();
        self.0.sizes.aux += 1;
        self.0.sizes.aux - 1
    }

    pub(crate) fn inputs(&self) -> usize {
        self.0.sizes.inputs
    }

    pub(crate) fn alloc_input(&mut self) -> usize {
        self.0.densities.b_inputs.push();
        self.0.sizes.inputs += 1;
        self.0.sizes.inputs - 1
    }

    pub(crate) fn enforce(&mut self, lcs: [LinearCombination<Scalar>; 3]) {
        let Densities {
            a_aux,
            b_inputs,
            b_aux,
        } = &mut self.0.densities;
        let [a, b, c] = &lcs;
        self.0.nonzeros[0] += mark(a, None, Some(a_aux));
        self.0.nonzeros[1] += mark(b, Some(b_inputs), Some(b_aux));
        self.0.nonzeros[2] += mark(c, None, None);
        self.0.sizes.constraints += 1;
    }
}

/// Marks the variables of non-zero coefficients and counts them.
fn mark(
    lc: &LinearCombination<Scalar>,
    mut inputs: Option<&mut DensityBits>,
    mut aux: Option<&mut DensityBits>,
) -> u64 {
    let mut count = 0;
    for (&index, coefficient) in lc.iter_inputs() {
        if *coefficient != Scalar::ZERO {
            count += 1;
            if let Some(bits) = inputs.as_deref_mut() {
                bits.set(index);
            }
        }
    }
    for (&index, coefficient) in lc.iter_aux() {
        if *coefficient != Scalar::ZERO {
            count += 1;
            if let Some(bits) = aux.as_deref_mut() {
                bits.set(index);
            }
        }
    }
    count
}
