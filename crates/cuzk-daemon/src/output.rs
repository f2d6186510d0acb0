//! What people and programs read.
//!
//! A reader who goes away (`cuzk config | head -1`) has what it wanted, so that is no
//! failure. Anything else that keeps a result from being written is one.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};

use serde::Serialize;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LogLevel;
use crate::exit::{Exit, Failure};

/// What is told at the default level although nothing is wrong: that a server is ready.
pub(crate) const MILESTONES: &str = "cuzk::serve";

/// Sends the log to standard error. Called again, it changes nothing.
pub(crate) fn start_log(level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let milestones = match level {
        LevelFilter::WARN => LevelFilter::INFO,
        level => level,
    };
    let wanted = Targets::new()
        .with_default(level)
        .with_target(MILESTONES, milestones);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(milestones)
        .with_writer(io::stderr)
        // It would tell of a line that it cannot write to standard error there, and
        // panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .finish()
        .with(wanted);
    // Fails if a log runs already, as in tests that call the library twice.
    let _ = subscriber.try_init();
}

/// Prints why the program ends, on one line.
pub(crate) fn failure(failure: &Failure) {
    // Nobody is left to tell if standard error does not take it; the exit code does.
    let text = escaped(&failure.to_string());
    let _ = writeln!(io::stderr().lock(), "cuzk: {text}");
}

/// Text that may come from outside (a request, a file's name, a server), on one line
/// and with everything spelled out that a terminal would obey.
pub(crate) fn escaped(text: &str) -> String {
    spelled_out(text, |_| false, |c| c.escape_default().to_string())
}

/// Characters that a terminal does not show but obeys: controls, and those that turn
/// the direction of what follows.
fn is_obeyed(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

fn spelled_out(text: &str, keep: impl Fn(char) -> bool, spell: impl Fn(char) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) && !keep(c) {
            out.push_str(&spell(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Prints a result: as text, or as JSON if that was asked for.
pub(crate) fn result<T: Serialize + fmt::Display>(json: bool, result: &T) -> Result<(), Failure> {
    let ends_line = |c| c == '\n';
    let text = if json {
        let text = serde_json::to_string_pretty(result)
            .map_err(|error| Failure::new(Exit::Failure, error))?;
        // Only strings can have such characters; all are in the first plane.
        spelled_out(&(text + "\n"), ends_line, |c| {
            format!("\\u{:04x}", c as u32)
        })
    } else {
        spelled_out(&result.to_string(), ends_line, |c| {
            c.escape_default().to_string()
        })
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
    fn what_a_terminal_obeys_is_spelled_out() {
        let hostile = "a\u{1b}[2J\r\nb\u{9b}0m\u{202e}c\u{7f}\u{e9}";
        assert_eq!(
            escaped(hostile),
            "a\\u{1b}[2J\\r\\nb\\u{9b}0m\\u{202e}c\\u{7f}\u{e9}"
        );
        assert_eq!(escaped("plain text, \u{65e5}"), "plain text, \u{65e5}");
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
