//! `full`: one job of a real size, whole, with a key that is generated where it is missing.
//! Each phase tells its seconds as it ends and leaves what it found in the record, so that a
//! run which is cut off has said what it knew: the key, the engine's start beside its plan,
//! the job and its peaks, the stock verifier's word, and what the secrets of the key say
//! the first proof must be.

mod exponents;
mod judged;
mod some_parts;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use cuzk_core::config::{self, DevicePolicy, KEYS, PointCheck, Value};
use cuzk_core::timeline::{Recorded, svg};
use cuzk_core::{
    Blinding, CircuitSpec, Config, Engine, JobOptions, ProofReply, Span, Workload, keygen,
};
use cuzk_filecoin::fixture::{self, FixtureOptions};
use cuzk_filecoin::{FilecoinCircuit, PROOF_BYTES, ProofKind, Request, SectorSize};
use cuzk_synth::Extend;
use cuzk_tests::record::{Case, Record, Series};
use serde_json::Value as Json;

use crate::live::SPANS_MAX;
use crate::live::feed::{peak, ways};
use crate::live::figures::Round;
use crate::live::outcome::{case, line};
use crate::one_proof::peak_anonymous_bytes;
use crate::{bed, synth};
use exponents::Oracle;
use some_parts::SomeParts;

const REQUEST_SEED: u64 = 1;
const BLINDING_SEED: u64 = 5;

/// The fewest parts that an engine has in flight of itself: one on a device with one slot,
/// two that are synthesised, one that waits.
const PARTS_IN_FLIGHT_MIN: usize = 4;

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

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(files) = &options.judge {
        return judged::judge(files);
    }
    ensure!(options.rounds > 0, "nothing to measure");
    let mut phases = Phases::new();
    let mut record = new_record(options)?;
    let mut config = configuration(options)?;
    if options.only != Some(Half::Prove) {
        key(options, &mut phases)?;
    }
    let params = options.params();
    if options.only == Some(Half::Key) {
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
    }
    let json = phases.time("request", || request(options))?;
    let parts = phases.time("check", || Ok(workload(options, &json, "")?.part_count()))?;
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
    checked.map(|_| ())
}

