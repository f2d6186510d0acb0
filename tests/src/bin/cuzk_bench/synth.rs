//! `synth`: the synthesis of one part, in segments beside bellperson's, beside the whole
//! circuit in one pass, and by all threads beside one. With `--check` a part of any size
//! is synthesised a segment at a time, and every row is checked.

mod check;
pub(crate) mod counting;
pub(crate) mod segments;
mod stock;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use blstrs::Scalar;
use clap::Args;
use cuzk_core::{CircuitSpec, Part, Workload};
use cuzk_filecoin::fixture::{self, FixtureOptions};
use cuzk_filecoin::{FilecoinCircuit, FilecoinWorkload, Request};
use cuzk_synth::{AssignColumns, Sizes, Template, assign};
use cuzk_tests::record::{Case, Record};
use cuzk_tests::request::RequestFile;
use serde_json::Value;

use counting::{Cost, counted};
use segments::{fill, template};

const REQUEST_SEED: u64 = 1;
const STOCK: &str = "bellperson 0.27.0 native";
const WHOLE: &str = "the whole circuit in one pass";
const ONE_THREAD: &str = "one thread";

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Circuits to measure, of sizes up to 512 MiB.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "IDS",
        default_value = "porep-2k,snap-2k,wpost-2k,winning-2k"
    )]
    circuits: Vec<FilecoinCircuit>,
    /// Rounds to measure, after one that warms up; each measures everything once.
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Threads beside one; 0 for one a core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Checks all rows of one part of this circuit, of any size, and measures nothing
    /// else.
    #[arg(long, value_name = "ID")]
    check: Option<FilecoinCircuit>,
    /// Folder of the record [default: none is written].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Options {
    fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            threads => threads,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(circuit) = options.check {
        let record = check::run(circuit, options.threads())?;
        return tell(&record, options);
    }
    let ids: Vec<String> = options
        .circuits
        .iter()
        .map(|c| c.id().to_string())
        .collect();
    let mut record = Record::new(
        "synth",
        "on one core, synthesis in segments takes at most 1/1.5 of bellperson's time and \
         1/1.3 of a synthesis of the whole circuit; two cores take at most 0.55 of one's time \
         for a part of a PoRep of 512 MiB",
        format!(
            "cuzk-bench synth --circuits {} --pairs {} --threads {} --out DIR",
            ids.join(","),
            options.pairs,
            options.threads()
        ),
    );
    for &circuit in &options.circuits {
        let subject = Subject::new(circuit)?;
        record.cases.extend(subject.measure(options)?);
    }
    tell(&record, options)
}

fn tell(record: &Record, options: &Options) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(&record.cases)?);
    if let Some(out) = &options.out {
        println!("{}", record.write(out)?.display());
    }
    Ok(())
}

/// A synthetic request of a circuit.
fn request(circuit: FilecoinCircuit) -> Result<(FilecoinWorkload, Vec<u8>)> {
    let FilecoinCircuit { kind, sector_size } = circuit;
    let options = FixtureOptions::default();
    let fixture = fixture::generate(kind, sector_size, REQUEST_SEED, &options)?;
    let mut json = Vec::new();
    fixture.write_json(&mut json)?;
    Ok((Request::from_json(&json)?.workload()?, json))
}

/// What is measured of a circuit.
struct Subject {
    circuit: FilecoinCircuit,
    file: RequestFile,
    part: Box<dyn Part>,
    template: Template,
    survey_ms: f64,
}

/// Ways of synthesising a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Stock { threads: usize },
    Whole,
    Segments { threads: usize },
}

/// Columns that a pool would have: allocated once, and touched.
struct Owned {
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    aux: Vec<Scalar>,
}

impl Owned {
    fn new(sizes: &Sizes) -> Self {
        let ones = |len| vec![Scalar::from(1); len];
        Self {
            a: ones(sizes.constraints),
            b: ones(sizes.constraints),
            aux: ones(sizes.aux),
        }
    }

    fn columns(&mut self) -> AssignColumns<'_> {
        AssignColumns {
            a: &mut self.a,
            b: &mut self.b,
            c: None,
            aux: &mut self.aux,
        }
    }
}

impl Subject {
    fn new(circuit: FilecoinCircuit) -> Result<Self> {
        let (workload, json) = request(circuit)?;
        let file = RequestFile::parse(&json)?;
        let from = Instant::now();
        let template = template(&circuit, false)?;
        Ok(Self {
            circuit,
            file,
            part: workload.part(0)?,
            template,
            survey_ms: from.elapsed().as_secs_f64() * 1000.0,
        })
    }

