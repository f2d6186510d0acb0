//! `live`: a whole engine with many real jobs, synthesis and device together. Says which
//! of the two limits, what the device lacked while it stood still, and what dispatch and
//! slots do to that. `replay` is its counterpart, in which nothing is synthesised.

pub(crate) mod feed;
pub(crate) mod figures;
mod jobs;
pub(crate) mod outcome;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use cuzk_core::config::{self, DevicePolicy, Dispatch, PointCheck, Value};
use cuzk_core::{Config, Span};
use cuzk_filecoin::{ProofKind, SectorSize};
use cuzk_tests::record::{Case, Record};

use crate::overrides::{self, Decided};
use feed::Bench;
use figures::Round;
use jobs::Jobs;
use outcome::{case, line, table};

/// Spans that are kept of one engine: what is explained by spans needs all of them.
pub(crate) const SPANS_MAX: usize = 1 << 21;

/// Keys that a flag decides.
pub(crate) const DECIDED: &[Decided] = &[
    ("tuning.dispatch", "--dispatch"),
    ("device.slots", "--slots"),
    ("device.policy", "--backend"),
    ("engine.threads", "--threads"),
    ("engine.jobs_max", "--jobs"),
    ("params.directory", "--keys"),
];

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The kinds, by turns: porep, snap, wpost, winning.
    #[arg(long, value_delimiter = ',', required = true)]
    kind: Vec<ProofKind>,
    /// The sector size: 2KiB, 8MiB or 512MiB. The requests are synthetic.
    #[arg(long, value_name = "SIZE", default_value = "2KiB")]
    sector_size: SectorSize,
    /// Jobs of a round, all submitted at once.
    #[arg(long, default_value_t = 32)]
    jobs: usize,
    /// Jobs that warm each engine up.
    #[arg(long, default_value_t = 4)]
    warm_up: usize,
    /// Rounds; in each, every setting has its turn, forwards and backwards by turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// When parts start.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "reactive")]
    dispatch: Vec<Start>,
    /// Proofs with a place on the device at the same time.
    #[arg(long, value_delimiter = ',', default_value = "2")]
    slots: Vec<usize>,
    /// What proves.
    #[arg(long, value_enum, default_value_t = On::Cpu)]
    backend: On,
    /// Threads for arithmetic, 0 for one a core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Another setting, as `cuzk --set` takes it, for all engines alike.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Where test keys are made and found again.
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// File, in the folder of the record, for the spans of the last round as JSON; with
    /// several settings one each, the setting in its name.
    #[arg(long, value_name = "FILE")]
    spans: Option<PathBuf>,
}

/// When the parts of jobs start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Start {
    /// When their turn on a device is foreseeable.
    Reactive,
    /// At once.
    Burst,
}

impl Start {
    fn dispatch(self) -> Dispatch {
        match self {
            Self::Reactive => Dispatch::Reactive,
            Self::Burst => Dispatch::Burst,
        }
    }
}

/// What proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// The processor.
    Cpu,
    /// A device, in programs built for it.
    Gpu,
}

/// One way to run an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    start: Start,
    slots: usize,
}

impl Setting {
    fn name(self) -> String {
        let slots = match self.slots {
            1 => "1 slot".to_owned(),
            slots => format!("{slots} slots"),
        };
        format!("{}, {slots}", self.start.dispatch())
    }
}

/// A setting and what its rounds gave, or why there will be no more.
struct Measured {
    setting: Setting,
    rounds: Vec<Round>,
    failed: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let begin = Instant::now();
    ensure!(options.jobs > 0 && options.rounds > 0, "nothing to measure");
    let mut record = new_record(options)?;
    // What is wrong with the settings is told before a key is made.
    let settings = settings(&options.dispatch, &options.slots);
    let configs: Vec<Config> = settings
        .iter()
        .map(|setting| configuration(options, *setting))
        .collect::<Result<_>>()?;
    let jobs = Jobs::prepare(options)?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{seconds:7.1} s  keys and requests are there");

