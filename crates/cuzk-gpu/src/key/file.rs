//! A key file on disk: an open descriptor, its length, and positioned reads.
//!
//! Keys are read with positioned reads into small buffers, not through a memory
//! map. Decoding a point costs several times what copying its bytes out of the
//! page cache does, so a map would gain little; and a file that somebody cuts
//! short under a map is a signal that ends the process, while under a read it is
//! an error that ends one job. The bytes still live in the page cache alone, so
//! they count in no budget.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::KeyError;

/// An open key file.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl KeyFile {
    /// Opens a regular file and notes its length.
    pub(crate) fn open(path: &Path) -> Result<Self, KeyError> {
        let io_error = |source| KeyError::Io {
            path: path.to_owned(),
            source,
        };
        // Asked before opening: opening a pipe would wait for a writer.
        if !fs::metadata(path).map_err(io_error)?.is_file() {
            return Err(io_error(io::Error::new(
                ErrorKind::InvalidInput,
                "not a regular file",
            )));
        }
        let file = File::open(path).map_err(io_error)?;
        let bytes = file.metadata().map_err(io_error)?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
        })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length when it was opened.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `buffer` from `offset`, which the section table placed in the file.
    ///
    /// # Errors
    /// [`KeyError::Changed`] if the file has become too short for that, and
    /// [`KeyError::Io`].
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), KeyError> {
        match self.file.read_exact_at(buffer, offset) {
            Ok(()) => Ok(()),
            Err(source) if source.kind() == ErrorKind::UnexpectedEof => {
                self.check_length()?;
                Err(self.io_error(source))
            }
            Err(source) => Err(self.io_error(source)),
        }
    }

    /// Compares the length now with the length when the file was opened.
    pub(crate) fn check_length(&self) -> Result<(), KeyError> {
        let metadata = self.file.metadata().map_err(|e| self.io_error(e))?;
        if metadata.len() == self.bytes {
            Ok(())
        } else {
            Err(KeyError::Changed {
                path: self.path.clone(),
                have: metadata.len(),
                want: self.bytes,
            })
        }
    }

    fn io_error(&self, source: io::Error) -> KeyError {
        KeyError::Io {
            path: self.path.clone(),
            source,
        }
    }
}
