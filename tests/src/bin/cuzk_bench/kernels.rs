//! `kernels`: the device's time for a whole proof beside sppark's own transforms and
//! multiplications on the same scalars, resident, each alone, summed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use cuzk_gpu::PhaseLane;
use cuzk_tests::mixed::Mixed;
use cuzk_tests::record::{Case, Record};
use serde::Deserialize;

use crate::bed::{Bed, name};
use crate::device_prove::phases_ms;
use crate::peer::{Peer, hex};
use crate::{interleave, numbers};

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The program of `xtask/peers/sppark`.
    #[arg(long, value_name = "FILE")]
    peer: PathBuf,
    /// Logarithms of the domains to measure.
    #[arg(long, value_parser = numbers::log_size, value_delimiter = ',', default_value = "22,24")]
    log_sizes: Vec<u32>,
    /// Shares of full-size values to measure, in a thousand.
    #[arg(long, value_parser = numbers::per_mille, value_delimiter = ',', default_value = "110,13")]
    full_per_mille: Vec<u32>,
    /// Pairs of each case, after one that warms up.
    #[arg(long, default_value_t = 7)]
    pairs: usize,
    /// Number of the device.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Where test keys are made and found again; without it, where temporary files are.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

/// What the peer prints of a pass over its kernels.
#[derive(Clone, Deserialize)]
struct Pass {
    phases_ms: BTreeMap<String, f64>,
    proof: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let list = |values: &[u32]| {
        let words: Vec<String> = values.iter().map(u32::to_string).collect();
        words.join(",")
    };
    let mut record = Record::new(
        "kernels",
        "the device's time for a whole proof is at most 1.15 times that of sppark's six \
         transforms and five multiplications, each alone, summed (a ratio of 0.87)",
        format!(
            "cuzk-bench kernels --peer FILE --log-sizes {} --full-per-mille {} --pairs {} \
             --out DIR",
            list(&options.log_sizes),
            list(&options.full_per_mille),
            options.pairs
        ),
    );
    let bed = Bed::open(options.device, |_| {})?;
    record.machine.gpu = Some(bed.gpu.device_name().to_owned());
    for &log_size in &options.log_sizes {
        for &full_per_mille in &options.full_per_mille {
            let circuit = Mixed {
                log_size,
                full_per_mille,
            };
            let case = measure(options, &bed, circuit)?;
            println!("{}", serde_json::to_string_pretty(&case)?);
            record.cases.push(case);
            record.write(&options.out)?;
        }
    }
    println!("{}", record.write(&options.out)?.display());
    Ok(())
}

fn measure(options: &Options, bed: &Bed, circuit: Mixed) -> Result<Case> {
    let mut laid = bed.lay(circuit, options.keys.as_deref())?;
    let (_, first) = laid.prove()?;
    laid.check(&first)?;
    let expected = hex(&first.proof)?;
    let arguments = [
        circuit.log_size.to_string(),
        circuit.full_per_mille.to_string(),
    ];
    let mut peer = Peer::start(&options.peer, &laid.params, &arguments)?;
    let mut pass = || -> Result<Pass> {
        let pass: Pass = peer.ask()?;
        ensure!(pass.proof == expected, "the peer made another proof");
        Ok(pass)
    };
    // Its first pass, which warms up.
    pass()?;
    let mut passes = Vec::new();
    let mut phases = Vec::new();
    let pairs = interleave(
        options.pairs,
        || {
            let (_, proved) = laid.prove()?;
            // From the first transform to the last sum.
            let all = proved.phases.iter();
            let kernels = all.filter(|phase| phase.lane == PhaseLane::Compute);
            let (starts, ends): (Vec<_>, Vec<_>) =
                kernels.map(|phase| (phase.start, phase.end)).unzip();
            let (first, last) = (starts.iter().min(), ends.iter().max());
            let (first, last) = first.zip(last).context("something was computed")?;
            let sum = last.duration_since(*first).as_secs_f64() * 1e3;
            phases.push((sum, phases_ms(&proved)));
            Ok(sum)
        },
        || {
            let made = pass()?;
            let sum = made.phases_ms.values().sum();
            passes.push((sum, made.phases_ms));
            Ok(sum)
        },
    )?;
    let mut case = Case::paired(name(circuit), "sppark 0.1.16, kernel by kernel", &pairs);
    case.phases_ms = middle(phases);
    let peers = middle(passes).into_iter().map(|(name, ms)| {
        let ms = (ms * 1e3).round() / 1e3;
        (name, serde_json::Value::from(ms))
    });
    case.more
        .insert("peer_phases_ms", serde_json::Value::Object(peers.collect()));
    Ok(case)
}

/// The phases of the run that took the middle time.
fn middle(mut runs: Vec<(f64, BTreeMap<String, f64>)>) -> BTreeMap<String, f64> {
    runs.sort_by(|(left, _), (right, _)| left.total_cmp(right));
    let index = runs.len() / 2;
    runs.swap_remove(index).1
}
