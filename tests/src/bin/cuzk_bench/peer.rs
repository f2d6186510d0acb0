//! A peer: a warm child process that proves, or runs its kernels, when it is told to.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use bellperson::groth16::Proof;
use blstrs::Bls12;
use serde::de::DeserializeOwned;

/// The running peer; it ends when this is dropped.
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts it.
    pub(crate) fn start(program: &Path, key: &Path, arguments: &[String]) -> Result<Self> {
        let mut child = Command::new(program)
            .arg(key)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let input = child.stdin.take().context("a pipe")?;
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Self {
            child,
            input,
            output,
        })
    }

    /// Tells it to run, and reads what it says.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self) -> Result<T> {
        writeln!(self.input)?;
        self.input.flush()?;
        self.read()
    }

    /// The next line of JSON that it prints.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        // What else it prints is not ours to read.
        while !line.starts_with('{') {
            line.clear();
            let read = self.output.read_line(&mut line)?;
            ensure!(read != 0, "the peer ended: {}", self.child.wait()?);
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has nothing that is worth waiting for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A proof's bytes as peers print them.
pub(crate) fn hex(proof: &Proof<Bls12>) -> Result<String> {
    let mut bytes = Vec::new();
    proof.write(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
