//! What is known of each circuit's shape: hints from earlier runs, and the full
//! densities once a part was synthesised.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use cuzk_gpu::{Bitmap, CircuitShape, CircuitSizes};
use cuzk_synth::{Assigned, Densities, DensityBits, Hint, HintStore, Sizes};

use crate::CircuitId;

/// Shapes by circuit. Densities belong to the circuit: the first part teaches them,
/// later parts are compared by digest.
pub struct Shapes {
    known: Mutex<Known>,
}

struct Known {
    hints: HintStore,
    shapes: HashMap<CircuitId, (String, Arc<CircuitShape>)>,
}

impl Shapes {
    /// Starts with the hints of earlier runs.
    pub fn new(hints: HintStore) -> Self {
        Self {
            known: Mutex::new(Known {
                hints,
                shapes: HashMap::new(),
            }),
        }
    }

    /// The exact sizes of a circuit, if an earlier part taught them.
    pub fn sizes(&self, circuit: &CircuitId) -> Option<Sizes> {
        self.known()
            .hints
            .find(circuit.as_str())
            .map(|hint| hint.sizes)
    }

    /// The shape of a part, which is that of its circuit. `None` if they differ.
    pub(crate) fn learn(
        &self,
        circuit: &CircuitId,
        assigned: &Assigned,
    ) -> Option<Arc<CircuitShape>> {
        let digest = hex(&assigned.densities.digest());
        let mut known = self.known();
        if let Some((have, shape)) = known.shapes.get(circuit) {
            let same = *have == digest && shape.sizes == to_circuit_sizes(&assigned.sizes);
            return same.then(|| Arc::clone(shape));
        }
        let shape = Arc::new(to_shape(&assigned.sizes, &assigned.densities));
        known
            .shapes
            .insert(circuit.clone(), (digest.clone(), Arc::clone(&shape)));
        let hint = Hint {
            sizes: assigned.sizes,
            densities: digest,
        };
        if let Err(error) = known.hints.learn(circuit.as_str(), hint) {
            // Hints save memory traffic, they are not needed: the proof goes on.
            tracing::warn!(%circuit, %error, "the capacity hint was not saved");
        }
        Some(shape)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known
            .lock()
            .expect("no code panics while it holds the shapes")
    }
}

pub(crate) fn to_circuit_sizes(sizes: &Sizes) -> CircuitSizes {
    let Sizes {
        inputs,
        aux,
        constraints,
    } = *sizes;
    CircuitSizes {
        inputs,
        aux,
        constraints,
    }
}

fn to_shape(sizes: &Sizes, densities: &Densities) -> CircuitShape {
    let bitmap = |bits: &DensityBits| Bitmap::new(bits.words().into(), bits.len());
    CircuitShape {
        sizes: to_circuit_sizes(sizes),
        a_aux: bitmap(&densities.a_aux),
        b_inputs: bitmap(&densities.b_inputs),
        b_aux: bitmap(&densities.b_aux),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
