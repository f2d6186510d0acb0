//! The peer, a warm child process that proves whenever it is told to.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use bellperson::groth16::Proof;
use blstrs::Bls12;
use cuzk_tests::mixed::Mixed;
use serde::Deserialize;

/// What the peer prints of a proof.
#[derive(Deserialize)]
struct Batch {
    prover_ms: f64,
    proof: String,
}

/// The running peer; it ends when this is dropped.
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    latest: String,
}

impl Peer {
    /// Starts it and waits for its first proof.
    pub(crate) fn start(program: &Path, key: &Path, circuit: Mixed) -> Result<Self> {
        let mut child = Command::new(program)
            .arg(key)
            .arg(circuit.log_size.to_string())
            .arg(circuit.full_per_mille.to_string())
            .arg("1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let input = child.stdin.take().context("a pipe")?;
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut peer = Self {
            child,
            input,
            output,
            latest: String::new(),
        };
        let first_ms = peer.read()?;
        println!("the peer is warm; its first proof took {first_ms:.0} ms");
        Ok(peer)
    }

    /// One proof; milliseconds of the prover without synthesis.
    pub(crate) fn prove(&mut self) -> Result<f64> {
        writeln!(self.input)?;
        self.input.flush()?;
        self.read()
    }

    /// Whether its latest proof has the bytes of this one.
    pub(crate) fn agrees_with(&self, proof: &Proof<Bls12>) -> Result<bool> {
        let mut bytes = Vec::new();
        proof.write(&mut bytes)?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(hex == self.latest)
    }

    fn read(&mut self) -> Result<f64> {
        let mut line = String::new();
        // What else it prints is not ours to read.
        while !line.starts_with('{') {
            line.clear();
            let read = self.output.read_line(&mut line)?;
            ensure!(read != 0, "the peer ended: {}", self.child.wait()?);
        }
        let batch: Batch = serde_json::from_str(&line)?;
        self.latest = batch.proof;
        Ok(batch.prover_ms)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has nothing that is worth waiting for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
