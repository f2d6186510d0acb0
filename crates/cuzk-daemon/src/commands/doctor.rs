//! `cuzk doctor`: what this machine can prove, and what is missing for the rest.

use std::fmt;

use cuzk_core::keygen::sidecar_path;
use cuzk_core::{CircuitSpec, memory_limit};
use cuzk_filecoin::FilecoinCircuit;
use serde::Serialize;

use crate::args::Args;
use crate::configuration;
use crate::cpu;
use crate::exit::Failure;
use crate::machine;
use crate::output;

#[derive(Serialize)]
struct KeyState {
    circuit: String,
    /// Of the proving key, which `prove` needs.
    state: &'static str,
    bytes: Option<u64>,
    path: String,
    /// Of the verifying key in a file of its own, which `verify` needs.
    vk_state: &'static str,
    vk_path: String,
}

#[derive(Serialize)]
struct Checkup {
    version: &'static str,
    cores: usize,
    cpu_features_used: Vec<&'static str>,
    cpu_problem: Option<String>,
    memory_limit_bytes: Option<u64>,
    memory_problem: Option<String>,
    backend: &'static str,
    keys: Vec<KeyState>,
}

impl fmt::Display for Checkup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cuzk {}", self.version)?;
        let features = match self.cpu_features_used.join(", ") {
            none if none.is_empty() => "no optional instructions".to_owned(),
            some => some,
        };
        writeln!(f, "processor: {} cores, built for {features}", self.cores)?;
        let verdict = self.cpu_problem.as_deref();
        writeln!(f, "  {}", verdict.unwrap_or("it can run this binary"))?;
        match (self.memory_limit_bytes, &self.memory_problem) {
            (Some(bytes), _) => {
                writeln!(f, "memory: {} may be counted in use", output::bytes(bytes))?
            }
            (None, problem) => writeln!(f, "memory: {}", problem.as_deref().unwrap_or("unknown"))?,
        }
        writeln!(f, "backend: {} (this build has no other)", self.backend)?;
        writeln!(f, "keys:")?;
        for key in &self.keys {
            let bytes = key.bytes.map_or(String::new(), output::bytes);
            writeln!(
                f,
                "  {:<13} {:<10} {bytes:>10}  vk {:<8} {}",
                key.circuit, key.state, key.vk_state, key.path
            )?;
        }
        Ok(())
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let config = configuration::load(args, None)?.config;
    let keys = FilecoinCircuit::all()
        .map(|circuit| {
            let path = config.params_directory.join(circuit.params_file());
            let bytes = std::fs::metadata(&path).ok().map(|meta| meta.len());
            let state = match bytes {
                None => "missing",
                Some(_) if sidecar_path(&path).exists() => "test key",
                Some(_) => "present",
            };
            // Only looked at: decoding its points could be what this processor cannot.
            let vk_path = config.params_directory.join(circuit.vk_file());
            let vk_state = if vk_path.is_file() {
                "present"
            } else {
                "missing"
            };
            KeyState {
                circuit: circuit.id().to_string(),
                state,
                bytes,
                path: path.display().to_string(),
                vk_state,
                vk_path: vk_path.display().to_string(),
            }
        })
        .collect();
    let limit = memory_limit(&config);
    let checkup = Checkup {
        version: env!("CARGO_PKG_VERSION"),
        cores: machine::cores().get(),
        cpu_features_used: cpu::needed().into_iter().map(|(name, _)| name).collect(),
        cpu_problem: cpu::check().err().map(|failure| failure.to_string()),
        memory_problem: limit.as_ref().err().map(ToString::to_string),
        memory_limit_bytes: limit.ok(),
        backend: "cpu",
        keys,
    };
    output::result(args.json, &checkup)
}
