//! `compare`: one workload under several settings of the switches, by turns, in one
//! process. A sample is a line of a file, so that a set which is cut off goes on where it
//! was; what the samples say is not decided here.

#[cfg(feature = "cuda")]
mod device;
mod job;
mod pages;
mod prove;
mod samples;
mod settings;
mod stacked;
mod synth;
mod terms;
mod trim;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use cuzk_tests::record::Machine;

use crate::overrides::Decided;
use crate::synth::counting::processor_time;
use samples::{Head, Sample, Samples};
use settings::Setting;

/// Keys that a flag decides.
pub(crate) const DECIDED: &[Decided] = &[("device.policy", "--on"), ("params.directory", "--keys")];

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// What is measured.
    #[arg(value_enum)]
    workload: Work,
    /// The circuit: `wpost-2k`, or `mixed-22-13` for one of 2^22 rows of which 13 in a
    /// thousand have full-size values.
    #[arg(long, value_name = "ID")]
    circuit: String,
    /// A setting: `NAME` or `NAME: KEY=VALUE, KEY=VALUE`, with keys of the configuration.
    #[arg(
        long = "setting",
        value_name = "SETTING",
        required = true,
        num_args = 1
    )]
    settings: Vec<Setting>,
    /// What all settings have.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    common: Vec<String>,
    /// Where proofs are made.
    #[arg(long, value_enum, default_value_t = On::Cpu)]
    on: On,
    /// Parts of the job; of a proof kind's circuit its request's, again and again.
    #[arg(long, default_value_t = 1)]
    parts: usize,
    /// Rounds to measure; each measures every setting once.
    #[arg(long, default_value_t = 12)]
    pairs: usize,
    /// Rounds before, which are not kept.
    #[arg(long, default_value_t = 1)]
    warm_up: usize,
    /// Where test keys are made and found again; without it, where temporary files are.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// The samples, one JSON line each. A set that was cut off goes on, and other samples
    /// are refused.
    #[arg(long, value_name = "FILE")]
    samples: PathBuf,
    /// Begins no round that would end later than this after the start.
    #[arg(long, value_name = "SECONDS")]
    limit_s: Option<f64>,
    /// Says `ready`, measures a round for each line on standard input, and ends with it.
    #[arg(long)]
    by_line: bool,
    /// Slows one setting by a share of its own time, to test the method.
    #[arg(long, hide = true, value_name = "NAME=SHARE")]
    hook_slow: Option<String>,
    /// Spoils what one setting gives, to test the method.
    #[arg(long, hide = true, value_name = "NAME")]
    hook_unverified: Option<String>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    /// A job through the engine, from its request to its verified proof.
    Prove,
    /// The synthesis of one part, alone.
    Synth,
    /// The linear combinations of a part, built and evaluated again.
    Terms,
    /// The prover's stage on a device, from prepared assignments.
    #[cfg(feature = "cuda")]
    Device,
}

/// Where proofs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// The processor.
    Cpu,
    /// The first device.
    Gpu,
}

/// What one run gave.
struct Run {
    /// Numbers, by a name that ends with the unit where there is one.
    metrics: BTreeMap<String, f64>,
    /// What the switches came to: where columns lay, which backend proved.
    used: BTreeMap<String, String>,
}

/// The time of a run, by the clock and by the processors.
struct Timer {
    from: Instant,
    processor: Option<Duration>,
}

impl Timer {
    fn start() -> Self {
        Self {
            from: Instant::now(),
            processor: processor_time(),
        }
    }

    /// Milliseconds since the start. What others do on the machine is in the first alone,
    /// but for what it costs to share caches with them.
    fn told(&self) -> BTreeMap<String, f64> {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mut metrics = BTreeMap::from([(WALL.to_owned(), ms(self.from.elapsed()))]);
        if let (Some(from), Some(to)) = (self.processor, processor_time()) {
            metrics.insert(PROCESSOR.to_owned(), ms(to.saturating_sub(from)));
        }
        metrics
    }
}

/// Runs one setting; with `spoil`, as if it had given something else. An error is a run
/// that failed or did not verify.
type Runner<'a> = &'a mut dyn FnMut(usize, bool) -> Result<Run>;

/// The name of the time from a run's begin to its end, which every workload gives.
const WALL: &str = "wall_ms";

/// The name of the time of all processors in a run.
const PROCESSOR: &str = "processor_ms";

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.pairs > 0, "no rounds");
    settings::check(&options.settings)?;
    // A wrong name leaves no file that refuses the right one.
    job::mixed(&options.circuit)?;
    // Before anything is prepared: other samples are refused, and a whole set has its end.
    let samples = Samples::open(&options.samples, &options.head()?)?;
    if samples.rounds() >= options.pairs {
        tell(options, &samples);
        return Ok(());
    }
    drop(samples);
    match options.workload {
        Work::Prove => prove::with(options, |run| drive(options, run)),
        Work::Synth => synth::with(options, |run| drive(options, run)),
        Work::Terms => terms::with(options, |run| drive(options, run)),
        #[cfg(feature = "cuda")]
        Work::Device => device::with(options, |run| drive(options, run)),
    }
}

