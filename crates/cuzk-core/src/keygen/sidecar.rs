//! The file beside a generated key that says it is not a real one.

use std::fs::{self, File};
use std::io::{self, Write};
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

    /// The sidecar of `params`; `None` if there is none or it is not one.
    pub(super) fn read(params: &Path) -> Option<Self> {
        let text = fs::read_to_string(sidecar_path(params)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes the sidecar of `params`, whole or not at all, in place of one that is
    /// there; on failure, the path and what the system said.
    pub(super) fn write(&self, params: &Path) -> Result<(), (PathBuf, io::Error)> {
        let path = sidecar_path(params);
        let mut temporary = path.clone().into_os_string();
        temporary.push(format!(".{}.partial", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let written = serde_json::to_string_pretty(self)
            .map_err(io::Error::other)
            .and_then(|text| {
                // Made anew if a killed run of the same number left one.
                let mut file = File::create(&temporary)?;
                file.write_all((text + "\n").as_bytes())?;
                file.sync_all()?;
                fs::rename(&temporary, &path)
            });
        written.map_err(|source| {
            let _ = fs::remove_file(&temporary);
            (path, source)
        })
    }
}
