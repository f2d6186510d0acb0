//! What people and programs read.

use std::fmt;

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
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    // Fails if a log runs already, as in tests that call the library twice.
    let _ = subscriber.try_init();
}

/// Prints why the program ends.
pub(crate) fn failure(failure: &Failure) {
    eprintln!("cuzk: {failure}");
}

/// Prints a result: as text, or as JSON if that was asked for.
pub(crate) fn result<T: Serialize + fmt::Display>(json: bool, result: &T) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string_pretty(result)
            .map_err(|error| Failure::new(Exit::Failure, error))?;
        println!("{text}");
    } else {
        print!("{result}");
    }
    Ok(())
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
    use super::bytes;

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(1_115_000_000), "1.04 GiB");
        assert_eq!(bytes(u64::MAX), "16777216.00 TiB");
    }
}
