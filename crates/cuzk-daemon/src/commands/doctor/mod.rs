//! `cuzk doctor`: what this machine can prove, and what is missing for the rest.

mod devices;
mod keys;

use std::fmt;

use cuzk_core::{ByteCount, Forecast, devices, excessive_limit, memory_limit};
use cuzk_filecoin::FilecoinCircuit;
use serde::Serialize;

use self::devices::Devices;
use self::keys::{CircuitKey, Look, Memory};
use crate::args::{Args, DoctorArgs, KeyArgs};
use crate::configuration;
use crate::cpu;
use crate::exit::{Exit, Failure};
use crate::machine;
use crate::output;

#[derive(Serialize)]
struct Checkup {
    version: &'static str,
    cores: usize,
    cpu_features_used: Vec<&'static str>,
    cpu_problem: Option<String>,
    memory_limit_bytes: Option<u64>,
    memory_problem: Option<String>,
    memory_warning: Option<String>,
    #[serde(flatten)]
    devices: Devices,
    params_directory: String,
    digests_checked: bool,
    keys: Vec<CircuitKey>,
}

pub(super) fn run(args: &Args, doctor: &DoctorArgs) -> Result<(), Failure> {
    let keys = KeyArgs {
        params: doctor.params.clone(),
        allow_test_params: false,
    };
    let config = configuration::load(args, Some(&keys))?.config;
    let cpu_problem = cpu::check().err().map(|failure| failure.to_string());
    // Decoding points could be what this processor cannot.
    let forecast = match &cpu_problem {
        None => Some(Forecast::new(&config)?),
        Some(_) => None,
    };
    let look = Look {
        directory: &config.params_directory,
        forecast: forecast.as_ref(),
        digests: doctor.digests,
    };
    let limit = memory_limit(&config);
    let checkup = Checkup {
        version: env!("CARGO_PKG_VERSION"),
        cores: machine::cores().get(),
        cpu_features_used: cpu::needed().into_iter().map(|(name, _)| name).collect(),
        cpu_problem,
        memory_problem: limit.as_ref().err().map(ToString::to_string),
        memory_limit_bytes: limit.ok(),
        memory_warning: excessive_limit(&config).map(|excess| excess.to_string()),
        devices: Devices::new(&config, devices()),
        params_directory: config.params_directory.display().to_string(),
        digests_checked: doctor.digests,
        keys: FilecoinCircuit::all()
            .map(|circuit| look.at(&circuit))
            .collect(),
    };
    output::result(args.json, &checkup)?;
    match checkup.devices.refusal() {
        Some(why) => Err(Failure::new(Exit::Failure, why)),
        None => Ok(()),
    }
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
            (Some(bytes), _) => writeln!(f, "memory: {} may be counted in use", ByteCount(bytes))?,
            (None, problem) => writeln!(f, "memory: {}", problem.as_deref().unwrap_or("unknown"))?,
        }
        if let Some(warning) = &self.memory_warning {
            writeln!(f, "  warning: {warning}")?;
        }
        write!(f, "{}", self.devices)?;
        writeln!(f, "keys: {}", self.params_directory)?;
        if !self.digests_checked {
            writeln!(
                f,
                "  digests of proving keys are not checked: --digests reads every byte of them"
            )?;
        }
        self.table(f)?;
        self.arithmetic(f)?;
        self.problems(f)?;
        writeln!(f, "\nnames of the files looked for there:")?;
        for key in &self.keys {
            for path in [&key.key.path, &key.vk.path] {
                let name = path.rsplit('/').next().unwrap_or(path);
                writeln!(f, "  {:<13} {name}", key.circuit)?;
            }
        }
        Ok(())
    }
}

impl Checkup {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<13} {:<10} {:>10}  {:<11} {:<10} {:<10} a part takes",
            "circuit", "key", "bytes", "digest", "vk", "digest"
        )?;
        for CircuitKey {
            circuit,
            key,
            vk,
            memory,
        } in &self.keys
        {
            let bytes = key.bytes.map_or("-".to_owned(), output::bytes);
            let takes = memory.as_ref().map_or("-".to_owned(), |memory| {
                let total = output::bytes(memory.total_bytes);
                format!("{total}, {}", self.verdict(memory))
            });
            writeln!(
                f,
                "{circuit:<13} {:<10} {bytes:>10}  {:<11} {:<10} {:<10} {takes}",
                key.state, key.digest, vk.state, vk.digest
            )?;
        }
        Ok(())
    }

    fn verdict(&self, memory: &Memory) -> &'static str {
        match self.memory_limit_bytes {
            Some(limit) if memory.total_bytes <= limit => "fits",
            Some(_) => "does NOT fit",
            None => "limit unknown",
        }
    }

    /// How the bytes of a part come about, for every key that tells.
    fn arithmetic(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<_> = self
            .keys
            .iter()
            .filter_map(|key| Some((&key.circuit, key.memory.as_ref()?)))
            .collect();
        if told.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nmemory of one part:")?;
        let limit = match self.memory_limit_bytes {
            Some(bytes) => format!(" of {}", ByteCount(bytes)),
            None => String::new(),
        };
        for (circuit, memory) in told {
            let columns: Vec<_> = memory
                .column_bytes
                .iter()
                .copied()
                .map(output::bytes)
                .collect();
            writeln!(
                f,
                "  {circuit:<13} columns {} + work {} + key {}\n  {:<13} = {}{limit}: {}",
                columns.join(" + "),
                output::bytes(memory.work_bytes),
                output::bytes(memory.key_bytes),
                "",
                ByteCount(memory.total_bytes),
                self.verdict(memory)
            )?;
        }
        Ok(())
    }

    fn problems(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.keys.iter().flat_map(|key| [&key.key, &key.vk]);
        let problems: Vec<&str> = files.filter_map(|file| file.problem.as_deref()).collect();
        if problems.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nproblems:")?;
        problems
            .into_iter()
            .try_for_each(|problem| writeln!(f, "  {problem}"))
    }
}