    fn measure(&self, options: &Options) -> Result<Vec<Case>> {
        let id = self.circuit.id();
        let all = options.threads();
        let ways = [
            Way::Segments { threads: 1 },
            Way::Stock { threads: 1 },
            Way::Whole,
            Way::Segments { threads: all },
            Way::Stock { threads: all },
        ];
        let mut owned = Owned::new(&self.template.sizes());
        let verified = self.is_same(&mut owned)?;
        let mut samples: BTreeMap<Way, Vec<f64>> = BTreeMap::new();
        for round in 0..=options.pairs {
            // There and back, so that drift of the machine falls on all.
            let mut order = ways;
            if round % 2 == 1 {
                order.reverse();
            }
            for way in order {
                let ms = self.once(way, &mut owned)?;
                eprintln!("{id} {way:?}: {ms:.0} ms");
                // The first round warms up.
                if round > 0 {
                    samples.entry(way).or_default().push(ms);
                }
            }
        }
        drop(owned);
        let mut costs = BTreeMap::new();
        for way in ways {
            let (done, cost) = counted(|| -> Result<()> {
                // bellperson allocates its columns itself.
                let mut owned = match way {
                    Way::Stock { .. } => None,
                    _ => Some(Owned::new(&self.template.sizes())),
                };
                let mut none = Owned::new(&Sizes::default());
                self.once(way, owned.as_mut().unwrap_or(&mut none))
                    .map(drop)
            });
            done?;
            costs.insert(way, cost);
        }
        let (again, survey) = counted(|| template(&self.circuit, false));
        drop(again?);
        let pairs = [
            (
                "1 thread",
                Way::Segments { threads: 1 },
                Way::Stock { threads: 1 },
                STOCK,
            ),
            ("1 thread", Way::Segments { threads: 1 }, Way::Whole, WHOLE),
            (
                &format!("{all} threads"),
                Way::Segments { threads: all },
                Way::Segments { threads: 1 },
                ONE_THREAD,
            ),
            (
                &format!("{all} threads"),
                Way::Segments { threads: all },
                Way::Stock { threads: all },
                STOCK,
            ),
        ];
        Ok(pairs
            .into_iter()
            .map(|(threads, ours, peer, name)| {
                let case = format!("{id}, {threads}, beside {name}");
                if !verified {
                    return Case::failed(case);
                }
                let pairs = samples[&ours].iter().copied();
                let pairs: Vec<_> = pairs.zip(samples[&peer].iter().copied()).collect();
                let mut case = Case::paired(case, name, &pairs);
                self.tell(&mut case, &costs[&ours], &costs[&peer]);
                case.more
                    .insert("template_held_bytes", survey.held_bytes.into());
                case.more
                    .insert("survey_peak_bytes", survey.peak_bytes.into());
                case
            })
            .collect())
    }

    /// Whether segments give what the whole gives.
    fn is_same(&self, owned: &mut Owned) -> Result<bool> {
        let part = self.part.as_ref();
        let mut whole = Owned::new(&self.template.sizes());
        let assigned = assign(whole.columns(), |pass| part.synthesize_whole(pass))?;
        let inputs = fill(&self.template, part, owned.columns(), 1)?;
        Ok(assigned.inputs == inputs
            && assigned.sizes == self.template.sizes()
            && assigned.densities == self.template.densities()
            && [&whole.a, &whole.b, &whole.aux] == [&owned.a, &owned.b, &owned.aux])
    }

    /// Milliseconds of one synthesis.
    fn once(&self, way: Way, owned: &mut Owned) -> Result<f64> {
        let part = self.part.as_ref();
        let from = Instant::now();
        let took = match way {
            Way::Stock { threads } => {
                // Its circuit of a PoSt is cut for as many threads as rayon has.
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()?;
                pool.install(|| stock::synthesise(self.circuit.kind, &self.file))?
            }
            Way::Whole => {
                assign(owned.columns(), |pass| part.synthesize_whole(pass))?;
                from.elapsed()
            }
            Way::Segments { threads } => {
                fill(&self.template, part, owned.columns(), threads)?;
                from.elapsed()
            }
        };
        Ok(took.as_secs_f64() * 1000.0)
    }

    fn tell(&self, case: &mut Case, ours: &Cost, peer: &Cost) {
        let constraints = self.template.sizes().constraints;
        let rate = |ms: f64| Value::from((constraints as f64 / ms * 1000.0).round());
        let medians = (&case.ours, &case.peer);
        if let (Some(ours), Some(peer)) = medians {
            let peer = peer.series.spread.median;
            case.more
                .insert("constraints_per_s", rate(ours.spread.median));
            case.more.insert("peer_constraints_per_s", rate(peer));
        }
        case.more.insert("constraints", constraints.into());
        case.more.insert("allocations", ours.allocations.into());
        case.more
            .insert("peer_allocations", peer.allocations.into());
        case.more.insert("peer_peak_bytes", peer.peak_bytes.into());
        case.more
            .insert("template_bytes", self.template.bytes().into());
        case.more
            .insert("survey_bytes", self.template.survey_bytes().into());
        case.more.insert("survey_ms", self.survey_ms.round().into());
        if let (Some(ours), Some(peer)) = (ours.instructions, peer.instructions) {
            case.more.insert("instructions", ours.into());
            case.more.insert("peer_instructions", peer.into());
        }
        case.peak.insert("host_bytes", ours.peak_bytes);
    }
}

/// Processor time of this process so far, of all its threads.
fn core_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may hold spaces.
    let fields = stat.rsplit_once(')').context("a name in parentheses")?.1;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    ensure!(fields.len() > 12, "fields of user and system time");
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    // The kernel tells hundredths of a second, whatever its own clock is.
    Ok(ticks as f64 / 100.0)
}
