//! `cuzk prove`: a request becomes a proof file.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use cuzk_core::config::Loaded;
use cuzk_core::keygen::sidecar_path;
use cuzk_core::timeline::{Savings, Utilisation, savings};
use cuzk_core::{Blinding, Engine, JobOptions, ProofReply, Span, Workload};
use cuzk_filecoin::{FilecoinWorkload, Request};
use serde::Serialize;

use super::draw::Drawings;
use crate::args::{Args, ProveArgs};
use crate::configuration;
use crate::exit::Failure;
use crate::files;
use crate::machine;
use crate::output;
use crate::progress::Progress;

pub(super) fn run(args: &Args, prove: &ProveArgs) -> Result<(), Failure> {
    // That there is a place for the proof is known before it is made.
    let out = files::NewFile::create(&prove.out)?;
    let drawings = Drawings::begin(&prove.draw, Some(&prove.out))?;
    let loaded = configuration::load(args, Some(&prove.keys))?;
    let request = super::request(&prove.request)?;
    let deliver = |proof: &[u8]| out.finish_with(proof);
    let Made { report, drawn } = prove_request(&loaded, &request, drawings, deliver)?;
    output::result(args.json, &report)?;
    drawn
}

/// A proof that has been handed over.
pub(super) struct Made {
    pub(super) report: Report,
    /// Whether its pictures could be written.
    pub(super) drawn: Result<(), Failure>,
}

/// How a proof was made, for people and programs.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    job: String,
    circuit: String,
    /// The key file.
    key: String,
    is_test_key: bool,
    /// Seconds that the test key took which was made for this proof.
    pub(super) keygen_seconds: Option<f64>,
    parts: usize,
    proof_bytes: usize,
    seconds: f64,
    backend: &'static str,
    tier: String,
    placement: &'static str,
    is_pinned: bool,
    /// `segments`, `whole`, or why a part was synthesised whole instead.
    synthesis: String,
    retries: usize,
    counted_peak_bytes: u64,
    process_peak_bytes: Option<u64>,
    pub(super) timeline: Vec<Span>,
    utilisation: Vec<Utilisation>,
    savings: Savings,
    #[serde(skip)]
    drawn: String,
}

/// Checks the vanilla proofs, proves, verifies, and hands the bytes over. Pictures are
/// written also of a job that gave no proof.
pub(super) fn prove_request(
    loaded: &Loaded,
    request: &Request,
    drawings: Drawings,
    deliver: impl FnOnce(&[u8]) -> Result<(), Failure>,
) -> Result<Made, Failure> {
    let begun = Instant::now();
    let progress = Progress::start("checking the request");
    let workload = Arc::new(request.workload()?);
    let engine = Engine::from_config(&loaded.config)?;
    configuration::warn_without_effect(loaded, &engine);
    // A missing key is told before anything takes long.
    engine.keys().check_present(workload.circuit().as_ref())?;
    workload.check_vanilla()?;
    progress.show(&format!("proving {}", workload.label()), 0, 1);
    let options = JobOptions {
        priority: request.priority,
        blinding: Blinding::Fresh,
    };
    let reply = engine.submit(workload.clone(), options)?.wait();
    drop(progress);
    let delivered = match &reply {
        Ok(reply) => deliver(&reply.proof),
        Err(_) => Ok(()),
    };
    // The proof is safe before anything else is written.
    let drawn = drawings.finish(&workload.label(), &engine.recorded());
    let reply = reply?;
    delivered?;
    let report = report(&engine, &workload, &reply, begun);
    Ok(Made { report, drawn })
}

fn report(
    engine: &Engine,
    workload: &FilecoinWorkload,
    reply: &ProofReply,
    begun: Instant,
) -> Report {
    let circuit = workload.circuit();
    let key = engine.keys().path(circuit.as_ref());
    let seconds = begun.elapsed().as_secs_f64();
    let spans = reply.timeline.spans();
    tracing::info!(
        job = workload.label(),
        parts = reply.parts.len(),
        backend = reply.backend,
        tier = reply.tier,
        placement = reply.placement(),
        is_pinned = reply.is_pinned(),
        synthesis = reply.synthesis(),
        retries = reply.retries(),
        seconds,
        "proof made"
    );
    Report {
        job: workload.label(),
        circuit: circuit.id().to_string(),
        key: key.display().to_string(),
        is_test_key: sidecar_path(&key).exists(),
        keygen_seconds: None,
        parts: reply.parts.len(),
        proof_bytes: reply.proof.len(),
        seconds,
        backend: reply.backend,
        tier: reply.tier.clone(),
        placement: reply.placement(),
        is_pinned: reply.is_pinned(),
        synthesis: reply.synthesis(),
        retries: reply.retries(),
        counted_peak_bytes: engine.budget().usage().peak_bytes,
        process_peak_bytes: machine::peak_bytes(),
        utilisation: Utilisation::of(&spans),
        savings: savings(&spans),
        timeline: spans,
        drawn: reply.timeline.to_string(),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: proof of {} bytes, verified",
            self.job, self.proof_bytes
        )?;
        writeln!(
            f,
            "backend {}, key tier {}, placement {}, is_pinned={}, synthesis {}, retries {}",
            self.backend, self.tier, self.placement, self.is_pinned, self.synthesis, self.retries
        )?;
        let test = if self.is_test_key {
            "insecure test key"
        } else {
            "key"
        };
        writeln!(f, "{test}: {}", self.key)?;
        if let Some(seconds) = self.keygen_seconds {
            writeln!(f, "{seconds:.2} s to make that key")?;
        }
        writeln!(f, "{:.2} s from request to proof", self.seconds)?;
        write!(
            f,
            "memory: {} counted at most",
            output::bytes(self.counted_peak_bytes)
        )?;
        match self.process_peak_bytes {
            Some(bytes) => writeln!(f, ", the process took {}", output::bytes(bytes))?,
            None => writeln!(f)?,
        }
        writeln!(f, "\n{}", self.drawn)?;
        for used in &self.utilisation {
            write!(f, "{used}")?;
        }
        write!(f, "\n{}", self.savings)
    }
}
