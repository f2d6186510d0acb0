//! Reading and writing files, with the path in every error.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::exit::{Exit, Failure};

/// The contents of an input file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
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

/// Writes a new file: under a temporary name, then under its own, so that nobody
/// ever sees half of it. An existing file is never replaced.
pub(crate) fn write_new(
    path: &Path,
    write: impl FnOnce(&mut fs::File) -> Result<(), Failure>,
) -> Result<(), Failure> {
    check_new(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let temporary = Path::new(&name);
    let written = fs::File::create_new(temporary)
        .map_err(|error| at(Exit::Failure, temporary, error))
        .and_then(|mut file| {
            write(&mut file)?;
            file.sync_all()
                .map_err(|error| at(Exit::Failure, temporary, error))
        })
        .and_then(|()| publish(temporary, path));
    // Either the file has its own name now, or it is not wanted.
    let _ = fs::remove_file(temporary);
    written
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

/// Writes bytes to a new file.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_new(path, |file| {
        file.write_all(bytes)
            .map_err(|error| at(Exit::Failure, path, error))
    })
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

        let fails = write_new(&path, |file| {
            file.write_all(b"half").expect("writable");
            Err(Failure::new(Exit::Failure, "no more"))
        });
        assert!(fails.is_err() && !path.exists());
        assert_eq!(left(), 0);

        write_bytes(&path, b"whole").expect("writable");
        let again = write_bytes(&path, b"other").expect_err("exists");
        assert_eq!(again.exit, Exit::Usage);
        assert_eq!(fs::read(&path).expect("readable"), b"whole");
        assert_eq!(left(), 1);

        let nowhere = directory.path().join("no/where");
        assert!(
            write_bytes(&nowhere, b"")
                .expect_err("no directory")
                .to_string()
                .contains("no such")
        );
    }
}
