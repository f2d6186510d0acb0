//! The circuit of measurements, and the names of its key.

mod circuit;

use bellpepper_core::{Circuit, SynthesisError};
use blstrs::Scalar;
use cuzk_core::{CircuitId, CircuitSpec};
use cuzk_synth::Pass;

pub use circuit::Mixed;

impl Mixed {
    /// What it makes public: the last full-size value.
    pub fn output(&self) -> Scalar {
        let full = self.variables() as u64 * u64::from(self.full_per_mille) / 1000;
        (0..full).fold(Scalar::from(circuit::FIRST), |value, _| value * value)
    }
}

impl CircuitSpec for Mixed {
    fn id(&self) -> CircuitId {
        CircuitId::from(format!("mixed-{}-{}", self.log_size, self.full_per_mille).as_str())
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.synthesize(pass)
    }
}
