//! Runs an engine: started, warmed up, and given all jobs of a round at once.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cuzk_core::{CircuitSpec, Config, Engine, JobHandle, JobOptions, ProofReply, Span, Workload};

use super::Options;
use super::figures::{Peak, Round, Ways};
use super::jobs::{Job, Jobs};

/// Callers that submit at the same time.
const SUBMITTERS: usize = 4;

/// How engines of a setting are started.
pub(super) struct Bench {
    pub(super) config: Config,
    /// Threads that synthesise.
    pub(super) threads: usize,
}

/// A batch of jobs that have ended.
struct Batch {
    wall_s: f64,
    replies: Vec<ProofReply>,
}

impl Bench {
    /// A round, by its number, on an engine of its own, which is warmed up before; its
    /// figures and its spans.
    pub(super) fn round(
        &self,
        jobs: &Jobs,
        options: &Options,
        round: usize,
    ) -> Result<(Round, Vec<Span>)> {
        let begin = Instant::now();
        let engine = Engine::from_config(&self.config)?;
        let circuits = jobs.circuits();
        for circuit in &circuits {
            engine.preload(circuit)?;
        }
        let circuits: Vec<&dyn CircuitSpec> = circuits.iter().map(|circuit| circuit as _).collect();
        engine.warm(&circuits)?;
        submit(
            &engine,
            &jobs.make(options.warm_up, &format!("warm-up {round}")),
        )?;
        let start_s = begin.elapsed().as_secs_f64();

        let series = format!("round {round}");
        let Batch { wall_s, replies } = submit(&engine, &jobs.make(options.jobs, &series))?;
        let recorded = engine.recorded();
        ensure!(
            recorded.dropped == 0,
            "{} spans were not kept: engine.spans_max",
            recorded.dropped
        );
        let labels: BTreeSet<String> = jobs
            .make(options.jobs, &series)
            .iter()
            .map(|job| job.workload.label())
            .collect();
        let is_ours = |span: &Span| {
            let job = span.job.as_ref();
            job.is_some_and(|job| labels.contains(&job.to_string()))
        };
        let mut spans = recorded.spans;
        spans.retain(is_ours);
        let mut round = Round::of(&spans, self.threads, wall_s, &replies)?;
        round.start_s = start_s;
        round.peak = peak(&engine);
        let device = engine.devices().into_iter().next();
        round.device = device.map(|state| state.device.name);
        round.ways = ways(&replies);
        Ok((round, spans))
    }
}

/// Submits all jobs at once and waits for the last.
fn submit(engine: &Engine, jobs: &[Job]) -> Result<Batch> {
    let begin = Instant::now();
    let replies: Vec<Result<Vec<ProofReply>>> = std::thread::scope(|scope| {
        let submitters: Vec<_> = (0..SUBMITTERS)
            .map(|first| {
                scope.spawn(move || {
                    let mine = jobs.iter().skip(first).step_by(SUBMITTERS);
                    let handles: Vec<(&Job, JobHandle)> = mine
                        .map(|job| {
                            let options = JobOptions {
                                priority: job.priority,
                                ..JobOptions::default()
                            };
                            let workload = job.workload.clone();
                            Ok((job, engine.submit(workload, options)?))
                        })
                        .collect::<Result<_>>()?;
                    let replies = handles.into_iter().map(|(job, handle)| {
                        let label = job.workload.label();
                        let reply = handle.wait().with_context(|| label.clone())?;
                        let bytes = job.workload.part_count() * cuzk_filecoin::PROOF_BYTES;
                        ensure!(reply.proof.len() == bytes, "{label}: no proof of each part");
                        Ok(reply)
                    });
                    replies.collect()
                })
            })
            .collect();
        let replies = submitters.into_iter().map(|thread| {
            let replies = thread.join().ok();
            replies.context("a submitter panicked")?
        });
        replies.collect()
    });
    let wall_s = begin.elapsed().as_secs_f64();
    let replies: Vec<Vec<ProofReply>> = replies.into_iter().collect::<Result<_>>()?;
    Ok(Batch {
        wall_s,
        replies: replies.into_iter().flatten().collect(),
    })
}

/// The most that each ledger held since the engine's start.
pub(crate) fn peak(engine: &Engine) -> Peak {
    let page_locked = engine.memory().page_locked_pool();
    let devices = engine.devices().into_iter();
    Peak {
        counted_bytes: engine.budget().usage().peak_bytes,
        page_locked_bytes: page_locked.map_or(0, |pool| pool.budget().usage().peak_bytes),
        device_bytes: devices.map(|state| state.device.held_bytes).sum(),
    }
}

/// What was really used, so that no fallback is silent.
pub(crate) fn ways(replies: &[ProofReply]) -> Ways {
    let words = |word: &dyn Fn(&ProofReply) -> String| {
        let words: BTreeSet<String> = replies.iter().map(word).collect();
        Vec::from_iter(words).join(", ")
    };
    Ways {
        backend: words(&|reply| reply.backend.to_owned()),
        placement: words(&|reply| reply.placement().to_owned()),
        synthesis: words(&ProofReply::synthesis),
        tier: words(&|reply| reply.tier.clone()),
        retries: replies.iter().map(ProofReply::retries).sum(),
    }
}
