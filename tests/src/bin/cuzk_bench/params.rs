//! `params`: our key generator beside bellperson's, same toxic waste, same bytes.

use std::time::Instant;

use anyhow::Result;
use bellperson::groth16::generate_parameters;
use blstrs::Bls12;
use clap::Args;
use cuzk_core::CircuitSpec;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate};
use cuzk_tests::chain::Chain;
use cuzk_tests::record::{Case, Record};

use crate::{Common, interleave, numbers};

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Logarithms of the domains to measure.
    #[arg(long, value_parser = numbers::log_size, value_delimiter = ',', default_value = "20")]
    log_sizes: Vec<u32>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Common { out, pairs, cold } = &options.common;
    let logs: Vec<String> = options.log_sizes.iter().map(u32::to_string).collect();
    let mut record = Record::new(
        "params",
        "a test key of a circuit of 2^20 constraints, written to its file, is made in at most \
         1/8 of the time that bellperson's generator takes in memory",
        format!(
            "cuzk-bench params --log-sizes {} --pairs {pairs}{} --out DIR",
            logs.join(","),
            if *cold { " --cold" } else { "" },
        ),
    );
    for &log_size in &options.log_sizes {
        let case = measure(log_size, *pairs, !cold)?;
        println!("{}", serde_json::to_string_pretty(&case)?);
        record.cases.push(case);
    }
    println!("{}", record.write(out)?.display());
    Ok(())
}

fn measure(log_size: u32, pairs: usize, warm: bool) -> Result<Case> {
    // The chain's constraints, with the input rows, fill the domain.
    let chain = Chain {
        len: (1 << log_size) - 2,
    };
    let name = format!("2^{log_size} constraints, all variables dense in A and B");
    let waste = ToxicWaste::from_seed(1);
    let mut ours_bytes = Vec::new();
    let mut theirs_bytes = Vec::new();
    let mut ours = || {
        let directory = tempfile::tempdir()?;
        let output = KeyOutput {
            directory: directory.path(),
            refused: &[],
            seed: 1,
        };
        let from = Instant::now();
        let made = generate(&chain, &waste, &output, &|_, _, _| {})?;
        let ms = from.elapsed().as_secs_f64() * 1000.0;
        ours_bytes = std::fs::read(made.params)?;
        Ok(ms)
    };
    let mut theirs = || {
        let from = Instant::now();
        let params = generate_parameters::<Bls12, _>(
            chain,
            waste.g1.into(),
            waste.g2.into(),
            waste.alpha,
            waste.beta,
            waste.gamma,
            waste.delta,
            waste.tau,
        )?;
        let ms = from.elapsed().as_secs_f64() * 1000.0;
        theirs_bytes.clear();
        params.write(&mut theirs_bytes)?;
        Ok(ms)
    };
    if warm {
        interleave(1, &mut ours, &mut theirs)?;
    }
    let measured = interleave(pairs, &mut ours, &mut theirs)?;
    let id = chain.id();
    if ours_bytes != theirs_bytes {
        eprintln!("{id}: the keys differ");
        return Ok(Case::failed(name));
    }
    Ok(Case::paired(
        name,
        "bellperson 0.27.0 generate_parameters",
        &measured,
    ))
}
