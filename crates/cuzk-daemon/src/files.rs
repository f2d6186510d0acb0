//! Reading and writing files, with the path in every error.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cuzk_core::ByteCount;

use crate::exit::{Exit, Failure};

/// The most that is read of an input file: a C1 output of 64 GiB sectors has 70 MB.
const INPUT_BYTES_MAX: u64 = 512 << 20;

/// Temporary names that are tried for one file.
const NAMES_MAX: usize = 1024;

/// The contents of an input file. Devices and pipes are refused: they have no end.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |reason: String| Failure::new(Exit::Input, format!("{}: {reason}", path.display()));
    let about = fs::metadata(path).map_err(|error| at(Exit::Input, path, error))?;
    if !about.is_file() {
        return Err(wrong("not a regular file".to_owned()));
    }
    if about.len() > INPUT_BYTES_MAX {
        return Err(wrong(format!(
            "{}, at most {} are read",
            ByteCount(about.len()),
            ByteCount(INPUT_BYTES_MAX)
        )));
    }
    fs::read(path).map_err(|error| at(Exit::Input, path, error))
}

/// Fails before any work is done if there is a file already, or no place for one.
pub(crate) fn check_new(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(exists(path));
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => Err(Failure::new(
            Exit::Usage,
            format!("{}: no such directory", parent.display()),
        )),
        _ => Ok(()),
    }
}

/// A file that is being made: under a temporary name until it is finished, so that
/// nobody ever sees half of it, and gone if it is dropped before.
pub(crate) struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    file: fs::File,
}

impl NewFile {
    /// Begins a file where there is none. That it can be written is known before the
    /// work that fills it begins.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        check_new(path)?;
        let (temporary, file) = partial_beside(path)?;
        let path = path.to_owned();
        Ok(Self {
            path,
            temporary,
            file,
        })
    }

    /// Fills the file and gives it its name. An existing file is never replaced.
    pub(crate) fn finish(
        mut self,
        write: impl FnOnce(&mut fs::File) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        write(&mut self.file)?;
        self.file
            .sync_all()
            .map_err(|error| at(Exit::Failure, &self.path, error))?;
        publish(&self.temporary, &self.path)
    }

    /// Fills the file with bytes and gives it its name.
    pub(crate) fn finish_with(self, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.path.clone();
        self.finish(|file| {
            file.write_all(bytes)
                .map_err(|error| at(Exit::Failure, &path, error))
        })
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Either the file has its own name now, or it is not wanted.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// A new file beside `path` under a temporary name.
fn partial_beside(path: &Path) -> Result<(PathBuf, fs::File), Failure> {
    // Short, since a name has a limit and the file's own may be at it; numbered, since
    // one command may write several files.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut tried = 0;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".{}-{number}.partial", std::process::id());
        let temporary = path.with_file_name(name);
        tried += 1;
        match fs::File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            // Left by a process that was killed and had the same id: in a container every
            // one has.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tried < NAMES_MAX => {}
            Err(error) => return Err(at(Exit::Failure, &temporary, error)),
        }
    }
}

/// Gives a file its name. A link does not replace what came to be there in the
/// meantime; a file system without links leaves a moment in which a rename would.
fn publish(temporary: &Path, path: &Path) -> Result<(), Failure> {
    match fs::hard_link(temporary, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists(path)),
        Err(_) => {
            check_new(path)?;
            fs::rename(temporary, path).map_err(|error| at(Exit::Failure, path, error))
        }
    }
}

fn exists(path: &Path) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("{}: exists already and is not replaced", path.display()),
    )
}

fn at(exit: Exit, path: &Path, error: std::io::Error) -> Failure {
    Failure::new(exit, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_whole_or_not_at_all() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("proof");
        let left = || fs::read_dir(directory.path()).expect("readable").count();

        let begun = NewFile::create(&path).expect("nothing is there");
        let fails = begun.finish(|file| {
            file.write_all(b"half").expect("writable");
            Err(Failure::new(Exit::Failure, "no more"))
        });
        assert!(fails.is_err() && !path.exists());
        assert_eq!(left(), 0);

        let write = |path: &Path, bytes: &[u8]| NewFile::create(path)?.finish_with(bytes);
        write(&path, b"whole").expect("writable");
        let again = write(&path, b"other").expect_err("exists");
        assert_eq!(again.exit, Exit::Usage);
        // Somebody else was faster.
        let slow = directory.path().join("slow");
        let begun = NewFile::create(&slow).expect("nothing is there");
        fs::write(&slow, b"theirs").expect("writable");
        assert_eq!(
            begun.finish_with(b"ours").expect_err("theirs").exit,
            Exit::Usage
        );
        assert_eq!(fs::read(&slow).expect("readable"), b"theirs");
        fs::remove_file(&slow).expect("removable");
        assert_eq!(fs::read(&path).expect("readable"), b"whole");
        assert_eq!(left(), 1);

        let nowhere = directory.path().join("no/where");
        assert!(
            write(&nowhere, b"")
                .expect_err("no directory")
                .to_string()
                .contains("no such")
        );
    }

    #[test]
    fn what_a_killed_process_of_the_same_id_left_is_stepped_over() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let leave = |numbers: std::ops::Range<usize>| {
            for number in numbers {
                let name = format!(".{}-{number}.partial", std::process::id());
                fs::write(directory.path().join(name), b"theirs").expect("writable");
            }
        };
        // More than the other tests here take.
        leave(0..100);
        let path = directory.path().join("trace");
        let begun = NewFile::create(&path).expect("a name is free");
        begun.finish_with(b"ours").expect("writable");
        assert_eq!(fs::read(&path).expect("readable"), b"ours");
        let left = fs::read_dir(directory.path()).expect("readable").count();
        assert_eq!(left, 101, "what is theirs stays");

        leave(100..NAMES_MAX + 200);
        let error = NewFile::create(&directory.path().join("other")).err();
        let error = error.expect("no name is free").to_string();
        assert!(error.contains(".partial: "), "{error}");
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        for path in ["/dev/zero", "/"] {
            let error = read(Path::new(path)).expect_err("not a file").to_string();
            assert_eq!(error, format!("{path}: not a regular file"));
        }
    }
}
