//! `cuzk params`: generates, inspects and checks keys.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cuzk_core::CircuitSpec;
use cuzk_core::config::PointCheck;
use cuzk_core::keygen::{GeneratedKey, KeyOutput, ToxicWaste, generate, sidecar_path};
use cuzk_core::keys;
use cuzk_filecoin::FilecoinCircuit;
use serde::Serialize;

use crate::args::{Args, GenerateArgs, ParamsCommand};
use crate::configuration;
use crate::exit::Failure;
use crate::output;
use crate::progress::Progress;

pub(super) fn run(args: &Args, command: &ParamsCommand) -> Result<(), Failure> {
    match command {
        ParamsCommand::Generate(generate) => {
            let made = make(args, generate)?;
            output::result(args.json, &made)
        }
        ParamsCommand::Inspect { file } => {
            let report = inspect(file, PointCheck::Counts)?;
            output::result(args.json, &report)
        }
        ParamsCommand::Check { file, subgroup } => {
            let check = if *subgroup {
                PointCheck::Subgroup
            } else {
                PointCheck::Curve
            };
            let progress = Progress::start("checking every point");
            let report = inspect(file, check)?;
            drop(progress);
            output::result(args.json, &report)
        }
    }
}

#[derive(Serialize)]
struct Made {
    circuit: String,
    params: String,
    vk: String,
    bytes: u64,
    inputs: usize,
    aux: usize,
    constraints: usize,
    seconds: f64,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "insecure test key of {}", self.circuit)?;
        writeln!(
            f,
            "{} inputs, {} private variables, {} constraints",
            self.inputs, self.aux, self.constraints
        )?;
        writeln!(f, "{} ({})", self.params, output::bytes(self.bytes))?;
        writeln!(f, "{}", self.vk)?;
        writeln!(f, "{:.1} s", self.seconds)
    }
}

fn make(all: &Args, args: &GenerateArgs) -> Result<Made, Failure> {
    let begun = Instant::now();
    let circuit = FilecoinCircuit::new(args.circuit.kind, args.circuit.sector_size);
    // A directory that is configured for real keys is one of them too.
    let config = configuration::load(all, None)?.config;
    let mut refused = configuration::real_key_directories();
    if !config.allow_test_params {
        refused.push(config.params_directory);
    }
    let GeneratedKey { params, vk, sizes } =
        generate_key(&circuit, &args.out, args.seed, &refused)?;
    let bytes = std::fs::metadata(&params).map_or(0, |meta| meta.len());
    Ok(Made {
        circuit: circuit.id().to_string(),
        params: params.display().to_string(),
        vk: vk.display().to_string(),
        bytes,
        inputs: sizes.inputs,
        aux: sizes.aux,
        constraints: sizes.constraints,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// Generates a key with a progress line.
pub(super) fn generate_key(
    circuit: &FilecoinCircuit,
    directory: &Path,
    seed: u64,
    refused: &[PathBuf],
) -> Result<GeneratedKey, Failure> {
    let progress = Progress::start("generating a test key");
    let output = KeyOutput {
        directory,
        refused,
        seed,
    };
    let show = |stage: &str, done, total| {
        progress.show(
            &format!("test key of {}: {stage}", circuit.id()),
            done,
            total,
        );
    };
    Ok(generate(
        circuit,
        &ToxicWaste::from_seed(seed),
        &output,
        &show,
    )?)
}

#[derive(Serialize)]
struct SectionReport {
    section: String,
    points: usize,
    offset: u64,
}

#[derive(Serialize)]
struct KeyReport {
    path: String,
    /// `proving key` or `verifying key`.
    kind: &'static str,
    bytes: u64,
    is_test_key: bool,
    checked: &'static str,
    sections: Vec<SectionReport>,
}

impl fmt::Display for KeyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let test = if self.is_test_key {
            ", an insecure test key"
        } else {
            ""
        };
        let (path, kind, bytes) = (&self.path, self.kind, output::bytes(self.bytes));
        writeln!(f, "{path}: a {kind}, {bytes}{test}")?;
        writeln!(f, "{:<8} {:>12} {:>16}", "section", "points", "offset")?;
        for SectionReport {
            section,
            points,
            offset,
        } in &self.sections
        {
            writeln!(f, "{section:<8} {points:>12} {offset:>16}")?;
        }
        writeln!(f, "checked: {}", self.checked)
    }
}

fn inspect(path: &Path, check: PointCheck) -> Result<KeyReport, Failure> {
    let report = keys::inspect(path, check)?;
    let sections = report
        .sections
        .into_iter()
        .map(|section| SectionReport {
            section: section.name,
            points: section.points,
            offset: section.offset,
        })
        .collect();
    // The sidecar has the proving key's name.
    let (kind, params) = if report.is_verifying_key {
        ("verifying key", path.with_extension("params"))
    } else {
        ("proving key", path.to_owned())
    };
    Ok(KeyReport {
        path: path.display().to_string(),
        kind,
        bytes: report.bytes,
        is_test_key: sidecar_path(&params).exists(),
        checked: match check {
            _ if report.is_verifying_key => "every point is in the prime-order subgroup",
            PointCheck::Counts => "section counts against the file's size, the verifying key",
            PointCheck::Curve => "every point is well encoded and on the curve",
            PointCheck::Subgroup => "every point is in the prime-order subgroup",
        },
        sections,
    })
}
