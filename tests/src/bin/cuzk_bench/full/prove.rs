//! The job itself: an engine beside its plan, rounds, and what their spans say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cuzk_budget::Plan;
use cuzk_core::timeline::{Recorded, svg};
use cuzk_core::{Blinding, CircuitSpec, Config, Engine, JobOptions, ProofReply, Span, Workload};
use cuzk_filecoin::PROOF_BYTES;
use cuzk_tests::record::{Case, Record};
use serde_json::Value as Json;

use super::key::key_bytes;
use super::{BLINDING_SEED, Options, Phases, name, rounded, workload};
use crate::live::feed::{peak, ways};
use crate::live::figures::Round;
use crate::live::outcome::{case, line};
use crate::one_proof::peak_anonymous_bytes;

/// What the rounds gave.
pub(super) struct Measured {
    pub(super) case: Case,
    /// Of the last round.
    pub(super) proof: Vec<u8>,
}

impl Measured {
    pub(super) fn phases(&mut self, phases: &Phases) {
        self.case.more.insert("phases_s", phases.json());
    }
}

/// Runs the job, and writes its spans and their picture.
pub(super) fn prove(
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
    // What is known if the job does not end in time.
    let mut begun = Case::failed(circuit.id().to_string());
    begun.more = planned(&plan);
    begun.more.extend([
        ("failed", "cut off while the job ran".into()),
        ("phases_s", phases.json()),
    ]);
    record.cases = vec![begun];
    record.write(&options.out)?;

    let mut runs = Runs::default();
    for number in 0..options.warm_up {
        let label = format!("{} warm-up {number}", circuit.id());
        phases.time("warm-up", || job(options, &engine, json, &label))?;
    }
    for number in 0..options.rounds {
        let label = format!("{} round {number}", circuit.id());
        let done = phases.time("job", || job(options, &engine, json, &label))?;
        let start_s = phases.of("start") + phases.of("preload") + phases.of("warm");
        runs.add(options, &engine, &label, done, start_s)?;
    }
    let host_bytes = peak_anonymous_bytes()?;
    let last = runs.rounds.last().context("a round")?;
    record.machine.gpu = last.device.clone();
    let key_bytes = key_bytes(&options.params())?;
    let (id, parts) = (circuit.id(), last.parts);
    let name = format!("{id}: {parts} parts, key of {key_bytes} bytes");
    let mut case = case(name, &runs.rounds, options.threads());
    case.peak.insert("host_bytes", host_bytes);
    case.more.extend(planned(&plan));
    case.more.extend(runs.figures());
    case.more.insert("key_s", rounded(phases.of("key")));
    tell_peaks(&case, plan.planned_bytes());
    let proof = runs.proof;
    Ok(Measured { case, proof })
}

fn planned(plan: &Plan) -> BTreeMap<&'static str, Json> {
    let text = plan.to_string();
    BTreeMap::from([
        ("planned_bytes", plan.planned_bytes().into()),
        ("plan", text.lines().map(str::trim_end).collect()),
    ])
}

/// The rounds so far.
#[derive(Default)]
struct Runs {
    rounds: Vec<Round>,
    latency_s: Vec<f64>,
    /// Of the last one.
    proof: Vec<u8>,
}

impl Runs {
    /// Adds a round by the label of its job.
    fn add(
        &mut self,
        options: &Options,
        engine: &Engine,
        label: &str,
        done: Done,
        start_s: f64,
    ) -> Result<()> {
        let recorded = engine.recorded();
        let lost = recorded.dropped;
        ensure!(lost == 0, "{lost} spans were not kept: engine.spans_max");
        let mut spans = recorded.spans;
        spans.retain(|span| matches!(&span.job, Some(job) if job.to_string() == label));
        let replies = [done.reply];
        let mut round = Round::of(&spans, options.threads(), done.wall_s, &replies)?;
        round.start_s = start_s;
        round.peak = peak(engine);
        round.ways = ways(&replies);
        let device = engine.devices().into_iter().next();
        round.device = device.map(|state| state.device.name);
        println!("{:10} {}", "", line(&round));
        self.rounds.push(round);
        self.latency_s.push(done.latency_s);
        let [reply] = replies;
        self.proof = reply.proof;
        draw(options, spans)
    }

    /// What only this measurement tells.
    fn figures(&self) -> BTreeMap<&'static str, Json> {
        let sum = |of: &dyn Fn(&Round) -> f64| -> f64 { self.rounds.iter().map(of).sum() };
        let parts = sum(&|round| round.parts as f64);
        let busy_ms = sum(&|round| round.idle.iter().map(|unit| unit.busy_ms).sum());
        let worked_ms = sum(&|round| round.threads.worked_ms);
        let wall_s = sum(&|round| round.wall_s);
        let latency_s = self.latency_s.iter().copied();
        BTreeMap::from([
            ("gpu_ms_per_part", rounded(busy_ms / parts)),
            ("core_s_per_part", rounded(worked_ms / 1e3 / parts)),
            ("wall_s", rounded(wall_s / self.rounds.len() as f64)),
            ("request_to_proof_s", latency_s.map(rounded).collect()),
        ])
    }
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
