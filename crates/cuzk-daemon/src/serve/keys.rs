//! Keys as clients see them: by circuit id, loaded or on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cuzk_core::{CircuitId, CircuitSpec, Engine, Eviction};
use cuzk_filecoin::FilecoinCircuit;
use tonic::Status;

use super::answer::whole;
use super::status;
use crate::error::ServeError;
use crate::output::escaped;
use crate::wire::srs_status::Tier;
use crate::wire::{EvictSrsResponse, PreloadSrsResponse, SrsStatus};

/// Every circuit with the place of its key. All calls may read files or wait for a
/// key that is being loaded.
pub(super) struct Keys {
    engine: Arc<Engine>,
    circuits: Vec<(FilecoinCircuit, CircuitId, PathBuf)>,
}

impl Keys {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let circuits = FilecoinCircuit::all()
            .map(|circuit| (circuit, circuit.id(), engine.keys().path(&circuit)))
            .collect();
        Self { engine, circuits }
    }

    /// Loads every key whose file is there, and says of each circuit what became of
    /// it. A key that cannot be used is told and keeps no other from being used.
    pub(super) fn load_present(&self) {
        for (circuit, id, path) in &self.circuits {
            let path = path.display();
            if self.file_bytes(circuit).is_none() {
                tracing::info!(circuit = %id, %path, "no key");
                continue;
            }
            let begun = Instant::now();
            match self.engine.preload(circuit) {
                Ok(_) => {
                    let seconds = begun.elapsed().as_secs_f64();
                    tracing::info!(circuit = %id, %path, seconds, "key loaded");
                }
                Err(error) => {
                    let error = escaped(&error.to_string());
                    tracing::error!(circuit = %id, error, "key not usable");
                }
            }
        }
    }

    /// The circuits whose keys can be used now, and a warning where there is none: the
    /// server runs, since a key that appears later is used, but refuses every request.
    pub(super) fn tell_usable(&self, directory: &Path) -> Vec<String> {
        let shown = directory.display();
        let mut usable = Vec::new();
        let mut unusable = None;
        for (circuit, id, path) in &self.circuits {
            match self.engine.check(circuit) {
                Ok(_) => usable.push(id.to_string()),
                // Of a file that is there, the reason says more than that none is usable.
                Err(error) if path.exists() => unusable = Some(escaped(&error.to_string())),
                Err(_) => {}
            }
        }
        if !usable.is_empty() {
            return usable;
        }
        match unusable {
            _ if !directory.is_dir() => tracing::warn!(
                directory = %shown,
                "the directory of the keys (params.directory) is not there: every request is \
                 refused until it has keys"
            ),
            Some(error) => tracing::warn!(
                directory = %shown,
                error,
                "no key can be used: every request is refused"
            ),
            None => tracing::warn!(
                directory = %shown,
                "no key of any circuit is there: every request is refused until one is; \
                 `cuzk doctor` names the files"
            ),
        }
        usable
    }

    /// Allocates the columns of circuits. Each for which there is no key or no room is
    /// told; its parts allocate when they are proved.
    pub(super) fn warm(&self, circuits: &[FilecoinCircuit]) {
        if circuits.is_empty() {
            return;
        }
        let begun = Instant::now();
        // One that has no key, or has no room even alone, does not keep the others cold.
        let (usable, unusable): (Vec<_>, Vec<_>) = circuits
            .iter()
            .map(|circuit| (circuit, self.engine.check(circuit)))
            .partition(|(_, checked)| checked.is_ok());
        for (circuit, checked) in unusable {
            if let Err(error) = checked {
                let error = escaped(&error.to_string());
                tracing::error!(circuit = %circuit.id(), error, "columns not allocated");
            }
        }
        let specs: Vec<&dyn CircuitSpec> =
            usable.iter().map(|(circuit, _)| *circuit as _).collect();
        if specs.is_empty() {
            return;
        }
        match self.engine.warm(&specs) {
            Ok(plan) => {
                let seconds = begun.elapsed().as_secs_f64();
                tracing::info!(seconds, "columns allocated\n{plan}");
            }
            Err(error) => tracing::error!(%error, "columns not allocated"),
        }
    }

    /// Loaded keys, then those on disk.
    pub(super) fn list(&self) -> Vec<SrsStatus> {
        let held = self.engine.keys().held();
        let mut list: Vec<SrsStatus> = held
            .iter()
            .map(|(id, key)| SrsStatus {
                circuit_id: id.to_string(),
                tier: if key.is_resident {
                    Tier::Hot
                } else {
                    Tier::Warm
                }
                .into(),
                size_bytes: key.bytes,
                ref_count: whole(key.users),
            })
            .collect();
        for (circuit, id, _) in &self.circuits {
            let is_held = held.iter().any(|(held, _)| held == id);
            if let Some(bytes) = self.file_bytes(circuit).filter(|_| !is_held) {
                list.push(SrsStatus {
                    circuit_id: id.to_string(),
                    tier: Tier::Cold.into(),
                    size_bytes: bytes,
                    ref_count: 0,
                });
            }
        }
        list
    }

    /// Loads a key.
    ///
    /// # Errors
    /// If there is no such circuit, or its key is missing or cannot be used.
    pub(super) fn preload(&self, circuit_id: &str) -> Result<PreloadSrsResponse, Status> {
        let circuit = parse(circuit_id)?;
        let already_loaded = self.engine.keys().is_loaded(&circuit.id());
        let begun = Instant::now();
        self.engine
            .preload(&circuit)
            .map_err(|error| status::refused(&error))?;
        Ok(PreloadSrsResponse {
            already_loaded,
            load_time_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Drops a key.
    ///
    /// # Errors
    /// If there is no such circuit, or jobs use its key.
    pub(super) fn evict(&self, circuit_id: &str) -> Result<EvictSrsResponse, Status> {
        let circuit = parse(circuit_id)?;
        match self.engine.keys().evict(&circuit.id()) {
            Eviction::NotLoaded => Ok(EvictSrsResponse::default()),
            Eviction::Evicted { bytes } => Ok(EvictSrsResponse {
                was_loaded: true,
                freed_bytes: bytes,
            }),
            Eviction::InUse { users } => Err(Status::failed_precondition(format!(
                "circuit_id: the key of {circuit_id} is in use ({users} uses)"
            ))),
        }
    }

    fn file_bytes(&self, circuit: &FilecoinCircuit) -> Option<u64> {
        let (_, _, path) = self
            .circuits
            .iter()
            .find(|(known, _, _)| known == circuit)?;
        let file = std::fs::metadata(path).ok()?;
        file.is_file().then_some(file.len())
    }
}

/// The circuits of these ids.
///
/// # Errors
/// [`ServeError::Warm`] for an id that is none.
pub(super) fn circuits(ids: &[String]) -> Result<Vec<FilecoinCircuit>, ServeError> {
    let circuit = |id: &String| {
        id.parse()
            .map_err(|error: cuzk_filecoin::UnknownName| ServeError::Warm(error.to_string()))
    };
    ids.iter().map(circuit).collect()
}

fn parse(circuit_id: &str) -> Result<FilecoinCircuit, Status> {
    let id: String = circuit_id.chars().take(64).collect();
    id.parse()
        .map_err(|error| Status::invalid_argument(format!("circuit_id: {error}")))
}
