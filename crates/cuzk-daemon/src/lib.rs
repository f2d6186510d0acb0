//! The `cuzk` program: prove, verify, make keys and fixtures. It parses arguments,
//! opens files and prints; whatever concerns proofs is in the libraries below it.
//!
//! Results go to standard output, logs and progress to standard error, and the exit
//! code says what kind of end it was ([`Exit`]).
//!
//! ```
//! // `cuzk config` as a library call.
//! let exit = cuzk_daemon::run(["cuzk", "--set", "engine.threads=1", "config"]);
//! assert_eq!(exit, cuzk_daemon::Exit::Success);
//! ```
#![forbid(unsafe_code)]

mod args;
pub mod client;
mod commands;
mod configuration;
mod cpu;
mod error;
mod exit;
mod files;
mod machine;
mod output;
mod progress;
pub mod serve;
pub mod wire;

pub use error::{ClientError, ServeError};
pub use exit::Exit;

use std::ffi::OsString;

use clap::Parser;

/// Runs the program with its arguments, the program's name first.
pub fn run<T: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = T>) -> Exit {
    let args = match args::Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            // Help and version are printed this way too, and are no error.
            let printed = error.print();
            if error.use_stderr() {
                return Exit::Usage;
            }
            return ended(output::written(printed));
        }
    };
    output::start_log(args.log);
    let able = if args.command.computes() {
        cpu::check()
    } else {
        Ok(())
    };
    ended(able.and_then(|()| commands::run(&args)))
}

fn ended(outcome: Result<(), exit::Failure>) -> Exit {
    match outcome {
        Ok(()) => Exit::Success,
        Err(failure) => {
            output::failure(&failure);
            failure.exit
        }
    }
}
