//! Insecure proving keys for tests: from a seed, so the toxic waste is known and
//! anybody can forge proofs for them.
//!
//! With the toxic waste at hand a key needs no ceremony: a first pass over the
//! circuit counts it, a second evaluates its QAP at tau, and each point of the key is
//! a known multiple of a generator. Points are made and written a block at a time, so memory is three
//! scalars a variable for the QAP and up to two for copies of it, 20 GiB at 2^27. The
//! result equals bellperson's generator bit for bit.
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

mod publish;
mod sidecar;

use std::ops::Range;
use std::path::{Path, PathBuf};

use bellperson::groth16::VerifyingKey;
use blstrs::{Bls12, G1Affine, G2Affine, Scalar};
use cuzk_gpu::fixed_base::{Multiples, Multiplier, OnCpu};
use cuzk_gpu::{BackendError, KeyError, KeyWriter, Section};
use cuzk_synth::{QapAtTau, QapColumns, Sizes, SynthError, count, qap};
use ff::Field;
use group::Curve;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use rayon::prelude::*;

pub use sidecar::{Sidecar, sidecar_path};

use crate::CircuitSpec;
use publish::KeyFiles;

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

    progress("count", 0, 1);
    let counted = count(|pass| circuit.synthesize_blank(pass))?;
    let sizes = counted.sizes;
    progress("qap", 0, 1);
    let qap = qap(&sizes, waste.tau, |pass| circuit.synthesize_blank(pass))?;
    let key = Generator {
        waste,
        sizes,
        qap,
        name: &name,
        gamma_inverse,
        delta_inverse,
        progress,
    };
    let densities = &counted.densities;
    key.check_density(&key.qap.aux.a, densities.a_aux.ones())?;
    key.check_density(&key.qap.inputs.b, densities.b_inputs.ones())?;
    key.check_density(&key.qap.aux.b, densities.b_aux.ones())?;

    let (writer, vk) = key.write(&params, multiplier)?;
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

struct Generator<'a> {
    waste: &'a ToxicWaste,
    sizes: Sizes,
    qap: QapAtTau,
    name: &'a str,
    gamma_inverse: Scalar,
    delta_inverse: Scalar,
    progress: Progress<'a>,
}