    let mut measured: Vec<Measured> = settings
        .into_iter()
        .map(|setting| Measured {
            setting,
            rounds: Vec::new(),
            failed: None,
        })
        .collect();
    for round in 0..options.rounds {
        for at in order(round, measured.len()) {
            let Measured {
                setting,
                rounds,
                failed,
            } = &mut measured[at];
            if failed.is_some() {
                continue;
            }
            let bench = Bench {
                config: with_parts(configs[at].clone(), &jobs, options),
                threads: threads(options),
            };
            let told = match bench.round(&jobs, options, round + 1) {
                Ok((made, spans)) => {
                    if let (Some(file), true) = (&options.spans, round + 1 == options.rounds) {
                        write_spans(options, file, *setting, &spans)?;
                    }
                    let told = line(&made);
                    record.machine.gpu = made.device.clone().or(record.machine.gpu.take());
                    rounds.push(made);
                    told
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    failed.insert(error).clone()
                }
            };
            let (seconds, name) = (begin.elapsed().as_secs_f64(), setting.name());
            println!("{seconds:7.1} s  round {}, {name}: {told}", round + 1);
            record.cases = cases(&jobs, &measured, threads(options));
            record.write(&options.out)?;
        }
    }
    print!("\n{}", table(&measured));
    println!("{}", record.write(&options.out)?.display());
    let failures = measured.iter().filter(|one| one.failed.is_some()).count();
    if failures > 0 {
        bail!("{failures} settings failed");
    }
    Ok(())
}

/// The settings' turns: A B C, then C B A, so that drift of the machine falls on all.
fn order(round: usize, count: usize) -> Vec<usize> {
    let forwards = 0..count;
    match round.is_multiple_of(2) {
        true => forwards.collect(),
        false => forwards.rev().collect(),
    }
}

/// Every start with every number of slots; what is named twice is measured once.
fn settings(starts: &[Start], slots: &[usize]) -> Vec<Setting> {
    let mut settings: Vec<Setting> = Vec::new();
    for &start in starts {
        for &slots in slots {
            let setting = Setting { start, slots };
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
    }
    settings
}

/// Cases of settings that have had a turn.
fn cases(jobs: &Jobs, measured: &[Measured], threads: usize) -> Vec<Case> {
    let measured = measured.iter();
    let measured = measured.filter(|one| !one.rounds.is_empty() || one.failed.is_some());
    measured
        .map(|one| {
            let name = format!("{}: {}", jobs.name(), one.setting.name());
            match &one.failed {
                None => case(name, &one.rounds, threads),
                Some(error) => {
                    let mut case = Case::failed(name);
                    case.more.insert("failed", error.as_str().into());
                    case
                }
            }
        })
        .collect()
}

fn threads(options: &Options) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    match options.threads {
        0 => cores(),
        threads => threads,
    }
}

