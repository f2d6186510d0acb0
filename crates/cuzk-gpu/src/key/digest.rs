//! Digests of key files as the published `parameters.json` lists them: the first
//! 16 bytes of BLAKE2b-512, in hexadecimal.

use std::path::Path;

use crate::error::KeyError;
use crate::key::file::KeyFile;

/// Bytes of the hash that a published digest keeps.
const DIGEST_BYTES: usize = 16;
/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Digest of a file, for comparison with the published one. One thread hashes it.
///
/// # Errors
/// [`KeyError::Io`], [`KeyError::Changed`] and [`KeyError::Rewritten`].
pub fn file_digest(path: &Path) -> Result<String, KeyError> {
    file_digest_with(path, |_, _| ())
}

/// As [`file_digest`], and tells after every mebibyte how many bytes of how many are
/// hashed: a key of 50 GB takes minutes.
///
/// # Errors
/// As [`file_digest`].
pub fn file_digest_with(path: &Path, progress: impl FnMut(u64, u64)) -> Result<String, KeyError> {
    digest(&KeyFile::open(path)?, progress)
}

/// Compares a file's digest with the published one.
pub(crate) fn check_digest(file: &KeyFile, want: &str) -> Result<(), KeyError> {
    let have = digest(file, |_, _| ())?;
    if have.eq_ignore_ascii_case(want) {
        return Ok(());
    }
    Err(KeyError::Digest {
        path: file.path().to_owned(),
        have,
        want: want.to_owned(),
    })
}

fn digest(file: &KeyFile, mut progress: impl FnMut(u64, u64)) -> Result<String, KeyError> {
    let mut state = blake2b_simd::State::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut offset = 0;
    while offset < file.bytes() {
        let left = usize::try_from(file.bytes() - offset).unwrap_or(usize::MAX);
        let part = &mut buffer[..left.min(BUFFER_BYTES)];
        file.read_at(part, offset)?;
        state.update(part);
        offset += part.len() as u64;
        progress(offset, file.bytes());
    }
    let mut hex = state.finalize().to_hex().to_string();
    hex.truncate(2 * DIGEST_BYTES);
    Ok(hex)
}
