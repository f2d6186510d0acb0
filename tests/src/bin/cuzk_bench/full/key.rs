//! The key of the job.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

#[cfg(feature = "cuda")]
use super::On;
use super::{Half, Options, Phases};
use crate::bed;

/// The key, made in a process of its own where it is not there: what that takes is no peak
/// of the proof.
pub(super) fn key(options: &Options, phases: &mut Phases) -> Result<()> {
    if options.params().exists() {
        println!("the key is there: {} bytes", key_bytes(&options.params())?);
        return Ok(());
    }
    if options.only == Some(Half::Key) {
        return phases.time("key", || make(options));
    }
    phases.time("key", || {
        let backend = options.backend.to_possible_value();
        let backend = backend.context("a backend has a name")?;
        let status = Command::new(std::env::current_exe()?)
            .args(["full", "--only", "key", "--kind", options.kind.short_name()])
            .args(["--sector-size", options.sector_size.short_name()])
            .args(["--backend", backend.get_name(), "--keys"])
            .arg(&options.keys)
            .arg("--out")
            .arg(&options.out)
            .status()
            .context("the program cannot be started again")?;
        ensure!(status.success(), "no key: {status}");
        Ok(())
    })
}

fn make(options: &Options) -> Result<()> {
    #[cfg(feature = "cuda")]
    if options.backend == On::Gpu {
        let pool = bed::pool(0)?;
        let device = bed::start(0, &pool, None, |_| {})?;
        return bed::key_in(&options.keys, &options.circuit(), &device).map(|_| ());
    }
    let on_cpu = &cuzk_gpu::fixed_base::OnCpu;
    bed::key_in(&options.keys, &options.circuit(), on_cpu).map(|_| ())
}

pub(super) fn key_bytes(params: &Path) -> Result<u64> {
    let file = std::fs::metadata(params).with_context(|| params.display().to_string())?;
    Ok(file.len())
}
