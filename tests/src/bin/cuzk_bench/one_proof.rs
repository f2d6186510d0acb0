//! `one-proof`: one proof of any kind and size with a generated key, judged by the
//! stock verifier. Each step runs in a process of its own: the peak memory of the
//! proof is then the proof's alone, and the stock software finds the key where it
//! looks for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use cuzk_core::config::DevicePolicy;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate};
use cuzk_core::timeline::Lane;
use cuzk_core::{CircuitSpec, Config, Engine, JobOptions, Workload};
use cuzk_filecoin::fixture::{self, FixtureOptions};
use cuzk_filecoin::{FilecoinCircuit, ProofKind, Request, SectorSize};
use cuzk_synth::count;
use cuzk_tests::record::{Case, Record, Series};
use cuzk_tests::request::RequestFile;
use cuzk_tests::stock;
use serde::{Deserialize, Serialize};

const KEY_SEED: u64 = 3;
const REQUEST_SEED: u64 = 1;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The kind: porep, snap, wpost or winning.
    #[arg(long)]
    kind: ProofKind,
    /// The sector size: 2KiB, 8MiB or 512MiB. Above 2 KiB the request is synthetic.
    #[arg(long, value_name = "SIZE", default_value = "2KiB")]
    sector_size: SectorSize,
    /// Directory of the test keys; made where missing.
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
    /// Folder of the record [default: none is written].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs one step alone, in this process.
    #[arg(long, hide = true, requires = "files")]
    step: Option<Step>,
    /// Folder of the request and the proof, between steps.
    #[arg(long, hide = true)]
    files: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Step {
    Key,
    Prove,
    Judge,
}

/// What a step tells: on standard output, as JSON.
#[derive(Debug, Deserialize, Serialize)]
struct Told {
    wall_ms: f64,
    /// Most memory of the process, without the pages of its own file.
    host_bytes: u64,
    /// Most that the engine counted.
    counted_bytes: u64,
    phases_ms: BTreeMap<String, f64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let (Some(step), Some(files)) = (options.step, &options.files) {
        return alone(options, step, files);
    }
    let files = tempfile::tempdir()?;
    write_request(options, &request_path(files.path()))?;
    let circuit = options.circuit();
    let params = options.keys.join(circuit.params_file());
    let begin = |step| begin(options, step, files.path());
    let made = if params.exists() {
        None
    } else {
        Some(begin(Step::Key)?)
    };
    let proved = begin(Step::Prove)?;
    begin(Step::Judge)?;

    let id = circuit.id();
    let constraints = count(|pass| circuit.synthesize_blank(pass))?
        .sizes
        .constraints;
    let key_bytes = std::fs::metadata(&params)?.len();
    let command = format!(
        "cuzk-bench one-proof --kind {} --sector-size {} --keys DIR --out DIR",
        circuit.kind.short_name(),
        circuit.sector_size
    );
    let mut record = Record::new(
        format!("one-proof-{id}"),
        "a request is proved on the CPU with a generated key, and the stock verifier accepts \
         the proof",
        command,
    );
    let tier = Config::new(options.keys.clone()).tuning.key_tier;
    record.tuning.insert("tuning.key_tier", tier.to_string());
    if let Some(made) = made {
        let name = format!("{id}: its key of {key_bytes} bytes");
        record.cases.push(case(name, made));
    }
    let name = format!("{id}: a proof of {constraints} constraints, key of {key_bytes} bytes");
    record.cases.push(case(name, proved));
    println!("{}", serde_json::to_string_pretty(&record.cases)?);
    if let Some(out) = &options.out {
        println!("{}", record.write(out)?.display());
    }
    Ok(())
}

/// The peak of a process that makes this one proof, with a key that is there, and
/// what the engine counted: both in bytes.
pub(crate) fn peak(kind: ProofKind, keys: &Path) -> Result<BTreeMap<&'static str, u64>> {
    let options = Options {
        kind,
        sector_size: SectorSize::KiB2,
        keys: keys.to_owned(),
        out: None,
        step: None,
        files: None,
    };
    let files = tempfile::tempdir()?;
    write_request(&options, &request_path(files.path()))?;
    Ok(peak_of(&begin(&options, Step::Prove, files.path())?))
}

/// A request of a really sealed 2 KiB sector.
pub(crate) fn real_request(kind: ProofKind) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cuzk-filecoin/tests/data");
    data.join(format!("{}-2k.json", kind.short_name()))
}

impl Options {
    fn circuit(&self) -> FilecoinCircuit {
        FilecoinCircuit::new(self.kind, self.sector_size)
    }
}

fn request_path(files: &Path) -> PathBuf {
    files.join("request.json")
}

fn proof_path(files: &Path) -> PathBuf {
    files.join("proof")
}