/// The key, made in a process of its own where it is not there: what that takes is no peak
/// of the proof.
fn key(options: &Options, phases: &mut Phases) -> Result<()> {
    if options.params().exists() {
        println!("the key is there: {} bytes", key_bytes(&options.params())?);
        return Ok(());
    }
    if options.only == Some(Half::Key) {
        return phases.time("key", || make_key(options));
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

fn make_key(options: &Options) -> Result<()> {
    #[cfg(feature = "cuda")]
    if options.backend == On::Gpu {
        let pool = bed::pool(0)?;
        let device = bed::start(0, &pool, None, |_| {})?;
        return bed::key_in(&options.keys, &options.circuit(), &device).map(|_| ());
    }
    let on_cpu = &cuzk_gpu::fixed_base::OnCpu;
    bed::key_in(&options.keys, &options.circuit(), on_cpu).map(|_| ())
}

fn key_bytes(params: &Path) -> Result<u64> {
    let file = std::fs::metadata(params).with_context(|| params.display().to_string())?;
    Ok(file.len())
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

/// What the rounds gave.
struct Measured {
    case: Case,
    /// Of the last round.
    proof: Vec<u8>,
}

impl Measured {
    fn phases(&mut self, phases: &Phases) {
        self.case.more.insert("phases_s", phases.json());
    }
}

/// Runs the job, and writes its spans and their picture.
fn prove(
    options: &Options,
    config: &Config,
    json: &[u8],
    phases: &mut Phases,
    record: &mut Record,
) -> Result<Measured> {
    let circuit = options.circuit();
    let engine = phases.time("start", || Ok(Engine::from_config(config)?))?;
    phases.time("preload", || Ok(engine.preload(&circuit)?))?;
    let plan = phases.time("warm", || Ok(engine.warm(&[&circuit])?))?;
    print!("{plan}");
    for number in 0..options.warm_up {
        phases.time("warm-up", || {
            job(options, &engine, json, &format!("warm-up {number}"))
        })?;
    }
    let mut rounds = Vec::new();
    let mut latency_s = Vec::new();
    let mut proof = Vec::new();
    for number in 0..options.rounds {
        let label = format!("{} round {number}", circuit.id());
        let done = phases.time("job", || job(options, &engine, json, &label))?;
        let recorded = engine.recorded();
        let lost = recorded.dropped;
        ensure!(lost == 0, "{lost} spans were not kept: engine.spans_max");
        let mut spans = recorded.spans;
        spans.retain(|span| matches!(&span.job, Some(job) if job.to_string() == label));
        let replies = [done.reply];
        let mut round = Round::of(&spans, options.threads(), done.wall_s, &replies)?;
        round.start_s = phases.of("start") + phases.of("preload") + phases.of("warm");
        round.peak = peak(&engine);
        round.ways = ways(&replies);
        round.device = engine
            .devices()
            .into_iter()
            .next()
            .map(|one| one.device.name);
        println!("{:10} {}", "", line(&round));
        latency_s.push(done.latency_s);
        rounds.push(round);
        let [reply] = replies;
        proof = reply.proof;
        draw(options, spans)?;
    }
    let host_bytes = peak_anonymous_bytes()?;
    let name = format!(
        "{}: {} parts, key of {} bytes",
        circuit.id(),
        rounds.first().map_or(0, |round| round.parts),
        key_bytes(&options.params())?
    );
    let mut case = case(name, &rounds, options.threads());
    record.machine.gpu = rounds.last().and_then(|round| round.device.clone());
    case.peak.insert("host_bytes", host_bytes);
    let parts: usize = rounds.iter().map(|round| round.parts).sum();
    let mean = |of: &dyn Fn(&Round) -> f64| {
        let sum: f64 = rounds.iter().map(of).sum();
        rounded(sum / parts as f64)
    };
    let busy_ms = |round: &Round| round.idle.iter().map(|unit| unit.busy_ms).sum();
    let gpu_ms_per_part = mean(&busy_ms);
    let core_s_per_part = mean(&|round| round.threads.worked_ms / 1e3);
    let plan_text = plan.to_string();
    let walls: f64 = rounds.iter().map(|round| round.wall_s).sum();
    case.more.extend([
        ("gpu_ms_per_part", gpu_ms_per_part),
        ("core_s_per_part", core_s_per_part),
        ("wall_s", rounded(walls / rounds.len() as f64)),
        (
            "request_to_proof_s",
            latency_s.iter().copied().map(rounded).collect(),
        ),
        ("key_s", rounded(phases.of("key"))),
        ("planned_bytes", plan.planned_bytes().into()),
        ("plan", plan_text.lines().map(str::trim_end).collect()),
    ]);
    tell_peaks(&case, plan.planned_bytes());
    Ok(Measured { case, proof })
}

/// What was planned beside what was held.
fn tell_peaks(case: &Case, planned_bytes: u64) {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    println!("{:>24}  {:9.3} GiB", "planned", gib(planned_bytes));
    for (name, bytes) in &case.peak {
        println!("{name:>24}  {:9.3} GiB", gib(*bytes));
    }
}

struct Done {
    reply: ProofReply,
    /// From the submission to the proof.
    wall_s: f64,
    /// From the request's bytes to the proof.
    latency_s: f64,
}

/// One job, from its request's bytes to its verified proof.
fn job(options: &Options, engine: &Engine, json: &[u8], label: &str) -> Result<Done> {
    let begin = Instant::now();
    let workload = Arc::new(workload(options, json, label)?);
    let bytes = workload.part_count() * PROOF_BYTES;
    let submitted = Instant::now();
    let job = JobOptions {
        priority: options.kind.default_priority(),
        blinding: Blinding::Seeded(BLINDING_SEED),
    };
    let reply = engine.submit(workload, job)?.wait()?;
    ensure!(reply.proof.len() == bytes, "no proof of each part");
    Ok(Done {
        reply,
        wall_s: submitted.elapsed().as_secs_f64(),
        latency_s: begin.elapsed().as_secs_f64(),
    })
}

/// The last round's spans, for `draw`, and their waterfall.
fn draw(options: &Options, spans: Vec<Span>) -> Result<()> {
    std::fs::create_dir_all(&options.out)?;
    let path = options.out.join(name(options));
    let write = |extension: &str, text: String| {
        let path = path.with_extension(extension);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    };
    write("spans.json", serde_json::to_string(&spans)? + "\n")?;
    let recorded = Recorded { spans, dropped: 0 };
    write("svg", svg(&name(options), &recorded))
}

/// What others say of the proof: who found it right.
fn check(options: &Options, json: &[u8], proof: &[u8], phases: &mut Phases) -> Result<String> {
    let mut by = vec!["the verifying key of each part".to_owned()];
    let whole = workload(options, json, "")?;
    if whole.is_whole() {
        phases.time("stock verifier", || judged::begin(options, json, proof))?;
        by.push("the stock verifier, as one proof".to_owned());
    }
    if !options.no_oracle {
        phases.time("oracle", || {
            let expected = expected(options, &whole)?;
            ensure!(
                proof.get(..PROOF_BYTES) == Some(&expected[..]),
                "the first proof is not the one that the secrets of its key say"
            );
            Ok(())
        })?;
        by.push("the secrets of the key, part 0".to_owned());
    }
    Ok(by.join("; "))
}

/// The first part's proof, from the secrets of the key.
fn expected(options: &Options, workload: &SomeParts) -> Result<Vec<u8>> {
    let path = keygen::sidecar_path(&options.params());
    let sidecar = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let sidecar: keygen::Sidecar = serde_json::from_str(&sidecar)?;
    let vk = cuzk_gpu::key::read_vk(&options.keys.join(options.circuit().vk_file()))?;
    let oracle = Oracle {
        waste: &keygen::ToxicWaste::from_seed(sidecar.seed),
        vk: &vk,
    };
    let circuit = options.circuit();
    // The first block tells the others where all use the same shared variables. Were it not
    // so, the proofs would differ.
    let extend = match options.kind {
        ProofKind::SnapDeals => Extend::Whole,
        _ => Extend::FirstBlock {
            blocks: circuit.segments(),
        },
    };
    let template = synth::segments::surveyed(&circuit, extend, true)?;
    let part = workload.part(0)?;
    let public = workload.public_inputs(0)?;
    let blinding = Blinding::Seeded(BLINDING_SEED).scalars(0);
    oracle.proof(
        &template,
        part.as_ref(),
        &public,
        blinding,
        options.threads(),
    )
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
    let mut overrides: Vec<(&'static str, String, Value)> = Vec::new();
    for set in &options.set {
        let (key, value) = assignment(set)?;
        overrides.push(("--set", key.to_owned(), Value::from_argument(value)));
    }
    Ok(config::load(config, None, &overrides)?.config)
}

fn assignment(set: &str) -> Result<(&str, &str)> {
    match set.split_once('=') {
        Some((key, value)) => Ok((key.trim(), value.trim())),
        None => bail!("--set {set:?}: want KEY=VALUE"),
    }
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
    let mut record = Record::new(
        name(options),
        "a job of the real size is proved in the memory that its plan says, and every proof of \
         it is the one that others expect",
        String::new(),
    );
    for set in &options.set {
        command += &format!(" --set {set}");
        let (name, value) = assignment(set)?;
        let key = KEYS.iter().find(|key| key.name == name);
        let key = key.with_context(|| format!("--set {set:?}: no such key"))?;
        record.tuning.insert(key.name, value.to_owned());
    }
    record.command = command + " --keys DIR --out DIR";
    Ok(record)
}
