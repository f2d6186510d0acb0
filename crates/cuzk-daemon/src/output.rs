//! What people and programs read.
//!
//! A reader who goes away (`cuzk config | head -1`) has what it wanted, so that is no
//! failure. Anything else that keeps a result from being written is one.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};

use serde::Serialize;
use tracing_subscriber::filter::LevelFilter;

use crate::args::LogLevel;
use crate::exit::{Exit, Failure};

/// Sends the log to standard error. Called again, it changes nothing.
pub(crate) fn start_log(level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        // It would tell of a line that it cannot write to standard error there, and
        // panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    // Fails if a log runs already, as in tests that call the library twice.
    let _ = subscriber.try_init();
}

/// Prints why the program ends.
pub(crate) fn failure(failure: &Failure) {
    // Nobody is left to tell if standard error does not take it; the exit code does.
    let _ = writeln!(io::stderr().lock(), "cuzk: {failure}");
}

/// Prints a result: as text, or as JSON if that was asked for.
pub(crate) fn result<T: Serialize + fmt::Display>(json: bool, result: &T) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string_pretty(result).map_err(|error| Failure::new(Exit::Failure, error))?
            + "\n"
    } else {
        result.to_string()
    };
    print(text.as_bytes())
}

/// Writes bytes to standard output.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    print_to(&mut io::stdout().lock(), bytes)
}

fn print_to(out: &mut impl Write, bytes: &[u8]) -> Result<(), Failure> {
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// What came of writing to standard output.
pub(crate) fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Failure,
            format!("standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Bytes as people read them: `1.04 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.2} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe or a disk that fails: when it is written to, or only when it is flushed.
    struct Fails {
        with: ErrorKind,
        at_write: bool,
    }

    impl Write for Fails {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.at_write {
                return Err(self.with.into());
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.with.into())
        }
    }

    #[test]
    fn a_reader_who_goes_away_is_no_failure_and_a_full_disk_is() {
        for at_write in [true, false] {
            let with = ErrorKind::BrokenPipe;
            print_to(&mut Fails { with, at_write }, b"text").expect("nobody wants more");
            let with = ErrorKind::StorageFull;
            let failure = print_to(&mut Fails { with, at_write }, b"text").expect_err("full");
            assert_eq!(failure.exit, Exit::Failure);
            assert_eq!(failure.to_string(), "standard output: no storage space");
        }
        let mut taken = Vec::new();
        print_to(&mut taken, b"text").expect("a vector takes all");
        assert_eq!(taken, b"text");
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(1_115_000_000), "1.04 GiB");
        assert_eq!(bytes(u64::MAX), "16777216.00 TiB");
    }
}