impl Options {
    /// Every setting's switches over those that all have.
    fn switches(&self) -> Result<Vec<settings::Switches>> {
        let all = self.settings.iter();
        all.map(|setting| setting.over(&self.common)).collect()
    }

    fn head(&self) -> Result<Head> {
        let mut command = format!(
            "{} --circuit {} --on {}",
            name_of(self.workload),
            self.circuit,
            name_of(self.on)
        );
        if self.parts != 1 {
            command += &format!(" --parts {}", self.parts);
        }
        let hooks = [&self.hook_slow, &self.hook_unverified];
        let mut machine = Machine::this();
        if self.on == On::Gpu {
            let devices = cuzk_gpu::devices().ok();
            let first = devices.and_then(|devices| devices.into_iter().next());
            machine.gpu = first.map(|device| device.name);
        }
        let mut settings = Vec::new();
        for (setting, switches) in self.settings.iter().zip(self.switches()?) {
            settings.push((setting.name.clone(), switches.shown()));
        }
        Head::new(
            command,
            settings,
            hooks.into_iter().flatten().cloned().collect(),
            machine,
        )
    }

    /// By how much of its time a setting is slowed.
    fn slowed(&self, setting: &Setting) -> Result<f64> {
        let Some(hook) = &self.hook_slow else {
            return Ok(0.0);
        };
        let (name, share) = hook.split_once('=').context("want NAME=SHARE")?;
        Ok(if name == setting.name {
            share.parse()?
        } else {
            0.0
        })
    }
}

fn name_of(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("none is skipped");
    value.get_name().to_owned()
}

/// Warms up, then measures rounds until there are as many as were asked for.
fn drive(options: &Options, run: Runner<'_>) -> Result<()> {
    let begin = Instant::now();
    let mut samples = Samples::open(&options.samples, &options.head()?)?;
    let count = options.settings.len();
    for round in 0..options.warm_up {
        for setting in order(count, round) {
            one(options, run, setting)?;
        }
    }
    if options.by_line {
        println!("ready");
    }
    let mut longest = Duration::ZERO;
    while samples.rounds() < options.pairs {
        let limit = options.limit_s.map(Duration::from_secs_f64);
        if limit.is_some_and(|limit| begin.elapsed() + longest > limit) {
            break;
        }
        if options.by_line && std::io::stdin().read_line(&mut String::new())? == 0 {
            break;
        }
        let from = Instant::now();
        let pair = samples.rounds();
        for setting in order(count, pair) {
            let name = &options.settings[setting].name;
            let run = one(options, run, setting).inspect_err(|error| {
                // Whoever goes on would leave it out.
                let _ = samples.fail(name, pair, &format!("{error:#}"));
            })?;
            eprintln!("{pair} {name}: {:.1} ms", run.metrics[WALL]);
            samples.push(Sample {
                setting: name.clone(),
                pair,
                verified: true,
                metrics: run.metrics,
                used: run.used,
            })?;
        }
        samples.end_round()?;
        longest = longest.max(from.elapsed());
        if options.by_line {
            println!("{pair}");
        }
    }
    tell(options, &samples);
    Ok(())
}

/// How much of the set is there.
fn tell(options: &Options, samples: &Samples) {
    let told = serde_json::json!({ "rounds": samples.rounds(), "of": options.pairs });
    println!("{told}");
}

fn one(options: &Options, run: Runner<'_>, at: usize) -> Result<Run> {
    let setting = &options.settings[at];
    let slowed = options.slowed(setting)?;
    let spoil = options.hook_unverified.as_ref() == Some(&setting.name);
    let place = || format!("setting {}", setting.name);
    let mut run = run(at, spoil).with_context(place)?;
    if slowed > 0.0 {
        let measure = [PROCESSOR, WALL]
            .into_iter()
            .find(|name| run.metrics.contains_key(*name));
        let measure = measure.context("a run without a time")?;
        let enough_ms = run.metrics[measure] * slowed;
        let timer = Timer::start();
        let mut more = timer.told();
        while more[measure] < enough_ms {
            std::hint::spin_loop();
            more = timer.told();
        }
        for (name, ms) in more {
            *run.metrics.entry(name).or_default() += ms;
        }
    }
    Ok(run)
}

/// The settings in the order of a round. With two it is A B B A B A A B …; with more the
/// first one moves on after each way there and back, so that each comes as often before
/// every other as after it.
fn order(count: usize, round: usize) -> Vec<usize> {
    let first = round / 2 % count;
    let mut order: Vec<usize> = (0..count).map(|at| (at + first) % count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_go_there_and_back_and_begin_by_turns() {
        let flat: Vec<usize> = (0..4).flat_map(|round| order(2, round)).collect();
        assert_eq!(flat, [0, 1, 1, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn each_comes_as_often_before_every_other_as_after_it() {
        for count in 2..6 {
            let rounds = 2 * count;
            for left in 0..count {
                for right in 0..count {
                    let before = (0..rounds).filter(|round| {
                        let order = order(count, *round);
                        let at = |one| order.iter().position(|setting| *setting == one);
                        at(left) < at(right)
                    });
                    let expected = if left == right { 0 } else { count };
                    assert_eq!(before.count(), expected, "{left} {right} of {count}");
                }
            }
        }
    }
}
