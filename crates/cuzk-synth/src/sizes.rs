//! How large a circuit is.

use serde::{Deserialize, Serialize};

/// Element counts of a circuit, with the constant-one input and the input rows
/// that Groth16 adds. Provers take it as `cuzk_gpu::CircuitSizes`, which has the same
/// fields; `cuzk_core::circuit_shape` converts it, with the densities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Public inputs, the constant one included.
    pub inputs: usize,
    /// Auxiliary (private) variables.
    pub aux: usize,
    /// Constraints, the input rows included.
    pub constraints: usize,
}
