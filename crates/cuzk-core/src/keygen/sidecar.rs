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

/// What this program writes as the one that made a key.
const GENERATOR: &str = concat!("cuzk ", env!("CARGO_PKG_VERSION"));

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
            generator: GENERATOR.to_owned(),
        }
    }

    /// The sidecar of `params`; `None` if there is none or it is not one.
    pub(super) fn read(params: &Path) -> Option<Self> {
        let text = fs::read_to_string(sidecar_path(params)).ok()?;
        Self::parse(&text).ok()
    }

    /// Reads what a sidecar says. Where another program wrote it, the error names that.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        /// What sidecars of all programs have.
        #[derive(Deserialize)]
        struct Head {
            generator: String,
        }
        serde_json::from_str(text).map_err(|error| match serde_json::from_str(text) {
            Ok(Head { generator }) if generator != GENERATOR => {
                format!("it is of {generator:?}, this program is {GENERATOR:?}: {error}")
            }
            _ => error.to_string(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sidecar_of_another_program_is_told_as_such() {
        let refused = |text: &str| Sidecar::parse(text).expect_err("not one of this program");
        let mut value = serde_json::to_value(Sidecar::new("squares", 7)).expect("JSON");
        assert_eq!(
            Sidecar::parse(&value.to_string()),
            Ok(Sidecar::new("squares", 7))
        );
        value["more"] = 1.into();
        let own = refused(&value.to_string());
        assert!(own.starts_with("unknown field `more`"), "{own}");
        value["generator"] = "cuzk 99.0.0".into();
        let later = refused(&value.to_string());
        let want = format!("it is of \"cuzk 99.0.0\", this program is {GENERATOR:?}: {own}");
        // Only the column differs.
        assert_eq!(
            later.split(" at line").next(),
            want.split(" at line").next()
        );
        assert!(refused("{}").starts_with("missing field"));
    }
}
