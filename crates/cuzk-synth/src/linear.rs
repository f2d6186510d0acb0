//! Evaluating linear combinations.

use bellpepper_core::LinearCombination;
use blstrs::Scalar;
use ff::Field;

use crate::density::DensityBits;

/// Values of the variables seen so far. A variable past the end of its column
/// reads as zero: its pass already knows that it must be run again.
pub(crate) struct Values<'a> {
    pub(crate) inputs: &'a [Scalar],
    pub(crate) aux: &'a [Scalar],
}

/// `sum coefficient * value`, with the variables of non-zero coefficients marked
/// in the densities that are given.
#[inline]
pub(crate) fn evaluate(
    lc: &LinearCombination<Scalar>,
    values: &Values<'_>,
    mut inputs: Option<&mut DensityBits>,
    mut aux: Option<&mut DensityBits>,
) -> Scalar {
    let mut sum = Scalar::ZERO;
    for (&index, coefficient) in lc.iter_inputs() {
        if add_term(&mut sum, coefficient, values.inputs.get(index))
            && let Some(bits) = inputs.as_deref_mut()
        {
            bits.set(index);
        }
    }
    for (&index, coefficient) in lc.iter_aux() {
        if add_term(&mut sum, coefficient, values.aux.get(index))
            && let Some(bits) = aux.as_deref_mut()
        {
            bits.set(index);
        }
    }
    sum
}

/// Adds one term; false if its coefficient is zero. Four of five coefficients are
/// one or minus one, and half of the values are zero, so those skip the multiply.
#[inline]
fn add_term(sum: &mut Scalar, coefficient: &Scalar, value: Option<&Scalar>) -> bool {
    if *coefficient == Scalar::ZERO {
        return false;
    }
    if let Some(value) = value {
        if *coefficient == Scalar::ONE {
            *sum += value;
        } else if *value == Scalar::ONE {
            *sum += coefficient;
        } else if *value != Scalar::ZERO {
            *sum += *value * coefficient;
        }
    }
    true
}