fn write_request(options: &Options, path: &Path) -> Result<()> {
    if options.sector_size == SectorSize::KiB2 {
        std::fs::copy(real_request(options.kind), path)?;
        return Ok(());
    }
    let fixture = fixture::generate(
        options.kind,
        options.sector_size,
        REQUEST_SEED,
        &FixtureOptions::default(),
    )?;
    let file = std::fs::File::create(path)?;
    Ok(fixture.write_json(std::io::BufWriter::new(file))?)
}

fn case(name: String, told: Told) -> Case {
    let peak = peak_of(&told);
    Case {
        phases_ms: told.phases_ms,
        peak,
        ..Case::alone(name, Series::new(vec![told.wall_ms], "ms"))
    }
}

fn peak_of(told: &Told) -> BTreeMap<&'static str, u64> {
    let mut peak = BTreeMap::from([("host_bytes", told.host_bytes)]);
    if told.counted_bytes > 0 {
        peak.insert("counted_bytes", told.counted_bytes);
    }
    peak
}

/// Runs a step in a process of its own.
fn begin(options: &Options, step: Step, files: &Path) -> Result<Told> {
    let value = step.to_possible_value().context("a step has a name")?;
    eprintln!("{}: {}", options.circuit().id(), value.get_name());
    let output = Command::new(std::env::current_exe()?)
        .args(["one-proof", "--kind", options.kind.short_name()])
        .args(["--sector-size", options.sector_size.short_name()])
        .args(["--step", value.get_name(), "--keys"])
        .arg(&options.keys)
        .arg("--files")
        .arg(files)
        .env("FIL_PROOFS_PARAMETER_CACHE", &options.keys)
        .output()
        .context("the program cannot be started again")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", value.get_name());
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A step in this process.
fn alone(options: &Options, step: Step, files: &Path) -> Result<()> {
    let from = Instant::now();
    let mut told = Told {
        wall_ms: 0.0,
        host_bytes: 0,
        counted_bytes: 0,
        phases_ms: BTreeMap::new(),
    };
    match step {
        Step::Key => make_key(options)?,
        Step::Prove => prove(options, files, &mut told)?,
        Step::Judge => judge(files)?,
    }
    told.wall_ms = from.elapsed().as_secs_f64() * 1000.0;
    told.host_bytes = peak_anonymous_bytes()?;
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}

fn make_key(options: &Options) -> Result<()> {
    let output = KeyOutput {
        directory: &options.keys,
        refused: &[],
        seed: KEY_SEED,
    };
    let waste = ToxicWaste::from_seed(KEY_SEED);
    generate(&options.circuit(), &waste, &output, &|_, _, _| {})?;
    Ok(())
}

/// The engine checks the proof with the key's verifying key and the public inputs
/// before it gives it.
fn prove(options: &Options, files: &Path, told: &mut Told) -> Result<()> {
    let mut config = Config::new(options.keys.clone());
    config.allow_test_params = true;
    config.device_policy = DevicePolicy::Cpu;
    let engine = Engine::from_config(&config)?;
    let request = Request::from_json(&std::fs::read(request_path(files))?)?;
    let workload = Arc::new(request.workload()?);
    let parts = workload.part_count();
    let reply = engine.submit(workload, JobOptions::default())?.wait()?;
    ensure!(
        reply.proof.len() == parts * cuzk_filecoin::PROOF_BYTES,
        "a proof a part"
    );
    std::fs::write(proof_path(files), &reply.proof)?;
    // The spans of single threads lie within the part's synthesis.
    let spans = reply.timeline.spans().into_iter();
    for span in spans.filter(|span| !matches!(span.lane, Lane::Core(_))) {
        *told.phases_ms.entry(span.name.to_string()).or_default() += span.length_ms();
    }
    told.counted_bytes = engine.budget().usage().peak_bytes;
    Ok(())
}

fn judge(files: &Path) -> Result<()> {
    let file = RequestFile::read(&request_path(files))?;
    let mut proof = std::fs::read(proof_path(files))?;
    ensure!(stock::accepts(&file, &proof)?, "rejected");
    // The sign bit of C: another point of the curve.
    proof[144] ^= 0x20;
    ensure!(!stock::accepts(&file, &proof)?, "accepts another proof too");
    Ok(())
}

/// The most memory that this process had, less the pages of its own file, which
/// nobody allocates.
pub(crate) fn peak_anonymous_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let Some(kib) = line.and_then(|line| line.trim().strip_suffix("kB")) else {
            bail!("no {name} in the process's status");
        };
        Ok(kib.trim().parse::<u64>()? * 1024)
    };
    // Key files are read, not mapped, so file pages are those of the program.
    Ok(field("VmHWM:")?.saturating_sub(field("RssFile:")?))
}
