//! `full`: one job of a real size, whole, with a key that is generated where it is missing.
//! Each phase tells its seconds as it ends and leaves what it found in the record, so that a
//! run which is cut off has said what it knew: the key, the engine's start beside its plan,
//! the job and its peaks, the stock verifier's word, and what the secrets of the key say
//! the first proof must be.

mod key;

mod prove;
mod some_parts;

mod checks;
mod exponents;
mod judged;
mod replayed;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use cuzk_core::config::{self, DevicePolicy, PointCheck};
use cuzk_core::{CircuitSpec, Config, Workload};
use cuzk_filecoin::fixture::{self, FixtureOptions};
use cuzk_filecoin::{FilecoinCircuit, ProofKind, Request, SectorSize};
use cuzk_tests::record::{Case, Record, Series};
use serde_json::Value as Json;

use crate::live::SPANS_MAX;
use crate::one_proof::peak_anonymous_bytes;
use crate::overrides::{self, Decided};
use crate::replay as feeding;
use checks::check;
use key::{key, key_bytes};
use prove::prove;
use replayed::replay;
use some_parts::SomeParts;

const REQUEST_SEED: u64 = 1;
const BLINDING_SEED: u64 = 5;

/// The fewest parts that an engine has in flight of itself: one on a device with one slot,
/// two that are synthesised, one that waits.
const PARTS_IN_FLIGHT_MIN: usize = 4;

/// Keys that a flag decides.
pub(crate) const DECIDED: &[Decided] = &[
    ("device.policy", "--backend"),
    ("engine.threads", "--threads"),
    ("params.directory", "--keys"),
];

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The kind: porep, snap, wpost or winning.
    #[arg(long)]
    kind: ProofKind,
    /// The sector size: 2KiB to 64GiB. The request is synthetic.
    #[arg(long, value_name = "SIZE", default_value = "32GiB")]
    sector_size: SectorSize,
    /// Parts of the request that are proved, from the first on [default: all].
    #[arg(long, value_name = "N")]
    parts: Option<usize>,
    /// Times that the job is run on the warm engine.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Jobs before the first one that is measured.
    #[arg(long, default_value_t = 0)]
    warm_up: usize,
    /// What proves.
    #[arg(long, value_enum, default_value_t = On::Gpu)]
    backend: On,
    /// Threads for arithmetic, 0 for one a core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Another setting, as `cuzk --set` takes it.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Does one half: makes the key, or proves with one that is there.
    #[arg(long, value_enum)]
    only: Option<Half>,
    /// Leaves out the proof that the secrets of the key say.
    #[arg(long)]
    no_oracle: bool,
    /// Then feeds the device from the first N parts, prepared before, until it has proved as
    /// many as the job has.
    #[arg(long, value_name = "N")]
    replay: Option<usize>,
    /// Where the test key is made and found again.
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
    /// Folder of the record, the spans and the picture.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Has the stock verifier judge the request and the proof in a folder.
    #[arg(long, hide = true)]
    judge: Option<PathBuf>,
}

/// What proves, and makes the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// The processor.
    Cpu,
    /// A device, in programs built for it.
    Gpu,
}