impl Generator<'_> {
    /// A polynomial that vanishes at tau although its variable has coefficients
    /// would be missing from the key, and the prover would expect it.
    fn check_density(&self, evaluations: &[Scalar], dense: usize) -> Result<(), KeygenError> {
        let have = evaluations
            .iter()
            .filter(|value| **value != Scalar::ZERO)
            .count();
        if have == dense {
            Ok(())
        } else {
            Err(KeygenError::UnluckyTau {
                circuit: self.name.to_owned(),
            })
        }
    }

    /// Writes all of the key, which has no name yet.
    fn write(
        &self,
        path: &Path,
        multiplier: &dyn Multiplier,
    ) -> Result<(KeyWriter, VerifyingKey<Bls12>), KeygenError> {
        let QapAtTau { inputs, aux } = &self.qap;
        let a = nonzero(&inputs.a, &aux.a);
        let b = nonzero(&inputs.b, &aux.b);
        let Sizes {
            inputs: input_count,
            aux: aux_count,
            constraints,
        } = self.sizes;
        let h_count = constraints.next_power_of_two() - 1;

        (self.progress)("tables", 0, 1);
        let g1_count = h_count + input_count + aux_count + a.len() + b.len();
        let tables = multiplier.tables((self.waste.g1, g1_count), (self.waste.g2, b.len()))?;
        let tables = &*tables;

        let vk = self.verifying_key(tables)?;
        let mut writer = KeyWriter::create(path, &vk)?;
        self.section_g1(&mut writer, Section::H, h_count, tables, |range| {
            Ok(self.h_scalars(h_count + 1, range))
        })?;
        self.section_g1(&mut writer, Section::L, aux_count, tables, |range| {
            self.l_scalars(range)
        })?;
        self.section_g1(&mut writer, Section::A, a.len(), tables, |range| {
            Ok(a[range].to_vec())
        })?;
        self.section_g1(&mut writer, Section::BG1, b.len(), tables, |range| {
            Ok(b[range].to_vec())
        })?;
        writer.begin(Section::BG2, b.len())?;
        let block_len = tables.block_len();
        for (block, scalars) in b.chunks(block_len).enumerate() {
            (self.progress)("points", (block * block_len) as u64, b.len() as u64);
            writer.write_g2(&tables.g2(scalars)?)?;
        }
        Ok((writer, vk))
    }

    fn verifying_key(&self, tables: &dyn Multiples) -> Result<VerifyingKey<Bls12>, KeygenError> {
        let ToxicWaste {
            g1,
            g2,
            alpha,
            beta,
            gamma,
            delta,
            ..
        } = *self.waste;
        let ic = self.combined(&self.qap.inputs, 0..self.sizes.inputs, self.gamma_inverse);
        Ok(VerifyingKey {
            alpha_g1: (g1 * alpha).to_affine(),
            beta_g1: (g1 * beta).to_affine(),
            beta_g2: (g2 * beta).to_affine(),
            gamma_g2: (g2 * gamma).to_affine(),
            delta_g1: (g1 * delta).to_affine(),
            delta_g2: (g2 * delta).to_affine(),
            ic: tables.g1(&ic)?,
        })
    }

    /// `tau^i * z(tau) / delta`, where z vanishes on the domain.
    fn h_scalars(&self, domain: usize, range: Range<usize>) -> Vec<Scalar> {
        let tau = self.waste.tau;
        let z = tau.pow_vartime([domain as u64]) - Scalar::ONE;
        powers(tau, range, z * self.delta_inverse)
    }

    fn l_scalars(&self, range: Range<usize>) -> Result<Vec<Scalar>, KeygenError> {
        let start = range.start;
        let scalars = self.combined(&self.qap.aux, range, self.delta_inverse);
        match scalars.iter().position(|value| *value == Scalar::ZERO) {
            None => Ok(scalars),
            Some(index) => Err(KeygenError::Unconstrained {
                circuit: self.name.to_owned(),
                index: start + index,
            }),
        }
    }

    /// `(beta * a + alpha * b + c) * inverse` of a range of variables.
    fn combined(&self, columns: &QapColumns, range: Range<usize>, inverse: Scalar) -> Vec<Scalar> {
        let ToxicWaste { alpha, beta, .. } = self.waste;
        range
            .into_par_iter()
            .map(|i| (columns.a[i] * beta + columns.b[i] * alpha + columns.c[i]) * inverse)
            .collect()
    }

    fn section_g1(
        &self,
        writer: &mut KeyWriter,
        section: Section,
        len: usize,
        tables: &dyn Multiples,
        scalars: impl Fn(Range<usize>) -> Result<Vec<Scalar>, KeygenError>,
    ) -> Result<(), KeygenError> {
        writer.begin(section, len)?;
        let block_len = tables.block_len();
        for start in (0..len).step_by(block_len) {
            (self.progress)("points", start as u64, len as u64);
            let scalars = scalars(start..len.min(start + block_len))?;
            writer.write_g1(&tables.g1(&scalars)?)?;
        }
        Ok(())
    }
}

fn inverse(secret: Scalar) -> Result<Scalar, KeygenError> {
    Option::from(secret.invert()).ok_or(KeygenError::ZeroSecret)
}

/// The values of inputs and auxiliary variables that are not zero, in order: those
/// that have a point in a query.
fn nonzero(inputs: &[Scalar], aux: &[Scalar]) -> Vec<Scalar> {
    inputs
        .par_iter()
        .chain(aux)
        .filter(|value| **value != Scalar::ZERO)
        .copied()
        .collect()
}

/// `factor * tau^i` for the range of i.
fn powers(tau: Scalar, range: Range<usize>, factor: Scalar) -> Vec<Scalar> {
    const RUN: usize = 1 << 12;
    let starts: Vec<usize> = range.clone().step_by(RUN).collect();
    starts
        .into_par_iter()
        .flat_map_iter(|start| {
            let first = factor * tau.pow_vartime([start as u64]);
            std::iter::successors(Some(first), move |power| Some(*power * tau))
                .take(RUN.min(range.end - start))
        })
        .collect()
}
