//! What is known of each circuit's shape: hints from earlier runs, and the full
//! densities once a part was synthesised.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use cuzk_gpu::{Bitmap, CircuitShape, CircuitSizes, Key};
use cuzk_synth::{CutHint, Densities, DensityBits, Hint, HintStore, Sizes};

use crate::CircuitId;
use crate::error::ProveError;
use crate::lock::lock;

/// Shapes by circuit. Densities belong to the circuit: the first part that fits its
/// key teaches them, later parts are compared by digest. A shape takes two bits a
/// private variable: 32 MiB at 2^27.
pub struct Shapes {
    known: Mutex<Known>,
    /// Who writes the file: one at a time, each what is known then.
    writing: Mutex<()>,
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
            writing: Mutex::default(),
        }
    }

    /// The sizes of a circuit that an earlier part or run taught. They are a hint: a
    /// file holds them from run to run, and may be wrong.
    pub fn sizes(&self, circuit: &CircuitId) -> Option<Sizes> {
        self.known()
            .hints
            .find(circuit.as_str())
            .map(|hint| hint.sizes)
    }

    /// The shape of a part, which is that of its circuit. What does not fit the key
    /// is not learned: one part that is wrong does not make all later ones wrong.
    ///
    /// # Errors
    /// [`ProveError::Key`] if the part does not fit the key, and
    /// [`ProveError::OtherShape`] if an earlier part had another shape.
    pub(crate) fn learn(
        &self,
        circuit: &CircuitId,
        part: usize,
        sizes: &Sizes,
        densities: &Densities,
        key: &Key,
    ) -> Result<Arc<CircuitShape>, ProveError> {
        let digest = hex(&densities.digest());
        let mut known = self.known();
        if let Some((have, shape)) = known.shapes.get(circuit) {
            if *have != digest || shape.sizes != to_circuit_sizes(sizes) {
                let circuit = circuit.clone();
                return Err(ProveError::OtherShape { part, circuit });
            }
            // The key may be another one than the shape was learned with.
            key.check_shape(shape)?;
            return Ok(Arc::clone(shape));
        }
        let shape = Arc::new(circuit_shape(sizes, densities));
        key.check_shape(&shape)?;
        known
            .shapes
            .insert(circuit.clone(), (digest.clone(), Arc::clone(&shape)));
        let hint = Hint {
            sizes: *sizes,
            densities: digest,
        };
        let is_new = known.hints.keep(circuit.as_str(), hint);
        drop(known);
        if is_new {
            self.save(circuit);
        }
        Ok(shape)
    }

    /// Forgets the densities that parts are compared with, for those who have read the circuit
    /// since what taught them was doubted. A part alone is not believed in that.
    pub(crate) fn forget(&self, circuit: &CircuitId) {
        self.known().shapes.remove(circuit);
    }

    /// What a survey of a circuit found, in this run or an earlier one.
    pub(crate) fn cut(&self, circuit: &CircuitId) -> Option<CutHint> {
        self.known().hints.find_cut(circuit.as_str()).cloned()
    }

    /// Keeps what a survey found for later runs, or forgets it.
    pub(crate) fn keep_cut(&self, circuit: &CircuitId, cut: Option<CutHint>) {
        let is_new = self.known().hints.keep_cut(circuit.as_str(), cut);
        if is_new {
            self.save(circuit);
        }
    }

    /// Writes the hints. Nobody who asks for sizes waits for a file to be written.
    fn save(&self, circuit: &CircuitId) {
        let _writing = lock(&self.writing);
        let hints = self.known().hints.clone();
        if let Err(error) = hints.save() {
            // Hints save time and memory traffic, they are not needed: the proof goes on.
            tracing::warn!(%circuit, %error, "what was learned of a circuit was not saved");
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
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

/// The shape that a synthesis shows, as the arithmetic wants it.
pub fn circuit_shape(sizes: &Sizes, densities: &Densities) -> CircuitShape {
    let bitmap = |bits: &DensityBits| Bitmap::new(bits.words().into(), bits.len());
    CircuitShape {
        sizes: to_circuit_sizes(sizes),
        a_aux: bitmap(&densities.a_aux),
        b_inputs: bitmap(&densities.b_inputs),
        b_aux: bitmap(&densities.b_aux),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
