//! The names of a key's files: in which order they appear, and what a run that was
//! killed may have left under them.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use bellperson::groth16::VerifyingKey;
use blstrs::Bls12;
use cuzk_gpu::key::write_vk;
use cuzk_gpu::{KeyError, KeyWriter};

use super::{KeygenError, Sidecar};

/// Where the files of one key go.
pub(super) struct KeyFiles<'a> {
    pub(super) directory: &'a Path,
    pub(super) params: &'a Path,
    pub(super) vk: &'a Path,
    /// The circuit's id.
    pub(super) circuit: &'a str,
}

impl KeyFiles<'_> {
    /// Refuses if there is a proving key, or a verifying key that no unfinished run
    /// left.
    pub(super) fn refuse_existing(&self) -> Result<(), KeygenError> {
        if exists(self.params)? {
            return Err(already(self.params));
        }
        if exists(self.vk)? && !self.is_unfinished() {
            return Err(already(self.vk));
        }
        Ok(())
    }

    /// Whether there is a sidecar of this circuit. While there is no proving key, its
    /// run was never finished.
    fn is_unfinished(&self) -> bool {
        Sidecar::read(self.params).is_some_and(|sidecar| sidecar.circuit == self.circuit)
    }

    /// Gives the files their names: the sidecar first, so that no test key is ever
    /// without it, the proving key last.
    pub(super) fn publish(
        &self,
        sidecar: &Sidecar,
        vk: &VerifyingKey<Bls12>,
        key: KeyWriter,
    ) -> Result<(), KeygenError> {
        // Keeps two runs from mixing their files. Not every file system has locks;
        // without one the names are still never taken twice, only that a verifying
        // key could then be another run's.
        let directory =
            File::open(self.directory).map_err(|source| io_at(self.directory, source))?;
        let _ = directory.lock();
        self.refuse_existing()?;
        let is_unfinished = self.is_unfinished();
        sidecar
            .write(self.params)
            .map_err(|(path, source)| KeygenError::Io { path, source })?;
        if is_unfinished {
            match fs::remove_file(self.vk) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(io_at(self.vk, source));
                }
                _ => {}
            }
        }
        // This makes the directory durable, with the sidecar's name in it, before the
        // proving key has one.
        write_vk(self.vk, vk)?;
        key.finish()?;
        Ok(())
    }
}

/// Whether there is anything of this name; a dangling link counts too.
fn exists(path: &Path) -> Result<bool, KeygenError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(io_at(path, source)),
    }
}

fn already(path: &Path) -> KeygenError {
    let path = path.to_owned();
    KeyError::Exists { path }.into()
}

fn io_at(path: &Path, source: io::Error) -> KeygenError {
    let path = path.to_owned();
    KeygenError::Io { path, source }
}
