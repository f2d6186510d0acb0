//! The one program that measures. Each command ends with a record in the folder
//! that `--out` names.

mod bed;
mod compare;
mod cpu_prove;
#[cfg(feature = "cuda")]
mod device_prove;
mod draw;
mod full;
#[cfg(feature = "cuda")]
mod kernels;
#[cfg(feature = "cuda")]
mod key_load;
mod live;
mod numbers;
mod one_proof;
mod overrides;
mod params;
#[cfg(feature = "cuda")]
mod peer;
#[cfg(feature = "cuda")]
mod placements;
mod replay;
mod synth;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// Measures, and writes records.
#[derive(Parser)]
#[command(name = "cuzk-bench")]
struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One workload under several settings of the switches, by turns.
    Compare(compare::Options),
    /// A 2 KiB proof on the CPU, synthesis included, beside bellperson's prover.
    CpuProve(cpu_prove::Options),
    /// Spans that a measurement wrote, as a picture.
    Draw(draw::Options),
    /// One job of the real size, its key included, checked by others.
    Full(full::Options),
    /// A whole engine with many jobs: what limits it, and what its device waits for.
    Live(live::Options),
    /// One proof of any kind and size, judged by the stock verifier.
    OneProof(one_proof::Options),
    /// Key generation beside bellperson's.
    Params(params::Options),
    /// What a device does with its time that never waits for synthesis.
    Replay(replay::Options),
    /// Several devices at the same time, beside each alone.
    Scaling(replay::scaling::Options),
    /// Synthesis of parts, beside bellperson's, or the check of all rows of one part.
    Synth(synth::Options),
    /// The prover's stage on a GPU.
    #[cfg(feature = "cuda")]
    DeviceProve(device_prove::Options),
    /// The device's time for a proof beside sppark's kernels, each alone.
    #[cfg(feature = "cuda")]
    Kernels(kernels::Options),
    /// A key from the page cache to a GPU's memory.
    #[cfg(feature = "cuda")]
    KeyLoad(key_load::Options),
    /// How columns reach page-locked memory and the device, on a GPU.
    #[cfg(feature = "cuda")]
    Placements(placements::Options),
}

/// What every measurement takes.
#[derive(Args, Clone, Debug)]
struct Common {
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Pairs to measure, after one that warms up.
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Skips the pair that warms up.
    #[arg(long)]
    cold: bool,
}

fn main() -> Result<()> {
    match Bench::parse().command {
        Command::Compare(options) => compare::run(&options),
        Command::CpuProve(options) => cpu_prove::run(&options),
        Command::Draw(options) => draw::run(&options),
        Command::Full(options) => full::run(&options),
        Command::Live(options) => live::run(&options),
        Command::OneProof(options) => one_proof::run(&options),
        Command::Params(options) => params::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Scaling(options) => replay::scaling::run(&options),
        Command::Synth(options) => synth::run(&options),
        #[cfg(feature = "cuda")]
        Command::DeviceProve(options) => device_prove::run(&options),
        #[cfg(feature = "cuda")]
        Command::Kernels(options) => kernels::run(&options),
        #[cfg(feature = "cuda")]
        Command::KeyLoad(options) => key_load::run(&options),
        #[cfg(feature = "cuda")]
        Command::Placements(options) => placements::run(&options),
    }
}

/// Runs pairs, A B then B A, so that drift of the machine falls on both.
fn interleave(
    pairs: usize,
    mut ours: impl FnMut() -> Result<f64>,
    mut theirs: impl FnMut() -> Result<f64>,
) -> Result<Vec<(f64, f64)>> {
    (0..pairs)
        .map(|pair| {
            if pair.is_multiple_of(2) {
                let ours = ours()?;
                Ok((ours, theirs()?))
            } else {
                let theirs = theirs()?;
                Ok((ours()?, theirs))
            }
        })
        .collect()
}
