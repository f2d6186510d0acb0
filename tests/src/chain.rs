//! A circuit of any size, for measurements of key generation: a chain of squares,
//! all of whose variables are dense in A and B.

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError, Variable};
use blstrs::Scalar;
use cuzk_core::{CircuitId, CircuitSpec};
use cuzk_synth::Pass;

/// `len` values, each the square of the one before.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// Number of private values; there are two constraints more.
    pub len: usize,
}

impl Circuit<Scalar> for Chain {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut value = Scalar::from(3);
        let mut before: Variable = cs.alloc(|| "first", || Ok(value))?;
        for _ in 1..self.len {
            value *= value;
            let next = cs.alloc(|| "square", || Ok(value))?;
            cs.enforce(
                || "square",
                |lc| lc + before,
                |lc| lc + before,
                |lc| lc + next,
            );
            before = next;
        }
        let out = cs.alloc_input(|| "out", || Ok(value))?;
        cs.enforce(
            || "out",
            |lc| lc + before,
            |lc| lc + CS::one(),
            |lc| lc + out,
        );
        Ok(())
    }
}

impl CircuitSpec for Chain {
    fn id(&self) -> CircuitId {
        format!("chain-{}", self.len).as_str().into()
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.synthesize(pass)
    }
}
