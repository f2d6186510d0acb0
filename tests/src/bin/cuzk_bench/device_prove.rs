//! `device-prove`: the prover's stage on a device, key resident, columns in
//! page-locked memory; the proof is checked. With `--peer` another prover makes the
//! same proofs by turns with ours, and both must give the same bytes.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use clap::Args;
use cuzk_gpu::Proved;
use cuzk_tests::mixed::Mixed;
use cuzk_tests::record::{Case, Record, Series};
use serde::Deserialize;

use crate::bed::{Bed, Laid, name};
use crate::peer::{Peer, hex};
use crate::{interleave, numbers};

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: std::path::PathBuf,
    /// Logarithms of the domains to measure.
    #[arg(long, value_parser = numbers::log_size, value_delimiter = ',', default_value = "20,22,24")]
    log_sizes: Vec<u32>,
    /// Shares of full-size values to measure, in a thousand.
    #[arg(long, value_parser = numbers::per_mille, value_delimiter = ',', default_value = "110,13")]
    full_per_mille: Vec<u32>,
    /// Proofs of each case, after one that warms up.
    #[arg(long, default_value_t = 7)]
    proofs: usize,
    /// Number of the device.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Most entries that a multiplication takes at a time, as a logarithm.
    #[arg(long)]
    log_chunk: Option<u32>,
    /// Bits of a multiplication's windows.
    #[arg(long)]
    window_bits: Option<u32>,
    /// The program of `xtask/peers/supraseal`, to be measured beside ours.
    #[arg(long, value_name = "FILE")]
    peer: Option<std::path::PathBuf>,
    /// Circuits that the peer proves at once in a case more; its time is divided by them.
    #[arg(long, default_value_t = 4)]
    peer_batch: usize,
    /// Logarithm of the domain at which it does.
    #[arg(long, value_parser = numbers::log_size, default_value_t = 22)]
    peer_batch_log_size: u32,
    /// Where test keys are made and found again; without it, where temporary files are.
    #[arg(long, value_name = "DIR")]
    keys: Option<std::path::PathBuf>,
}

/// What the peer prints of a batch.
#[derive(Deserialize)]
struct Batch {
    prover_ms: f64,
    proof: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let bed = Bed::open(options.device, |settings| {
        settings.window_bits = options.window_bits;
        if let Some(log) = options.log_chunk {
            settings.chunk_len_max = 1 << log;
        }
    })?;
    let mut record = new_record(options);
    record.machine.gpu = Some(bed.gpu.device_name().to_owned());
    for &log_size in &options.log_sizes {
        for &full_per_mille in &options.full_per_mille {
            let circuit = Mixed {
                log_size,
                full_per_mille,
            };
            let mut laid = bed.lay(circuit, options.keys.as_deref())?;
            let mut batches = vec![1];
            if options.peer.is_some() && log_size == options.peer_batch_log_size {
                batches.push(options.peer_batch);
            }
            for batch in batches {
                let case = measure(options, &bed, &mut laid, circuit, batch)?;
                println!("{}", serde_json::to_string_pretty(&case)?);
                record.cases.push(case);
                record.write(&options.out)?;
            }
        }
    }
    println!("{}", record.write(&options.out)?.display());
    Ok(())
}

fn new_record(options: &Options) -> Record {
    let list = |values: &[u32]| {
        let words: Vec<String> = values.iter().map(u32::to_string).collect();
        words.join(",")
    };
    let (name, claim) = match options.peer {
        None => (
            "device-prove",
            "a warm proof on the device, from columns in page-locked memory to the proof, takes \
             what its kernels and its upload take",
        ),
        Some(_) => (
            "peer-prove",
            "the prover's stage of a warm proof is at least 10 times as fast as the peer's at \
             2^24 with 11 % full scalars, 5 times with 1.3 %, 6 times at 2^20 with 11 %",
        ),
    };
    let mut command = format!(
        "cuzk-bench device-prove --log-sizes {} --full-per-mille {} --proofs {}",
        list(&options.log_sizes),
        list(&options.full_per_mille),
        options.proofs,
    );
    if options.peer.is_some() {
        command += &format!(
            " --peer FILE --peer-batch {} --peer-batch-log-size {}",
            options.peer_batch, options.peer_batch_log_size
        );
    }
    Record::new(name, claim, command + " --out DIR")
}

fn measure(
    options: &Options,
    bed: &Bed,
    laid: &mut Laid<'_>,
    circuit: Mixed,
    batch: usize,
) -> Result<Case> {
    let mut name = name(circuit);
    let (first_ms, first) = laid.prove()?;
    laid.check(&first)?;
    let mut proofs: Vec<(f64, Proved)> = Vec::new();
    let mut first_of_peer_ms = None;
    let mut case = match &options.peer {
        None => {
            for _ in 0..options.proofs {
                proofs.push(laid.prove()?);
            }
            let times = proofs.iter().map(|(took, _)| *took).collect();
            Case::alone(name, Series::new(times, "ms"))
        }
        Some(program) => {
            if batch > 1 {
                name += &format!(", the peer {batch} at once");
            }
            let arguments = [
                circuit.log_size.to_string(),
                circuit.full_per_mille.to_string(),
                batch.to_string(),
            ];
            let mut peer = Peer::start(program, &laid.params, &arguments)?;
            first_of_peer_ms = Some(peer.read::<Batch>()?.prover_ms);
            let expected = hex(&first.proof)?;
            let pairs = interleave(
                options.proofs,
                || {
                    proofs.push(laid.prove()?);
                    Ok(proofs.last().expect("just pushed").0)
                },
                || {
                    let made: Batch = peer.ask()?;
                    ensure!(made.proof == expected, "the peer made another proof");
                    Ok(made.prover_ms / batch as f64)
                },
            )?;
            Case::paired(name, "supraseal-c2 0.1.2", &pairs)
        }
    };
    proofs.sort_by(|left, right| left.0.total_cmp(&right.0));
    let middle = &proofs[proofs.len() / 2].1;
    case.phases_ms = phases_ms(middle);
    case.more.insert("first_ms", first_ms.round().into());
    for (phase, ms) in phases_ms(&first) {
        if phase == "key_load" {
            case.more.insert("first_key_load_ms", ms.round().into());
        }
    }
    if let Some(ms) = first_of_peer_ms {
        case.more.insert("first_of_peer_ms", ms.round().into());
    }
    case.pcie_bytes = Some(laid.column_bytes);
    case.peak = BTreeMap::from([
        ("device_bytes", bed.gpu.device_bytes()),
        ("pinned_bytes", laid.column_bytes),
    ]);
    Ok(case)
}

/// Milliseconds of a proof's phases, to the microsecond.
pub(crate) fn phases_ms(proved: &Proved) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::<String, f64>::new();
    for phase in &proved.phases {
        *sums.entry(phase.name.to_owned()).or_default() += phase.length_ms();
    }
    sums.values_mut()
        .for_each(|ms| *ms = (*ms * 1e3).round() / 1e3);
    sums
}
