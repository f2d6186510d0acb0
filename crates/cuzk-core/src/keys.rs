//! Key files as people look at them, without an engine.

use std::path::Path;

use bellperson::groth16::{PreparedVerifyingKey, prepare_verifying_key};
use blstrs::Bls12;
use cuzk_gpu::key::{file_digest, read_vk};
use cuzk_gpu::{Key, KeyChecks, KeyError, Section};

use crate::config::PointCheck;

/// A section of a key file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionReport {
    /// Its name (`b_g1`).
    pub name: String,
    /// Number of points.
    pub points: usize,
    /// Where its first point is in the file.
    pub offset: u64,
}

/// A key file that passed its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReport {
    /// Length of the file.
    pub bytes: u64,
    /// Its sections, in order.
    pub sections: Vec<SectionReport>,
}

/// Opens a key file, checks it and lists its sections.
///
/// # Errors
/// What is wrong with it, with the place.
pub fn inspect(path: &Path, check: PointCheck) -> Result<KeyReport, KeyError> {
    let key = Key::open(
        path,
        &KeyChecks {
            points: points_of(check),
            digest: None,
        },
    )?;
    let section = |section: Section| SectionReport {
        name: section.to_string(),
        points: key.count(section),
        offset: key.offset(section),
    };
    Ok(KeyReport {
        bytes: key.file_bytes(),
        sections: Section::COUNTED.into_iter().map(section).collect(),
    })
}

/// Reads a verifying key from a file of its own (`.vk`) and prepares it. With `digest`
/// the file must be the published one.
///
/// # Errors
/// If it is not one.
pub fn verifying_key(
    path: &Path,
    digest: Option<String>,
) -> Result<PreparedVerifyingKey<Bls12>, KeyError> {
    if let Some(want) = digest {
        let have = file_digest(path)?;
        if have != want {
            return Err(KeyError::Digest {
                path: path.to_owned(),
                have,
                want,
            });
        }
    }
    Ok(prepare_verifying_key(&read_vk(path)?))
}

/// The checks of the arithmetic that a configured word stands for.
pub(crate) fn points_of(check: PointCheck) -> cuzk_gpu::PointCheck {
    match check {
        PointCheck::Counts => cuzk_gpu::PointCheck::None,
        PointCheck::Curve => cuzk_gpu::PointCheck::OnCurve,
        PointCheck::Subgroup => cuzk_gpu::PointCheck::Subgroup,
    }
}
