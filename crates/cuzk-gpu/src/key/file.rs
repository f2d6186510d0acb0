//! A key file on disk: an open descriptor, its length, and positioned reads.
//!
//! Keys are read with positioned reads into small buffers, not through a memory
//! map. Decoding a point costs several times what copying its bytes out of the
//! page cache does, so a map would gain little; and a file that somebody cuts
//! short under a map is a signal that ends the process, while under a read it is
//! an error that ends one job. The bytes still live in the page cache alone, so
//! they count in no budget.
//!
//! Every read is followed by a look at the file's length and at when it was written
//! last: bytes of a file that was written to since it was opened are never used. That is
//! as fine as the clock of the file system, a few milliseconds at the most.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::KeyError;

/// An open key file.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    file: File,
    opened: Identity,
}

/// Which file it is and when it was changed last, as far as the file system tells. Times
/// are seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    links: u64,
    bytes: u64,
    /// When its bytes were written last. Whoever copies a file over it may set this back.
    written: (i64, i64),
    /// When anything of it was changed last, also its names and its mode; nobody can set
    /// this back.
    changed: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            links: metadata.nlink(),
            bytes: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
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
        let opened = Identity::of(&file.metadata().map_err(io_error)?);
        Ok(Self {
            path: path.to_owned(),
            file,
            opened,
        })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length when it was opened.
    pub(crate) fn bytes(&self) -> u64 {
        self.opened.bytes
    }

    /// Fills `buffer` from `offset`, which the section table placed in the file.
    ///
    /// # Errors
    /// As [`check_written`](Self::check_written).
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), KeyError> {
        let read = self.file.read_exact_at(buffer, offset);
        self.check_written()?;
        read.map_err(|source| self.io_error(source))
    }

    /// Whether the file still has the bytes that it was opened with.
    ///
    /// # Errors
    /// [`KeyError::Changed`] if it has another length, [`KeyError::Rewritten`] if it was
    /// written to, and [`KeyError::Io`].
    pub(crate) fn check_written(&self) -> Result<(), KeyError> {
        self.now().map(drop)
    }

    /// As [`check_written`](Self::check_written), and also told where whoever wrote to it
    /// has set the time of that back. A change of the file's mode looks the same; one of its
    /// names does not.
    pub(crate) fn check_unchanged(&self) -> Result<(), KeyError> {
        let now = self.now()?;
        if now.changed != self.opened.changed && now.links == self.opened.links {
            return Err(self.rewritten());
        }
        Ok(())
    }

    /// Whether there is a file at its path that is another one, or that may have other bytes
    /// than those it was opened with. A file that is gone, or cannot be asked for, has been
    /// replaced by nothing.
    pub(crate) fn is_replaced(&self) -> bool {
        let now = fs::metadata(&self.path);
        now.is_ok_and(|metadata| Identity::of(&metadata) != self.opened)
    }

    fn now(&self) -> Result<Identity, KeyError> {
        let metadata = self.file.metadata().map_err(|e| self.io_error(e))?;
        let (now, opened) = (Identity::of(&metadata), self.opened);
        if now.bytes != opened.bytes {
            return Err(KeyError::Changed {
                path: self.path.clone(),
                have: now.bytes,
                want: opened.bytes,
            });
        }
        if now.written != opened.written {
            return Err(self.rewritten());
        }
        Ok(now)
    }

    fn rewritten(&self) -> KeyError {
        KeyError::Rewritten {
            path: self.path.clone(),
        }
    }

    fn io_error(&self, source: io::Error) -> KeyError {
        KeyError::Io {
            path: self.path.clone(),
            source,
        }
    }
}
