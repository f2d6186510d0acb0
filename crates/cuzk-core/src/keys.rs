//! Key files as people look at them, without an engine.

use std::path::Path;

use blstrs::G1Affine;
use cuzk_gpu::key::{file_digest, file_digest_with, read_vk};
use cuzk_gpu::{Key, KeyChecks, KeyError, Section, Verifier};

use crate::config::PointCheck;

/// Bytes of a verifying key before its counted section: three points of G1 and three
/// of G2, uncompressed.
const VK_FIXED_BYTES: usize = 3 * 96 + 3 * 192;

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
    /// Whether it holds a verifying key alone (`.vk`).
    pub is_verifying_key: bool,
    /// Length of the file.
    pub bytes: u64,
    /// Its sections, in order.
    pub sections: Vec<SectionReport>,
}

/// Opens a key file, checks it and lists its sections. A verifying key in a file of
/// its own is told from a proving key that was cut by what is in it; its points are
/// always checked whole.
///
/// # Errors
/// What is wrong with it, with the place.
pub fn inspect(path: &Path, check: PointCheck) -> Result<KeyReport, KeyError> {
    let checks = KeyChecks {
        points: points_of(check),
        digest: None,
    };
    let key = match Key::open(path, &checks) {
        Ok(key) => key,
        Err(cut @ KeyError::Truncated { .. }) => {
            return inspect_vk(path).map_err(|wrong| match path.extension() {
                Some(extension) if extension == "vk" => wrong,
                _ => cut,
            });
        }
        Err(error) => return Err(error),
    };
    let section = |section: Section| SectionReport {
        name: section.to_string(),
        points: key.count(section),
        offset: key.offset(section),
    };
    Ok(KeyReport {
        is_verifying_key: false,
        bytes: key.file_bytes(),
        sections: Section::COUNTED.into_iter().map(section).collect(),
    })
}

fn inspect_vk(path: &Path) -> Result<KeyReport, KeyError> {
    let points = read_vk(path)?.ic.len();
    // The only counted section stands after the fixed points and its count.
    let offset = (VK_FIXED_BYTES + 4) as u64;
    let point_bytes = size_of::<G1Affine>() as u64;
    Ok(KeyReport {
        is_verifying_key: true,
        bytes: offset + points as u64 * point_bytes,
        sections: vec![SectionReport {
            name: Section::Ic.to_string(),
            points,
            offset,
        }],
    })
}

/// Digest of a file as the published list has it. `progress` hears of the bytes that
/// are hashed and of those there are.
///
/// # Errors
/// If the file cannot be read, or changes meanwhile.
pub fn digest(path: &Path, progress: impl FnMut(u64, u64)) -> Result<String, KeyError> {
    file_digest_with(path, progress)
}

/// Reads a verifying key from a file of its own (`.vk`), to check proofs with. With
/// `digest` the file must be the published one.
///
/// # Errors
/// If it is not one.
pub fn verifier(path: &Path, digest: Option<String>) -> Result<Verifier, KeyError> {
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
    Ok(Verifier::new(read_vk(path)?))
}

/// The checks of the arithmetic that a configured word stands for.
pub(crate) fn points_of(check: PointCheck) -> cuzk_gpu::PointCheck {
    match check {
        PointCheck::Counts => cuzk_gpu::PointCheck::None,
        PointCheck::Curve => cuzk_gpu::PointCheck::OnCurve,
        PointCheck::Subgroup => cuzk_gpu::PointCheck::Subgroup,
    }
}
