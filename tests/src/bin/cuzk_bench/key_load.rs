//! `key-load`: a key from the page cache to the memory of a device, its points decoded and
//! checked there.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use cuzk_tests::mixed::Mixed;
use cuzk_tests::record::{Case, Record, Series};

use crate::bed::{Bed, name};
use crate::numbers;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Logarithms of the domains of the circuits whose keys are loaded.
    #[arg(long, value_parser = numbers::log_size, value_delimiter = ',', default_value = "22,24")]
    log_sizes: Vec<u32>,
    /// Loads of each key, after one that warms up.
    #[arg(long, default_value_t = 5)]
    loads: usize,
    /// Number of the device.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Where test keys are made and found again; without it, where temporary files are.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let sizes: Vec<String> = options.log_sizes.iter().map(u32::to_string).collect();
    let mut record = Record::new(
        "key-load",
        "a key gets from the page cache to the device, its points decoded and checked, at \
         20 GB/s or more",
        format!(
            "cuzk-bench key-load --log-sizes {} --loads {} --out DIR",
            sizes.join(","),
            options.loads
        ),
    );
    let bed = Bed::open(options.device, |_| {})?;
    record.machine.gpu = Some(bed.gpu.device_name().to_owned());
    for &log_size in &options.log_sizes {
        let circuit = Mixed {
            log_size,
            full_per_mille: 13,
        };
        let mut laid = bed.lay(circuit, options.keys.as_deref())?;
        let bytes = laid.key_bytes();
        let mut rates = Vec::new();
        for load in 0..=options.loads {
            // Nobody has the key that was loaded before, so this one is loaded anew.
            laid.open_key()?;
            let (_, proved) = laid.prove()?;
            laid.check(&proved)?;
            let loading = proved.phases.iter().find(|phase| phase.name == "key_load");
            let ms = loading.context("the key was loaded")?.length_ms();
            if load > 0 {
                rates.push(bytes as f64 / 1e6 / ms);
            }
        }
        let mut case = Case::alone(name(circuit), Series::new(rates, "GB/s"));
        case.pcie_bytes = Some(bytes);
        println!("{}", serde_json::to_string_pretty(&case)?);
        record.cases.push(case);
        record.write(&options.out)?;
    }
    println!("{}", record.write(&options.out)?.display());
    Ok(())
}
