//! The key files of a directory, told as what they are.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use cuzk_core::keygen::sidecar_path;
use cuzk_core::{CircuitSpec, Forecast, KeyError, PartMemory, keys};
use cuzk_filecoin::FilecoinCircuit;
use serde::Serialize;

use crate::progress::Progress;

/// The key of a circuit: two files, and what a proof with them takes.
#[derive(Debug, Serialize)]
pub(super) struct CircuitKey {
    pub(super) circuit: String,
    /// The proving key, which `prove` needs.
    pub(super) key: KeyFile,
    /// The verifying key in a file of its own, which `verify` needs.
    pub(super) vk: KeyFile,
    /// Told by the head of the proving key; `None` without a readable one.
    pub(super) memory: Option<Memory>,
}

/// One file.
#[derive(Debug, Serialize)]
pub(super) struct KeyFile {
    pub(super) path: String,
    pub(super) state: &'static str,
    pub(super) bytes: Option<u64>,
    /// How its digest compares with the published one.
    pub(super) digest: &'static str,
    /// What is wrong with it.
    pub(super) problem: Option<String>,
}

/// Bytes that the proof of one part takes.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) column_bytes: Vec<u64>,
    pub(super) work_bytes: u64,
    pub(super) key_bytes: u64,
    pub(super) total_bytes: u64,
}

impl From<PartMemory> for Memory {
    fn from(memory: PartMemory) -> Self {
        Self {
            total_bytes: memory.total_bytes(),
            column_bytes: memory.columns,
            work_bytes: memory.work_bytes,
            key_bytes: memory.key_bytes,
        }
    }
}

/// How files are looked at.
pub(super) struct Look<'a> {
    pub(super) directory: &'a Path,
    /// Decodes the heads of files; `None` on a processor that cannot.
    pub(super) forecast: Option<&'a Forecast>,
    /// Whether every byte of a proving key is hashed.
    pub(super) digests: bool,
}

impl Look<'_> {
    /// Looks at the files of a circuit. Of a proving key the head is read, and all of
    /// it if digests are asked for; a verifying key is small and read whole.
    pub(super) fn at(&self, circuit: &FilecoinCircuit) -> CircuitKey {
        let params = self.directory.join(circuit.params_file());
        let is_test = sidecar_path(&params).exists();
        let mut memory = None;
        let mut key = self.file(&params, is_test, |forecast| {
            memory = Some(forecast.of_key(&params)?.into());
            Ok(())
        });
        if is_readable(&key) {
            let want = circuit.params_digest().filter(|_| !is_test);
            key.digest = match (&want, self.digests) {
                (Some(_), false) => "not checked",
                (want, _) => judge(&params, &mut key, want.as_deref(), is_test),
            };
        }

        let path = self.directory.join(circuit.vk_file());
        let mut vk = self.file(&path, is_test, |_| keys::verifier(&path, None).map(drop));
        if is_readable(&vk) {
            let want = circuit.vk_digest().filter(|_| !is_test);
            vk.digest = judge(&path, &mut vk, want.as_deref(), is_test);
        }
        CircuitKey {
            circuit: circuit.id().to_string(),
            key,
            vk,
            memory,
        }
    }

    fn file(
        &self,
        path: &Path,
        is_test: bool,
        read: impl FnOnce(&Forecast) -> Result<(), KeyError>,
    ) -> KeyFile {
        let (bytes, told) = place(path);
        let (state, problem) = match (told, self.forecast) {
            (Err(told), _) => told,
            (Ok(()), Some(forecast)) => match read(forecast) {
                Ok(()) => (if is_test { "test key" } else { "present" }, None),
                Err(error @ KeyError::Io { .. }) => ("unreadable", Some(error.to_string())),
                Err(error) => ("damaged", Some(error.to_string())),
            },
            (Ok(()), None) => ("not read", None),
        };
        KeyFile {
            path: path.display().to_string(),
            state,
            bytes,
            digest: "-",
            problem,
        }
    }
}

/// Whether the file was read and is a key.
fn is_readable(file: &KeyFile) -> bool {
    ["present", "test key"].contains(&file.state)
}

/// Why there is no file to read: in a word, and at length where that says more.
type NoFile = (&'static str, Option<String>);

/// The length of what has this path, if it is a file with something in it.
fn place(path: &Path) -> (Option<u64>, Result<(), NoFile>) {
    let told = |error: &std::io::Error| Some(format!("{}: {error}", path.display()));
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => (None, Err(("directory", None))),
        Ok(about) if !about.is_file() => (None, Err(("no file", None))),
        Ok(about) if about.len() == 0 => (Some(0), Err(("empty", None))),
        Ok(about) => (Some(about.len()), Ok(())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let target = fs::read_link(path);
            let dangles = target.map(|target| {
                let problem = format!("{} points to {}", path.display(), target.display());
                ("dead link", Some(problem))
            });
            (None, Err(dangles.unwrap_or(("missing", None))))
        }
        Err(error) => (None, Err(("unreadable", told(&error)))),
    }
}

/// Compares the digest of a file with the published one.
fn judge(path: &Path, file: &mut KeyFile, want: Option<&str>, is_test: bool) -> &'static str {
    let Some(want) = want else {
        return if is_test { "generated" } else { "not listed" };
    };
    let progress = Progress::start("digest");
    let what = format!("digest of {}", file.path);
    let show = |done, total| progress.show(&what, done, total);
    match keys::digest(path, show) {
        Ok(have) if have.eq_ignore_ascii_case(want) => "published",
        Ok(have) => {
            let path = &file.path;
            file.problem = Some(format!(
                "{path}: digest {have}, the published one is {want}"
            ));
            "other"
        }
        Err(error) => {
            file.problem = Some(error.to_string());
            "unreadable"
        }
    }
}
