//! The circuit of measurements, and the names of its key.

mod circuit;

use bellpepper_core::{Circuit, SynthesisError};
use cuzk_core::{CircuitId, CircuitSpec};
use cuzk_synth::Pass;

pub use circuit::Mixed;

impl CircuitSpec for Mixed {
    fn id(&self) -> CircuitId {
        CircuitId::from(format!("mixed-{}-{}", self.log_size, self.full_per_mille).as_str())
    }

    fn params_file(&self) -> String {
        format!("{}.params", self.id())
    }

    fn vk_file(&self) -> String {
        format!("{}.vk", self.id())
    }

    fn params_digest(&self) -> Option<String> {
        None
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.synthesize(pass)
    }
}
