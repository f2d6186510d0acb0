//! bellperson with supraseal-c2 as a warm child of `cuzk-bench peer-prove`.
//!
//! Arguments: the key file, the logarithm of the circuit's size, its full-size values in
//! a thousand, and how many circuits a proof batches. It loads the key, makes one proof,
//! prints a line, and then makes one batch for each line it reads. Every line it prints
//! is JSON: the prover's time without synthesis, as bellperson's own log has it, and the
//! first proof of the batch. It ends with its input.

#![forbid(unsafe_code)]

#[path = "../../../../tests/src/mixed/circuit.rs"]
#[allow(dead_code, unreachable_pub)]
mod circuit;

use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use bellperson::groth16::{Proof, SuprasealParameters, create_proof_batch};
use blstrs::{Bls12, Scalar};
use circuit::Mixed;
use serde::Serialize;

/// What `cuzk-bench` proves with too: the same bytes are expected.
const R: u64 = 7;
const S: u64 = 9;

/// One batch.
#[derive(Serialize)]
struct Batch {
    prover_ms: f64,
    proof: String,
}

fn main() -> Result<()> {
    log::set_logger(&PROVER_TIME).map_err(|error| anyhow::anyhow!("{error}"))?;
    log::set_max_level(log::LevelFilter::Info);
    let mut arguments = std::env::args().skip(1);
    let mut next = |what| arguments.next().with_context(|| format!("no {what}"));
    let key = PathBuf::from(next("key file")?);
    let circuit = Mixed {
        log_size: next("size")?.parse()?,
        full_per_mille: next("share")?.parse()?,
    };
    let batch: usize = next("batch")?.parse()?;

    let key = SuprasealParameters::<Bls12>::new(key)?;
    tell(&prove(&key, circuit, batch)?)?;
    for line in stdin().lock().lines() {
        line?;
        tell(&prove(&key, circuit, batch)?)?;
    }
    Ok(())
}

fn prove(key: &SuprasealParameters<Bls12>, circuit: Mixed, batch: usize) -> Result<Batch> {
    let circuits = vec![circuit; batch];
    let proofs: Vec<Proof<Bls12>> = create_proof_batch(
        circuits,
        key,
        vec![Scalar::from(R); batch],
        vec![Scalar::from(S); batch],
    )?;
    let mut bytes = Vec::new();
    proofs[0].write(&mut bytes)?;
    let Some(prover_ms) = PROVER_TIME.take() else {
        bail!("bellperson logged no prover time");
    };
    Ok(Batch {
        prover_ms,
        proof: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    })
}

fn tell(batch: &Batch) -> Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, batch)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Catches the one log line that has the prover's time.
struct ProverTime(Mutex<Option<f64>>);

static PROVER_TIME: ProverTime = ProverTime(Mutex::new(None));

impl ProverTime {
    fn take(&self) -> Option<f64> {
        self.0.lock().ok()?.take()
    }
}

impl log::Log for ProverTime {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        let Some(time) = text.strip_prefix("prover time: ") else {
            return;
        };
        if let Ok(mut held) = self.0.lock() {
            *held = milliseconds(time);
        }
    }

    fn flush(&self) {}
}

/// A duration as it prints itself: `1.5s`, `20.1ms`, `7µs`.
fn milliseconds(text: &str) -> Option<f64> {
    let units = [("ms", 1.0), ("µs", 1e-3), ("ns", 1e-6), ("s", 1e3)];
    units.iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?;
        Some(number.parse::<f64>().ok()? * factor)
    })
}
