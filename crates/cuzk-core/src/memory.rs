//! What the proof of one part takes, told before anything is reserved: the arithmetic
//! by which a job is admitted, and which people are shown.

use std::path::Path;

use cuzk_gpu::{Backend, CircuitSizes, Column, Key, KeyChecks, KeyError};

use crate::assemble::{StartError, cpu_backend};
use crate::config::{Config, KeyTier};
use crate::shapes::to_circuit_sizes;
use crate::stage::sizes_from_key;

/// Bytes that the proof of one part takes. Parts in flight at the same time take them
/// each, but for the points of the key, which they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartMemory {
    /// The columns in their order: a, b, c if there is one, aux.
    pub columns: Vec<u64>,
    /// Working memory of the backend at its peak, a decoded section of the key among it
    /// where the points stay in the file.
    pub work_bytes: u64,
    /// Points of the key, where they must be in memory.
    pub key_bytes: u64,
}

impl PartMemory {
    pub(crate) fn of(
        backend: &dyn Backend,
        sizes: &CircuitSizes,
        key: &Key,
        tier: KeyTier,
    ) -> Self {
        let (points, key_bytes) = match tier {
            KeyTier::Resident => (cuzk_gpu::KeyTier::Resident, key.resident_bytes()),
            // Where there is no room for the points, they stay in the file.
            KeyTier::File | KeyTier::Auto => (cuzk_gpu::KeyTier::File, 0),
        };
        // What overflows is more than any budget has, and refused as such.
        let bytes_of = |len| Column::bytes(len).map_or(u64::MAX, |bytes| bytes as u64);
        Self {
            columns: backend
                .layout(sizes)
                .lens()
                .into_iter()
                .map(bytes_of)
                .collect(),
            work_bytes: backend.work_bytes(sizes, key, points),
            key_bytes,
        }
    }

    /// All columns together.
    pub fn column_bytes(&self) -> u64 {
        self.columns
            .iter()
            .fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
    }

    /// All of it, which is what one part asks of the budget.
    pub fn total_bytes(&self) -> u64 {
        self.column_bytes()
            .saturating_add(self.work_bytes)
            .saturating_add(self.key_bytes)
    }
}

/// Tells the memory of parts from key files, without an engine.
pub struct Forecast {
    backend: Box<dyn Backend>,
    tier: KeyTier,
}

impl Forecast {
    /// For the CPU backend with the switches that a configuration describes. A device
    /// takes less host memory: no third column, and hardly any beside the columns.
    ///
    /// # Errors
    /// [`StartError::Backend`].
    pub fn new(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            backend: Box::new(cpu_backend(config.threads, &config.tuning)?),
            tier: config.tuning.key_tier,
        })
    }

    /// What a part takes at the least with this key, before the circuit has a hint: points that
    /// may be in memory and need not ([`KeyTier::Auto`]) are left out. Reads the head of the file
    /// and checks its sections against its length.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn of_key(&self, path: &Path) -> Result<PartMemory, KeyError> {
        let checks = KeyChecks {
            points: cuzk_gpu::PointCheck::None,
            digest: None,
        };
        let key = Key::open(path, &checks)?;
        let sizes = to_circuit_sizes(&sizes_from_key(&key));
        Ok(PartMemory::of(
            self.backend.as_ref(),
            &sizes,
            &key,
            self.tier,
        ))
    }
}