/// An engine's configuration.
fn configuration(options: &Options, setting: Setting) -> Result<Config> {
    let mut config = Config::new(options.keys.clone());
    config.allow_test_params = true;
    // They were made here, and a device that brings points checks them.
    config.params_check = PointCheck::Counts;
    config.spans_max = SPANS_MAX;
    config.jobs_max = options.jobs.max(options.warm_up);
    config.threads = options.threads;
    config.device_policy = match options.backend {
        On::Cpu => DevicePolicy::Cpu,
        On::Gpu => DevicePolicy::RequireGpu,
    };
    config.tuning.dispatch = setting.start.dispatch();
    let mut overrides: Vec<(&'static str, String, Value)> = Vec::new();
    let slots = i64::try_from(setting.slots)?;
    let slots = Value::Integer(slots);
    overrides.push(("--slots", "device.slots".to_owned(), slots));
    overrides.extend(overrides::overrides(&options.set, DECIDED)?);
    Ok(config::load(config, None, &overrides)?.config)
}

/// A burst is of no more parts than there are: columns of more would be allocated for
/// nothing.
fn with_parts(mut config: Config, jobs: &Jobs, options: &Options) -> Config {
    /// Where it ends without a number.
    const BURST_PARTS_MAX: usize = 64;
    let parts = jobs.parts(options.jobs);
    if config.tuning.dispatch == Dispatch::Burst && parts < BURST_PARTS_MAX {
        config.parts_in_flight_max.get_or_insert(parts);
    }
    config
}

fn new_record(options: &Options) -> Result<Record> {
    let kinds: Vec<&str> = options.kind.iter().map(|kind| kind.short_name()).collect();
    let starts = options.dispatch.iter();
    let starts: Vec<String> = starts.map(|start| start.dispatch().to_string()).collect();
    let slots: Vec<String> = options.slots.iter().map(usize::to_string).collect();
    let mut command = format!(
        "cuzk-bench live --kind {} --sector-size {} --jobs {} --warm-up {} --rounds {} \
         --dispatch {} --slots {} --backend {} --threads {}",
        kinds.join(","),
        options.sector_size,
        options.jobs,
        options.warm_up,
        options.rounds,
        starts.join(","),
        slots.join(","),
        match options.backend {
            On::Cpu => "cpu",
            On::Gpu => "gpu",
        },
        options.threads,
    );
    for set in &options.set {
        command += &format!(" --set {set}");
    }
    let mut record = Record::new(
        "live",
        "with live synthesis every moment at which a device computes nothing is explained by \
         what it lacks, and reactive dispatch loses no time to burst",
        command + " --keys DIR --out DIR",
    );
    let tuning = &mut record.tuning;
    tuning.insert("tuning.dispatch", starts.join(", "));
    tuning.insert("device.slots", slots.join(", "));
    for (key, value) in overrides::named(&options.set)? {
        tuning.insert(key, value);
    }
    Ok(record)
}

/// Writes what `draw` reads.
fn write_spans(options: &Options, file: &Path, setting: Setting, spans: &[Span]) -> Result<()> {
    let name = match options.dispatch.len() * options.slots.len() {
        1 => file.to_owned(),
        _ => {
            let stem = file.file_stem().context("--spans: no name of a file")?;
            file.with_file_name(format!(
                "{}-{}-{}.json",
                stem.to_string_lossy(),
                setting.start.dispatch(),
                setting.slots
            ))
        }
    };
    let path = options.out.join(name);
    std::fs::create_dir_all(&options.out)?;
    std::fs::write(&path, serde_json::to_string(spans)? + "\n")
        .with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Live {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn every_start_is_measured_with_every_number_of_slots() {
        let starts = [Start::Reactive, Start::Burst, Start::Reactive];
        let names: Vec<String> = settings(&starts, &[1, 2, 2])
            .into_iter()
            .map(Setting::name)
            .collect();
        assert_eq!(
            names,
            [
                "reactive, 1 slot",
                "reactive, 2 slots",
                "burst, 1 slot",
                "burst, 2 slots"
            ]
        );
    }

    #[test]
    fn a_set_that_a_flag_decides_is_refused() {
        let refused = |set: &str| {
            let args = [
                "live", "--kind", "porep", "--keys", "k", "--out", "o", "--set", set,
            ];
            let options = Live::try_parse_from(args).expect("flags").options;
            let setting = settings(&options.dispatch, &options.slots)[0];
            let config = configuration(&options, setting);
            config.map(drop).map_err(|error| error.to_string())
        };
        for (key, flag) in DECIDED {
            let error = refused(&format!("{key}=1")).expect_err(key);
            assert_eq!(error, format!("--set {key}: {flag} says that here"));
        }
        refused("tuning.sizing=growing").expect("no flag decides it");
    }

    #[test]
    fn every_second_round_goes_backwards() {
        let rounds: Vec<_> = (0..3).map(|round| order(round, 3)).collect();
        assert_eq!(rounds, [[0, 1, 2], [2, 1, 0], [0, 1, 2]]);
    }
}
