//! How large a circuit is.

use serde::{Deserialize, Serialize};

/// Element counts of a circuit, with the constant-one input and the input rows
/// that Groth16 adds.
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