impl From<On> for feeding::On {
    fn from(on: On) -> Self {
        match on {
            #[cfg(feature = "cuda")]
            On::Gpu => Self::Cuda,
            #[cfg(not(feature = "cuda"))]
            On::Gpu => Self::default(),
            On::Cpu => Self::Cpu,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Half {
    Key,
    Prove,
}

impl Options {
    fn circuit(&self) -> FilecoinCircuit {
        FilecoinCircuit::new(self.kind, self.sector_size)
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        match self.threads {
            0 => cores(),
            threads => threads,
        }
    }

    fn params(&self) -> PathBuf {
        self.keys.join(self.circuit().params_file())
    }
}

/// What is told of each phase, and kept for the record.
struct Phases {
    begin: Instant,
    seconds: Vec<(&'static str, f64)>,
}

impl Phases {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            seconds: Vec::new(),
        }
    }

    fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let from = Instant::now();
        let result = work();
        let seconds = from.elapsed().as_secs_f64();
        self.seconds.push((name, seconds));
        let now = self.begin.elapsed().as_secs_f64();
        let failed = if result.is_ok() { "" } else { " and failed" };
        println!("{now:7.1} s  {name}: {seconds:.2} s{failed}");
        result
    }

    fn of(&self, name: &str) -> f64 {
        let seconds = self.seconds.iter().filter(|phase| phase.0 == name);
        seconds.map(|phase| phase.1).sum()
    }

    fn json(&self) -> Json {
        let seconds = self.seconds.iter();
        let seconds = seconds.map(|(name, s)| ((*name).to_owned(), rounded(*s)));
        Json::Object(seconds.collect())
    }
}

fn rounded(value: f64) -> Json {
    Json::from((value * 1e3).round() / 1e3)
}

/// The request, and how many parts of it are proved.
fn asked(options: &Options, phases: &mut Phases) -> Result<(Vec<u8>, usize)> {
    let json = phases.time("request", || request(options))?;
    let parts = phases.time("check", || Ok(workload(options, &json, "")?.part_count()))?;
    if let Some(count) = options.replay {
        ensure!(
            (1..=parts).contains(&count),
            "--replay {count}: the job has 1 to {parts} parts"
        );
    }
    Ok((json, parts))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(files) = &options.judge {
        return judged::judge(files);
    }
    ensure!(options.rounds > 0, "nothing to measure");
    ensure!(
        options.replay.is_none() || options.only != Some(Half::Key),
        "--replay wants a job, and --only key makes none"
    );
    let mut phases = Phases::new();
    let mut record = new_record(options)?;
    let mut config = configuration(options)?;
    // What the arguments ask for is there, or is told before a key is made for hours.
    let out = || format!("--out {}", options.out.display());
    std::fs::create_dir_all(&options.out).with_context(out)?;
    let asked = match options.only {
        Some(Half::Key) => None,
        _ => Some(asked(options, &mut phases)?),
    };
    if options.only != Some(Half::Prove) {
        key(options, &mut phases)?;
    }
    let params = options.params();
    let Some((json, parts)) = asked else {
        let name = format!("{}: its key", options.circuit().id());
        let seconds = Series::new(vec![phases.of("key")], "s");
        record.name += "-key";
        record.cases = vec![Case {
            peak: BTreeMap::from([("host_bytes", peak_anonymous_bytes()?)]),
            more: BTreeMap::from([("key_bytes", key_bytes(&params)?.into())]),
            ..Case::alone(name, seconds)
        }];
        println!("{}", record.write(&options.out)?.display());
        return Ok(());
    };
    // No more are in flight than there are: columns of more would be allocated for nothing.
    if parts < PARTS_IN_FLIGHT_MIN {
        config.parts_in_flight_max.get_or_insert(parts);
    }
    let mut proved = prove(options, &config, &json, &mut phases, &mut record)?;
    proved.phases(&phases);
    record.cases = vec![proved.case];
    record.write(&options.out)?;
    let checked = check(options, &json, &proved.proof, &mut phases);
    let case = record.cases.first_mut().context("a case")?;
    match &checked {
        Ok(checks) => {
            case.more.insert("phases_s", phases.json());
            case.more.insert("checked_by", checks.as_str().into());
        }
        Err(error) => {
            *case = Case::failed(std::mem::take(&mut case.case));
            case.more.insert("failed", format!("{error:#}").into());
        }
    }
    println!("{}", record.write(&options.out)?.display());
    checked?;
    match options.replay {
        Some(count) => replay_too(options, &json, count, &mut phases, &mut record),
        None => Ok(()),
    }
}

/// Adds the case of a replay to a record, also if it failed.
fn replay_too(
    options: &Options,
    json: &[u8],
    count: usize,
    phases: &mut Phases,
    record: &mut Record,
) -> Result<()> {
    let replayed = replay(options, json, count, phases);
    let (case, result) = match replayed {
        Ok(case) => (case, Ok(())),
        Err(error) => {
            let mut case = Case::failed(format!("{} replayed", options.circuit().id()));
            case.more.insert("failed", format!("{error:#}").into());
            (case, Err(error))
        }
    };
    record.cases.push(case);
    record.write(&options.out)?;
    result
}

/// The bytes of a synthetic request.
fn request(options: &Options) -> Result<Vec<u8>> {
    let fixture = FixtureOptions::default();
    let (kind, size) = (options.kind, options.sector_size);
    let mut json = Vec::new();
    fixture::generate(kind, size, REQUEST_SEED, &fixture)?.write_json(&mut json)?;
    Ok(json)
}

/// From a request's bytes to what the engine takes, checked as a service does.
fn workload(options: &Options, json: &[u8], label: &str) -> Result<SomeParts> {
    let workload = Request::from_json(json)?.workload()?;
    workload.check_vanilla()?;
    let parts = options.parts.unwrap_or(workload.part_count());
    SomeParts::new(workload, parts, label.to_owned())
}

fn name(options: &Options) -> String {
    let (kind, size) = (options.kind, options.sector_size.to_string());
    format!("full-{}-{}", kind.short_name(), size.to_lowercase())
}

/// The engine's configuration.
fn configuration(options: &Options) -> Result<Config> {
    let mut config = Config::new(options.keys.clone());
    config.allow_test_params = true;
    // The key was made here, and a device that brings points checks them.
    config.params_check = PointCheck::Counts;
    config.spans_max = SPANS_MAX;
    config.threads = options.threads;
    config.device_policy = match options.backend {
        On::Cpu => DevicePolicy::Cpu,
        On::Gpu => DevicePolicy::RequireGpu,
    };
    let overrides = overrides::overrides(&options.set, DECIDED)?;
    Ok(config::load(config, None, &overrides)?.config)
}

fn new_record(options: &Options) -> Result<Record> {
    let backend = match options.backend {
        On::Cpu => "cpu",
        On::Gpu => "gpu",
    };
    let mut command = format!(
        "cuzk-bench full --kind {} --sector-size {} --rounds {} --warm-up {} --backend {backend} \
         --threads {}",
        options.kind.short_name(),
        options.sector_size,
        options.rounds,
        options.warm_up,
        options.threads,
    );
    if let Some(parts) = options.parts {
        command += &format!(" --parts {parts}");
    }
    if options.only == Some(Half::Key) {
        command += " --only key";
    }
    if options.no_oracle {
        command += " --no-oracle";
    }
    if let Some(count) = options.replay {
        command += &format!(" --replay {count}");
    }
    let mut record = Record::new(
        name(options),
        "a job of the real size is proved in the memory that its plan says, and every proof of \
         it is the one that others expect",
        String::new(),
    );
    for set in &options.set {
        command += &format!(" --set {set}");
    }
    for (key, value) in overrides::named(&options.set)? {
        record.tuning.insert(key, value);
    }
    record.command = command + " --keys DIR --out DIR";
    Ok(record)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn what_is_not_there_is_told_before_a_key_is_made() {
        let place = tempfile::tempdir().expect("writable");
        let (keys, file) = (place.path().join("keys"), place.path().join("file"));
        std::fs::write(&file, "").expect("writable");
        let out = place.path().join("out");
        for (flag, value, reason) in [
            ("--replay", "0", "--replay 0: the job has 1 to 1 parts"),
            ("--replay", "2", "--replay 2: the job has 1 to 1 parts"),
            ("--parts", "2", "--parts 2: the request has 1 to 1"),
            ("--out", "", "--out "),
        ] {
            let mut line = ["full", "--kind", "winning", "--sector-size", "2KiB"]
                .map(Into::into)
                .to_vec();
            line.extend([
                "--backend".into(),
                "cpu".into(),
                "--keys".into(),
                keys.clone().into_os_string(),
            ]);
            line.extend(match flag {
                "--out" => ["--out".into(), file.clone().into_os_string()].to_vec(),
                _ => [
                    "--out".into(),
                    out.clone().into_os_string(),
                    flag.into(),
                    value.into(),
                ]
                .to_vec(),
            });
            let line = Line::try_parse_from(line).expect("a command line");
            let refused = run(&line.options).expect_err("it is not there").to_string();
            assert!(refused.starts_with(reason), "{refused}");
            assert!(!keys.exists(), "{reason}");
        }
    }
}
