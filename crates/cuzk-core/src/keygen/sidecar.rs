//! The file beside a generated key that says it is not a real one.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use cuzk_budget::ByteCount;
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

/// The most that is read of a sidecar, which takes a few lines.
const SIDECAR_BYTES_MAX: u64 = 1 << 20;

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
        let text = Self::read_text(&sidecar_path(params)).ok()?;
        Self::parse(&text).ok()
    }

    /// The text of the sidecar at `path`.
    pub(crate) fn read_text(path: &Path) -> io::Result<String> {
        let wrong = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
        // Asked before opening: opening a pipe would wait for a writer.
        if !fs::metadata(path)?.is_file() {
            return Err(wrong("not a regular file".to_owned()));
        }
        let mut text = String::new();
        let mut file = File::open(path)?.take(SIDECAR_BYTES_MAX + 1);
        file.read_to_string(&mut text)?;
        if text.len() as u64 > SIDECAR_BYTES_MAX {
            let limit = ByteCount(SIDECAR_BYTES_MAX);
            return Err(wrong(format!("at most {limit} are read")));
        }
        Ok(text)
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
    fn what_has_no_end_is_not_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let read = |path: &Path| {
            let error = Sidecar::read_text(path).expect_err("no sidecar");
            error.to_string()
        };
        assert_eq!(read(Path::new("/dev/zero")), "not a regular file");
        assert_eq!(read(directory.path()), "not a regular file");
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo is there").success());
        assert_eq!(read(&pipe), "not a regular file");
        let long = directory.path().join("long");
        let file = File::create(&long).expect("writable");
        file.set_len(SIDECAR_BYTES_MAX).expect("sparse");
        assert!(Sidecar::read_text(&long).is_ok());
        file.set_len(1 << 40).expect("sparse");
        assert!(read(&long).starts_with("at most "));
    }

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
