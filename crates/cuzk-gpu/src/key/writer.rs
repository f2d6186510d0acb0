//! Writes key files section by section, so that a key never has to be in memory.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use bellperson::groth16::VerifyingKey;
use blstrs::{Bls12, G1Affine, G2Affine};
use rayon::prelude::*;

use crate::error::{KeyError, PointFault};
use crate::key::point::Point;
use crate::key::section::Section;
use crate::key::vk;

/// Points that one task encodes and writes to their place: 768 KiB in G1.
const TASK_POINTS: usize = 1 << 13;

/// A key file under construction, under a temporary name beside its final one.
/// [`KeyWriter::finish`] gives it its name; dropped before, it leaves nothing.
///
/// The verifying key is written first; then come the sections from
/// [`Section::H`] to [`Section::BG2`] in their order, each begun with its number
/// of points and written in as many pieces as suits the caller.
#[derive(Debug)]
pub struct KeyWriter {
    sink: Sink,
    /// Section being written.
    section: Section,
    /// Points it was begun with.
    count: usize,
    /// Points written so far.
    written: usize,
}

impl KeyWriter {
    /// Starts a key file and writes the verifying key.
    ///
    /// # Errors
    /// [`KeyError::Exists`] if there is a file at `path`, [`KeyError::Point`] if
    /// the verifying key holds a point at infinity, and [`KeyError::Io`].
    pub fn create(path: &Path, vk: &VerifyingKey<Bls12>) -> Result<Self, KeyError> {
        let mut sink = Sink::create(path)?;
        vk::encode(vk, &mut sink)?;
        Ok(Self {
            sink,
            section: Section::Ic,
            count: vk.ic.len(),
            written: vk.ic.len(),
        })
    }

    /// Begins the next section, of `count` points.
    ///
    /// # Errors
    /// [`KeyError::TooMany`] past 2^32 - 1 points, and [`KeyError::Io`].
    ///
    /// # Panics
    /// If the section before is not complete, or another one is due.
    pub fn begin(&mut self, section: Section, count: usize) -> Result<(), KeyError> {
        self.assert_complete();
        let due = Section::COUNTED
            .into_iter()
            .find(|next| *next > self.section);
        assert_eq!(Some(section), due, "the section that is due");
        self.sink.write_count(section, count)?;
        self.section = section;
        self.count = count;
        self.written = 0;
        Ok(())
    }

    /// Writes the next points of a G1 section.
    ///
    /// # Errors
    /// [`KeyError::Point`] for a point at infinity, which a key may not hold (an
    /// unconstrained variable gives one in [`Section::L`]), and [`KeyError::Io`].
    ///
    /// # Panics
    /// If the section was begun with fewer points, or is [`Section::BG2`].
    pub fn write_g1(&mut self, points: &[G1Affine]) -> Result<(), KeyError> {
        self.write(points)
    }

    /// Writes the next points of [`Section::BG2`].
    ///
    /// # Errors
    /// As [`KeyWriter::write_g1`].
    ///
    /// # Panics
    /// If the section was begun with fewer points, or is another one.
    pub fn write_g2(&mut self, points: &[G2Affine]) -> Result<(), KeyError> {
        self.write(points)
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// [`KeyError::Exists`] if a file has come into being there meanwhile, and
    /// [`KeyError::Io`]. Then nothing of this file is left, unless only the entry
    /// in its directory could not be made durable.
    ///
    /// # Panics
    /// If a section is missing or not complete.
    pub fn finish(self) -> Result<(), KeyError> {
        self.assert_complete();
        assert_eq!(self.section, Section::BG2, "the last section written");
        self.sink.publish()
    }

    fn write<P: Point>(&mut self, points: &[P]) -> Result<(), KeyError> {
        assert_eq!(self.section.point_bytes(), P::BYTES, "{}", self.section);
        assert!(
            points.len() <= self.count - self.written,
            "{} points more in section {}, which has {} of {}",
            points.len(),
            self.section,
            self.written,
            self.count
        );
        self.sink
            .write_points(self.section, self.written as u64, points)?;
        self.written += points.len();
        Ok(())
    }

    fn assert_complete(&self) {
        assert_eq!(
            self.written, self.count,
            "points written of section {}",
            self.section
        );
    }
}

/// A file under a temporary name.
#[derive(Debug)]
pub(crate) struct Sink {
    /// The name it shall have.
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    /// Bytes written.
    offset: u64,
}

impl Sink {
    /// Starts a file that shall be called `path`.
    pub(crate) fn create(path: &Path) -> Result<Self, KeyError> {
        refuse_existing(path)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let (temporary, file) = loop {
            let temporary = temporary_name(path);
            match options.open(&temporary) {
                Ok(file) => break (temporary, file),
                // A process that was killed had our number, as in a container, where
                // every program may be number 1. The next name is another one.
                Err(source) if source.kind() == ErrorKind::AlreadyExists => {}
                Err(source) => return Err(io_error(path, source)),
            }
        };
        Ok(Self {
            path: path.to_owned(),
            temporary,
            file,
            offset: 0,
        })
    }

