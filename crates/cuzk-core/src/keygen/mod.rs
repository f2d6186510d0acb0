//! Insecure proving keys for tests: from a seed, so the toxic waste is known and
//! anybody can forge proofs for them.
//!
//! With the toxic waste at hand a key needs no ceremony: the circuit's QAP is evaluated at
//! tau, from its stored rows where it repeats, and each point of the key is a known multiple
//! of a generator. Points are made and written a block at a time, so memory is three scalars
//! a variable, 12 GiB at 2^27. The result equals bellperson's generator bit for bit.
//!
//! A key that was made here is never mistaken for a real one: a sidecar file has its
//! name before the key has, no key is ever overwritten, and directories of real keys
//! are refused. The files get their names when all of the key is written: the
//! sidecar, the verifying key, the proving key, so that whoever sees a proving key
//! sees the other two.
//!
//! A run that was killed in between leaves the sidecar, and perhaps the verifying key,
//! without a proving key. The next run takes them for what they are and replaces them.
//! A verifying key without such a sidecar is somebody else's and is never touched.

mod read;

mod points;

mod publish;
mod sidecar;

use std::path::{Path, PathBuf};

use blstrs::{G1Affine, G2Affine, Scalar};
use cuzk_gpu::fixed_base::{Multiplier, OnCpu};
use cuzk_gpu::{BackendError, KeyError};
use cuzk_synth::{Sizes, SynthError};
use ff::Field;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

pub use sidecar::{Sidecar, sidecar_path};

use crate::CircuitSpec;
use points::Generator;
use publish::KeyFiles;
use read::read;

/// The secrets of a key. Whoever knows them can prove anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToxicWaste {
    /// Generator of G1.
    pub g1: G1Affine,
    /// Generator of G2.
    pub g2: G2Affine,
    /// Binds A to B.
    pub alpha: Scalar,
    /// Binds B to A.
    pub beta: Scalar,
    /// Divides the public part.
    pub gamma: Scalar,
    /// Divides the private part.
    pub delta: Scalar,
    /// Where the QAP is evaluated.
    pub tau: Scalar,
}

impl ToxicWaste {
    /// The secrets that a seed gives, always the same.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut secret = || loop {
            let scalar = Scalar::random(&mut rng);
            if scalar != Scalar::ZERO {
                return scalar;
            }
        };
        Self {
            g1: G1Affine::generator(),
            g2: G2Affine::generator(),
            alpha: secret(),
            beta: secret(),
            gamma: secret(),
            delta: secret(),
            tau: secret(),
        }
    }
}

/// Where a key goes.
#[derive(Clone, Debug)]
pub struct KeyOutput<'a> {
    /// Directory of the new files; made if it does not exist.
    pub directory: &'a Path,
    /// Directories of real keys, in which nothing is written.
    pub refused: &'a [PathBuf],
    /// The seed, for the sidecar.
    pub seed: u64,
}

/// A key that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum KeygenError {
    /// The directory is one of real keys.
    #[error("{} is a directory of real keys; test keys are not written there", directory.display())]
    RealKeys {
        /// The directory.
        directory: PathBuf,
    },
    /// A directory or the sidecar could not be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The circuit could not be read.
    #[error(transparent)]
    Circuit(#[from] SynthError),
    /// The key file could not be written.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A device that was to multiply failed.
    #[error(transparent)]
    Multiplier(#[from] BackendError),
    /// A private variable appears in no constraint, so no proof would depend on it.
    #[error("private variable {index} of {circuit} appears in no constraint")]
    Unconstrained {
        /// The circuit.
        circuit: String,
        /// Index of the variable.
        index: usize,
    },
    /// Gamma or delta is zero, and has no inverse.
    #[error("gamma and delta must not be zero")]
    ZeroSecret,
    /// The secrets hit a zero of a polynomial of the circuit: another seed helps.
    #[error("tau is a root of a polynomial of {circuit}: take another seed")]
    UnluckyTau {
        /// The circuit.
        circuit: String,
    },
}

/// How far key generation is: a stage, what is done of it, what there is to do.
pub type Progress<'a> = &'a (dyn Fn(&'static str, u64, u64) + Sync);

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedKey {
    /// The proving key.
    pub params: PathBuf,
    /// The verifying key.
    pub vk: PathBuf,
    /// Element counts of the circuit.
    pub sizes: Sizes,
}

/// Generates the key of a circuit on the CPU, as [`generate_with`] does.
///
/// # Errors
/// As [`generate_with`].
pub fn generate(
    circuit: &dyn CircuitSpec,
    waste: &ToxicWaste,
    output: &KeyOutput<'_>,
    progress: Progress<'_>,
) -> Result<GeneratedKey, KeygenError> {
    generate_with(&OnCpu, circuit, waste, output, progress)
}

/// Generates the key of a circuit; `multiplier` makes its points, the same on all.
///
/// # Errors
/// [`KeygenError::RealKeys`], [`KeyError::Exists`] and [`KeygenError::ZeroSecret`]
/// before any work is done; then what the circuit or the file system says. A key
/// that fails to be written leaves no file under its final name. One that fails to
/// be named may leave its sidecar and verifying key, which the next run replaces.
pub fn generate_with(
    multiplier: &dyn Multiplier,
    circuit: &dyn CircuitSpec,
    waste: &ToxicWaste,
    output: &KeyOutput<'_>,
    progress: Progress<'_>,
) -> Result<GeneratedKey, KeygenError> {
    let directory = prepare(output)?;
    let params = directory.join(circuit.params_file());
    let vk_path = directory.join(circuit.vk_file());
    let name = circuit.id().to_string();
    let files = KeyFiles {
        directory: &directory,
        params: &params,
        vk: &vk_path,
        circuit: &name,
    };
    files.refuse_existing()?;
    let gamma_inverse = inverse(waste.gamma)?;
    let delta_inverse = inverse(waste.delta)?;

    let key = Generator {
        waste,
        name: &name,
        gamma_inverse,
        delta_inverse,
        progress,
    };
    let (writer, vk, sizes) = read(circuit, waste.tau, progress, |circuit| {
        let (writer, vk) = key.write(&circuit, &params, multiplier)?;
        Ok((writer, vk, circuit.sizes))
    })?;
    files.publish(&Sidecar::new(&name, output.seed), &vk, writer)?;
    Ok(GeneratedKey {
        params,
        vk: vk_path,
        sizes,
    })
}

/// Makes the directory and refuses those of real keys, whatever they are called.
fn prepare(output: &KeyOutput<'_>) -> Result<PathBuf, KeygenError> {
    let io = |source| KeygenError::Io {
        path: output.directory.to_owned(),
        source,
    };
    let same = |refused: &PathBuf, directory: &Path| {
        refused
            .canonicalize()
            .is_ok_and(|refused| refused == directory)
    };
    let refuse = || KeygenError::RealKeys {
        directory: output.directory.to_owned(),
    };
    // The standard directory is not even made.
    if output
        .refused
        .iter()
        .any(|refused| refused == output.directory)
    {
        return Err(refuse());
    }
    std::fs::create_dir_all(output.directory).map_err(io)?;
    let directory = output.directory.canonicalize().map_err(io)?;
    if output
        .refused
        .iter()
        .any(|refused| same(refused, &directory))
    {
        return Err(refuse());
    }
    Ok(directory)
}

fn inverse(secret: Scalar) -> Result<Scalar, KeygenError> {
    Option::from(secret.invert()).ok_or(KeygenError::ZeroSecret)
}
