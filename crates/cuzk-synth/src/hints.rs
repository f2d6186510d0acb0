//! Capacity hints: what a shape's first synthesis taught, kept for the next run.
//!
//! Hints are believed only where a lie costs time alone: sizes, as a circuit that outgrows
//! them is a typed error with the true ones, and that a circuit does not repeat
//! ([`CutHint::Uncut`]), as it is synthesised whole then. That it repeats is found anew by
//! each process. The digest of the densities decides nothing: with it a later run
//! can see that a circuit has changed since, even one of equal size.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::Sizes;
use crate::error::HintError;

/// Version of the file. Raised when circuits or fields change meaning.
const VERSION: u64 = 1;

/// The most that is read of a file: a shape takes some hundred bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What is known of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hint {
    /// Element counts of the circuit as it was synthesised.
    pub sizes: Sizes,
    /// Digest of its densities, in hexadecimal; the store compares it with nothing.
    pub densities: String,
}

/// What a survey found of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum CutHint {
    /// It repeats. Nothing of that is believed but what the next survey will take.
    Repeats {
        /// The most bytes that the survey held.
        survey_bytes: u64,
    },
    /// It does not, for this reason: it is synthesised whole.
    Uncut(String),
}

/// Hints by shape name, in memory or in a JSON file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HintStore {
    path: Option<PathBuf>,
    hints: BTreeMap<String, Hint>,
    cuts: BTreeMap<String, CutHint>,
}

/// What files of all versions have.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u64,
    shapes: BTreeMap<String, Hint>,
    /// Files of earlier programs of this version have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    cuts: BTreeMap<String, Cuts>,
}

/// What a file has of a survey.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Cuts {
    Known(CutHint),
    /// Files of earlier programs of this version have more of circuits that repeat.
    Other(#[serde(skip_serializing)] IgnoredAny),
}

impl HintStore {
    /// An empty store that is never written.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// Reads `path`; a file that does not exist is an empty store.
    ///
    /// # Errors
    /// If the file cannot be read or is not a hint file of this version. It is
    /// left as it is.
    pub fn open(path: &Path) -> Result<Self, HintError> {
        let store = |hints, cuts| Self {
            path: Some(path.to_owned()),
            hints,
            cuts,
        };
        let text = match read_text(path) {
            Ok(text) => text,
            Err(source) if source.kind() == ErrorKind::NotFound => {
                return Ok(store(BTreeMap::new(), BTreeMap::new()));
            }
            Err(source) => {
                return Err(HintError::Io {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let head: Head = parse(path, &text)?;
        head.check(path)?;
        let file: File = parse(path, &text)?;
        let cuts = file.cuts.into_iter().filter_map(|(shape, cut)| match cut {
            Cuts::Known(cut) => Some((shape, cut)),
            Cuts::Other(IgnoredAny) => None,
        });
        Ok(store(file.shapes, cuts.collect()))
    }

    /// The hint of a shape, if one was learned.
    pub fn find(&self, shape: &str) -> Option<&Hint> {
        self.hints.get(shape)
    }

    /// Keeps a hint in memory; whether that changed anything.
    pub fn keep(&mut self, shape: &str, hint: Hint) -> bool {
        let before = self.hints.insert(shape.to_owned(), hint);
        before.as_ref() != self.hints.get(shape)
    }

    /// What a survey found of a shape, if there was one.
    pub fn find_cut(&self, shape: &str) -> Option<&CutHint> {
        self.cuts.get(shape)
    }

    /// Keeps what a survey found, in memory, or forgets it; whether that changed
    /// anything.
    pub fn keep_cut(&mut self, shape: &str, cut: Option<CutHint>) -> bool {
        let before = match cut {
            Some(cut) => self.cuts.insert(shape.to_owned(), cut),
            None => self.cuts.remove(shape),
        };
        before.as_ref() != self.cuts.get(shape)
    }

    /// Writes the file, if the store has one: under a temporary name first, so that a
    /// reader never sees half of it.
    ///
    /// # Errors
    /// If the file cannot be written, or another program has written one of a version
    /// that this one does not know. That is left as it is.
    pub fn save(&self) -> Result<(), HintError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let there = read_text(path).ok();
        if let Some(Ok(head)) = there.map(|text| parse::<Head>(path, &text)) {
            head.check(path)?;
        }
        self.write(path).map_err(|source| HintError::Io {
            path: path.clone(),
            source,
        })
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let file = File {
            version: VERSION,
            shapes: self.hints.clone(),
            cuts: self
                .cuts
                .iter()
                .map(|(shape, cut)| (shape.clone(), Cuts::Known(cut.clone())))
                .collect(),
        };
        let text = serde_json::to_string_pretty(&file)?;
        // Two processes may learn at once: each writes a name of its own.
        let temporary = path.with_extension(format!("{}.partial", std::process::id()));
        let written = fs::File::create(&temporary)
            .and_then(|mut out| out.write_all(text.as_bytes()).and_then(|()| out.sync_all()))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The error is reported; a leftover would only confuse.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

impl Head {
    fn check(&self, path: &Path) -> Result<(), HintError> {
        if self.version == VERSION {
            return Ok(());
        }
        Err(HintError::Version {
            path: path.to_owned(),
            have: self.version,
            want: VERSION,
        })
    }
}

/// The text of a hint file, which must be a regular one and no longer than
/// [`FILE_BYTES_MAX`]: pipes and devices have no end.
fn read_text(path: &Path) -> std::io::Result<String> {
    let wrong = |reason: String| std::io::Error::new(ErrorKind::InvalidInput, reason);
    // Asked before opening: opening a pipe would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(wrong("not a regular file".to_owned()));
    }
    let mut text = String::new();
    let mut file = fs::File::open(path)?.take(FILE_BYTES_MAX + 1);
    file.read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(format!("at most {FILE_BYTES_MAX} bytes are read")));
    }
    Ok(text)
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, HintError> {
    serde_json::from_str(text).map_err(|source| HintError::Format {
        path: path.to_owned(),
        source,
    })
}
