//! The file beside a generated key that says it is not a real one.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What the file beside a generated key says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sidecar {
    /// Says in words that the key is insecure.
    pub warning: String,
    /// The circuit's id.
    pub circuit: String,
    /// The seed of the toxic waste.
    pub seed: u64,
    /// The program that made the key.
    pub generator: String,
}

/// Where the sidecar of a key file is.
pub fn sidecar_path(params: &Path) -> PathBuf {
    let mut name = params.as_os_str().to_owned();
    name.push(".insecure.json");
    PathBuf::from(name)
}

impl Sidecar {
    pub(super) fn new(circuit: &str, seed: u64) -> Self {
        Self {
            warning: "the secrets of this key are known: for tests only".to_owned(),
            circuit: circuit.to_owned(),
            seed,
            generator: concat!("cuzk ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// Writes the sidecar of `params`; on failure, the path and what the system said.
    pub(super) fn write(&self, params: &Path) -> Result<(), (PathBuf, io::Error)> {
        let path = sidecar_path(params);
        serde_json::to_string_pretty(self)
            .map_err(io::Error::other)
            .and_then(|text| std::fs::write(&path, text + "\n"))
            .map_err(|source| (path, source))
    }
}