    /// Writes the count that a section begins with.
    pub(crate) fn write_count(&mut self, section: Section, count: usize) -> Result<(), KeyError> {
        let count = u32::try_from(count).map_err(|_| KeyError::TooMany {
            path: self.path.clone(),
            section,
            have: count as u64,
            limit: u64::from(u32::MAX),
        })?;
        self.write(&count.to_be_bytes())
    }

    /// Writes points, the first of which has the index `first` in its section.
    pub(crate) fn write_points<P: Point>(
        &mut self,
        section: Section,
        first: u64,
        points: &[P],
    ) -> Result<(), KeyError> {
        let infinity = points
            .par_iter()
            .position_first(|point| point.is_identity().into());
        if let Some(at) = infinity {
            return Err(KeyError::Point {
                path: self.path.clone(),
                section,
                index: first + at as u64,
                offset: self.offset + (at * P::BYTES) as u64,
                what: PointFault::Infinity,
            });
        }
        // Each task writes what it encoded, so that copying to the system's pages is not one
        // thread's work either.
        let (file, offset) = (&self.file, self.offset);
        let written = points
            .par_chunks(TASK_POINTS)
            .enumerate()
            .try_for_each_init(Vec::new, |buffer, (task, points)| {
                buffer.resize(points.len() * P::BYTES, 0);
                for (bytes, point) in buffer.chunks_exact_mut(P::BYTES).zip(points) {
                    point.encode(bytes);
                }
                let at = task * TASK_POINTS * P::BYTES;
                file.write_all_at(buffer, offset + at as u64)
            });
        written.map_err(|source| io_error(&self.path, source))?;
        self.offset += (points.len() * P::BYTES) as u64;
        Ok(())
    }

    /// Makes the file durable under its final name.
    pub(crate) fn publish(self) -> Result<(), KeyError> {
        self.file
            .sync_all()
            .map_err(|source| io_error(&self.path, source))?;
        // A link, not a renaming, which would replace a file that has come into
        // being meanwhile. The temporary name goes when `self` is dropped.
        match fs::hard_link(&self.temporary, &self.path) {
            Ok(()) => {}
            Err(source) if source.kind() == ErrorKind::AlreadyExists => {
                return Err(KeyError::Exists {
                    path: self.path.clone(),
                });
            }
            // Some file systems have no links.
            Err(_) => {
                refuse_existing(&self.path)?;
                fs::rename(&self.temporary, &self.path)
                    .map_err(|source| io_error(&self.path, source))?;
            }
        }
        sync_directory(&self.path).map_err(|source| io_error(&self.path, source))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), KeyError> {
        self.file
            .write_all_at(bytes, self.offset)
            .map_err(|source| io_error(&self.path, source))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and after a renaming there is
        // nothing to remove.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// A name beside `path` that no other writer uses: the process and a number in it
/// tell writers apart.
fn temporary_name(path: &Path) -> PathBuf {
    static WRITERS: AtomicU64 = AtomicU64::new(0);
    let number = WRITERS.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{number}.partial", process::id()));
    path.with_file_name(name)
}

fn refuse_existing(path: &Path) -> Result<(), KeyError> {
    // A dangling link counts as existing too.
    match fs::symlink_metadata(path) {
        Ok(_) => Err(KeyError::Exists {
            path: path.to_owned(),
        }),
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(io_error(path, source)),
    }
}

/// Makes a new name in a directory durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

fn io_error(path: &Path, source: io::Error) -> KeyError {
    KeyError::Io {
        path: path.to_owned(),
        source,
    }
}
