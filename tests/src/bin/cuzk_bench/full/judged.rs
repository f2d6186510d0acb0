//! The stock verifier's word on the whole proof, in a process of its own: it reads a
//! verifying key once a process, from the folder that its environment names.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cuzk_tests::request::RequestFile;
use cuzk_tests::stock;

use super::Options;

const REQUEST: &str = "request.json";
const PROOF: &str = "proof";

/// Has it judge a proof.
pub(super) fn begin(options: &Options, json: &[u8], proof: &[u8]) -> Result<()> {
    let files = tempfile::tempdir()?;
    std::fs::write(files.path().join(REQUEST), json)?;
    std::fs::write(files.path().join(PROOF), proof)?;
    let output = Command::new(std::env::current_exe()?)
        .args(["full", "--kind", options.kind.short_name(), "--judge"])
        .arg(files.path())
        .arg("--keys")
        .arg(&options.keys)
        .arg("--out")
        .arg(&options.out)
        .env("FIL_PROOFS_PARAMETER_CACHE", &options.keys)
        .output()
        .context("the program cannot be started again")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the stock verifier: {errors}");
    Ok(())
}

/// Judges the request and the proof of a folder.
pub(super) fn judge(files: &Path) -> Result<()> {
    let file = RequestFile::read(&files.join(REQUEST))?;
    let mut proof = std::fs::read(files.join(PROOF))?;
    ensure!(stock::accepts(&file, &proof)?, "rejected");
    // The sign bit of the last C: another point of the curve.
    let sign = proof.len().checked_sub(48).context("a proof")?;
    proof[sign] ^= 0x20;
    ensure!(!stock::accepts(&file, &proof)?, "accepts another proof too");
    Ok(())
}
