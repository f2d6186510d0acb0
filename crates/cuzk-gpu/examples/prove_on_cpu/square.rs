//! What is proved: the circuit `x * x = y` with y public, and its shape.

use std::sync::Arc;

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use blstrs::Scalar;
use cuzk_gpu::{Bitmap, CircuitShape, CircuitSizes};

/// Seven is the square root of 49.
pub(crate) struct Square;

impl Circuit<Scalar> for Square {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let y = cs.alloc_input(|| "y", || Ok(Scalar::from(49)))?;
        let x = cs.alloc(|| "x", || Ok(Scalar::from(7)))?;
        cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
        Ok(())
    }
}

/// One constraint and a row for each of the inputs `one` and `y`; x is in A and B.
pub(crate) fn shape() -> CircuitShape {
    let bits = |set, len| Bitmap::new(Arc::new([set]), len);
    CircuitShape {
        sizes: CircuitSizes {
            inputs: 2,
            aux: 1,
            constraints: 3,
        },
        a_aux: bits(1, 1),
        b_inputs: bits(0, 2),
        b_aux: bits(1, 1),
    }
}
