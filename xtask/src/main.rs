//! The project's own tasks: `cargo xtask <command>`, one file a command.
//!
//! It drives programs and reads text. It links none of the crates it checks, so
//! that it builds in seconds and still runs when one of them does not compile.
#![forbid(unsafe_code)]

mod ablate;
mod bisect;
mod ci;
mod cuda;
mod peers;
mod record;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// The command line of `cargo xtask`.
#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own tasks.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what each switch is worth.
    Ablate(ablate::Arguments),
    /// Measure two commits beside each other.
    BisectPerf(bisect::Arguments),
    /// Run the whole gate, or some of its steps.
    Ci(ci::Arguments),
    /// Install the CUDA toolkit, and build with it.
    Cuda(cuda::Arguments),
    /// Measure ours beside other software.
    Peers(peers::Arguments),
    /// Print the records of what was measured.
    Record(record::Arguments),
    /// Check the rules of the house that no compiler checks.
    Tidy,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether what was checked is well.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let workspace = Workspace::find()?;
    match &arguments.command {
        Command::Ablate(arguments) => ablate::run(&workspace, arguments),
        Command::BisectPerf(arguments) => bisect::run(&workspace, arguments),
        Command::Ci(arguments) => ci::run(&workspace, arguments),
        Command::Cuda(arguments) => cuda::run(&workspace, arguments),
        Command::Peers(arguments) => peers::run(&workspace, arguments),
        Command::Record(arguments) => record::run(&workspace, arguments),
        Command::Tidy => tidy::run(&workspace),
    }
}
