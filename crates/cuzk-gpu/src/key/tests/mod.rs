//! Key files against bellperson's own, and against every damage we could think of.

mod damage;
mod large;
mod reading;
mod writing;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use bellperson::groth16::{Parameters, generate_random_parameters};
use blstrs::{Bls12, Scalar};
use ff::Field;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use tempfile::TempDir;

use crate::error::KeyError;
use crate::key::{Key, KeyChecks, PointCheck};

/// Three inputs with the constant one and five auxiliary variables; some of each
/// are in A alone, some in B alone. The public inputs are 1 and 2.
struct Products;

impl Circuit<Scalar> for Products {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let value = || Ok(Scalar::ONE);
        let left = cs.alloc(|| "left", value)?;
        let right = cs.alloc(|| "right", value)?;
        let middle = cs.alloc(|| "middle", value)?;
        let product = cs.alloc_input(|| "product", value)?;
        let double = cs.alloc_input(|| "double", || Ok(Scalar::ONE.double()))?;
        cs.enforce(
            || "left * right = product",
            |lc| lc + left,
            |lc| lc + right,
            |lc| lc + product,
        );
        for (name, factor) in [("first", product), ("second", middle)] {
            let next = cs.alloc(|| name, value)?;
            cs.enforce(
                || name,
                |lc| lc + next,
                |lc| lc + factor + CS::one(),
                |lc| lc + double,
            );
        }
        Ok(())
    }
}

/// bellperson's parameters of [`Products`].
fn parameters() -> &'static Parameters<Bls12> {
    static PARAMETERS: OnceLock<Parameters<Bls12>> = OnceLock::new();
    PARAMETERS.get_or_init(|| {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        generate_random_parameters(Products, &mut rng).expect("parameters of a small circuit")
    })
}

/// The file that bellperson writes of them.
fn key_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    parameters()
        .write(&mut bytes)
        .expect("writing to memory cannot fail");
    bytes
}

/// A file in a directory that goes with it.
struct Scratch {
    directory: TempDir,
}

impl Scratch {
    fn new() -> Self {
        Self {
            directory: TempDir::new().expect("a temporary directory"),
        }
    }

    fn with(bytes: &[u8]) -> Self {
        let scratch = Self::new();
        scratch.overwrite(bytes);
        scratch
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("test.params")
    }

    fn overwrite(&self, bytes: &[u8]) {
        fs::write(self.path(), bytes).expect("writing a temporary file");
    }

    /// Overwrites the file in place and sets the time of that back to what it was.
    fn overwrite_unnoticed(&self, bytes: &[u8]) {
        let written = |file: &fs::File| file.metadata().and_then(|metadata| metadata.modified());
        let file = fs::OpenOptions::new().write(true).open(self.path());
        let file = file.expect("opening a temporary file");
        let before = written(&file).expect("when it was written");
        file.write_all_at(bytes, 0)
            .expect("writing a temporary file");
        file.set_modified(before).expect("setting the time back");
    }

    /// Sets the time of the last write to one that no later write has.
    fn age(&self) {
        let file = fs::OpenOptions::new().write(true).open(self.path());
        let file = file.expect("opening a temporary file");
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        file.set_modified(long_ago).expect("setting a time");
    }

    /// Names of the files in the directory.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).expect("listing a directory");
        entries
            .map(|entry| {
                let name = entry.expect("a directory entry").file_name();
                name.into_string().expect("a name in UTF-8")
            })
            .collect()
    }
}

fn checks(points: PointCheck) -> KeyChecks {
    KeyChecks {
        points,
        digest: None,
    }
}

fn open(bytes: &[u8], points: PointCheck) -> Result<Key, KeyError> {
    let scratch = Scratch::with(bytes);
    Key::open(&scratch.path(), &checks(points)).map_err(|fault| in_place(fault, &scratch.path()))
}

/// An error with its path replaced by one that is the same in every run.
fn in_place(mut fault: KeyError, path: &Path) -> KeyError {
    let place = match &mut fault {
        KeyError::Io { path, .. }
        | KeyError::Text { path, .. }
        | KeyError::Truncated { path, .. }
        | KeyError::Trailing { path, .. }
        | KeyError::Point { path, .. }
        | KeyError::Changed { path, .. }
        | KeyError::Rewritten { path }
        | KeyError::OtherCircuit { path, .. }
        | KeyError::Digest { path, .. }
        | KeyError::TooMany { path, .. }
        | KeyError::Exists { path } => path,
    };
    assert_eq!(place, path, "the error names the file");
    *place = PathBuf::from("DIR/test.params");
    fault
}
