//! The eight methods. Whatever reads files, hashes or parses runs off the event
//! loop's threads; waiting for the engine costs a thread a job and no thread here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuzk_core::config::DevicePolicy;
use cuzk_core::{Blinding, DeviceState, Engine, JobOptions, ProveError, Workload};
use cuzk_filecoin::{FilecoinWorkload, Priority, Request as ProofRequest};
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status};

use super::answer::{self, whole};
use super::content::Content;
use super::intake::{Held, HeldByCall, Intake};
use super::jobs::{Claim, Job, Jobs};
use super::keys::Keys;
use super::{metrics, status};
use crate::output::escaped;
use crate::wire::await_proof_response::Status as End;
use crate::wire::proving_engine_server::ProvingEngine;
use crate::wire::{
    AwaitProofRequest, AwaitProofResponse, CancelProofRequest, CancelProofResponse,
    EvictSrsRequest, EvictSrsResponse, GetMetricsRequest, GetMetricsResponse, GetStatusRequest,
    GetStatusResponse, GpuStatus, PreloadSrsRequest, PreloadSrsResponse, ProveRequest,
    ProveResponse, QueueStatus, SubmitProofRequest, SubmitProofResponse, request_of,
};

/// Requests that are parsed and checked at the same time, urgent ones aside: a check
/// takes all cores for seconds where a proof is large.
const CHECKS_MAX: usize = 2;

/// What all methods share.
pub(super) struct State {
    pub(super) engine: Arc<Engine>,
    pub(super) jobs: Jobs,
    pub(super) keys: Keys,
    pub(super) intake: Intake,
    checks: Semaphore,
    /// Whether the engine has something left that proves, as of the last job's end or
    /// preload.
    in_service: watch::Sender<bool>,
    policy: DevicePolicy,
    started: Instant,
}

impl State {
    pub(super) fn new(
        engine: Arc<Engine>,
        jobs: Jobs,
        intake: Intake,
        policy: DevicePolicy,
    ) -> Self {
        Self {
            keys: Keys::new(Arc::clone(&engine)),
            engine,
            jobs,
            intake,
            checks: Semaphore::new(CHECKS_MAX),
            in_service: watch::Sender::new(true),
            policy,
            started: Instant::now(),
        }
    }

    /// Waits until nothing is left that proves.
    pub(super) async fn out_of_service(&self) {
        // The sender lives as long as this does.
        let _ = self.in_service.subscribe().wait_for(|is| !is).await;
    }

    /// Notes whether anything is left that proves, after devices were given something to
    /// do: that is how they are found lost.
    pub(super) fn note_service(&self) {
        self.in_service.send_replace(self.engine.is_in_service());
    }

    /// What makes proofs: devices, or the processor.
    pub(super) fn proves_on(&self) -> String {
        let devices = self.engine.devices().into_iter();
        let in_service = devices.filter(|state| state.lost.is_none());
        let named = in_service.map(|state| {
            let device = state.device;
            format!("device {} ({})", device.ordinal, device.name)
        });
        match named.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() && self.engine.devices().is_empty() => {
                "the processor".to_owned()
            }
            none if none.is_empty() => "nothing: every device is out of service".to_owned(),
            some => some,
        }
    }

    /// The metrics page.
    pub(super) fn metrics(&self) -> String {
        metrics::text(
            &self.engine,
            &self.jobs,
            &self.intake,
            self.started.elapsed(),
        )
    }

    fn status(&self) -> GetStatusResponse {
        // An engine without devices has no memory for them either, and knows why.
        let no_device = self.engine.memory().page_locked_problem();
        let no_device = no_device.filter(|_| self.engine.devices().is_empty());
        let queues = self
            .jobs
            .load()
            .into_iter()
            .map(|(kind, load)| QueueStatus {
                proof_kind: kind.to_string(),
                pending: whole(load.pending),
                in_progress: whole(load.running),
            });
        GetStatusResponse {
            gpus: {
                // One that gets no part any more is none to send work for.
                let devices = self.engine.devices().into_iter();
                let in_service = devices.filter(|state| state.lost.is_none());
                in_service.map(gpu_status).collect()
            },
            loaded_srs: self.keys.list(),
            queues: queues.collect(),
            total_proofs_completed: self.engine.metrics().jobs_completed.count(),
            total_proofs_failed: self.engine.metrics().jobs_failed.count(),
            uptime_seconds: self.started.elapsed().as_secs(),
            pinned_memory_bytes: self.engine.memory().page_locked_bytes(),
            pinned_memory_limit_bytes: self.engine.memory().page_locked_limit_bytes(),
            device_policy: self.policy.to_string(),
            no_device_reason: no_device.unwrap_or_default().to_owned(),
            memory_waits: {
                let waits = self.engine.memory_waits().into_iter();
                waits.map(|wait| wait.to_string()).collect()
            },
        }
    }

    /// Takes a request; the job it is. What the request holds is held until a new job
    /// has ended, and given back at once where the job is known already.
    async fn submit(
        self: &Arc<Self>,
        message: SubmitProofRequest,
        held: Option<Held>,
    ) -> Result<Arc<Job>, Status> {
        let request = request_of(message).map_err(|error| status::invalid(&error))?;
        let (request, content) = off_loop(move || {
            let content = Content::of(&request);
            (request, content)
        })
        .await?;
        let name = request.request_id.clone();
        let claimed = self.jobs.claim(
            name,
            content,
            request.proof_kind,
            request.priority,
            Instant::now(),
        )?;
        let job = match claimed {
            Claim::Same(job) => {
                drop((request, held));
                job
            }
            Claim::New(job) => {
                // On its own, so that it ends well if this client goes away.
                let (state, mine) = (Arc::clone(self), Arc::clone(&job));
                tokio::spawn(async move { state.admit(mine, request, held).await });
                job
            }
        };
        job.admitted().await?;
        Ok(job)
    }

    /// Checks a request and hands it to the engine.
    async fn admit(self: Arc<Self>, job: Arc<Job>, request: ProofRequest, held: Option<Held>) {
        let permit = tokio::select! {
            biased;
            // At once, or as soon as somebody asks for it as an urgent one.
            () = job.has_priority(Priority::High) => None,
            // The semaphore is never closed.
            permit = self.checks.acquire() => permit.ok(),
        };
        let engine = Arc::clone(&self.engine);
        let checked = off_loop(move || check(&engine, &request)).await;
        drop(permit);
        let started = checked
            .and_then(|checked| checked)
            .and_then(|workload| self.start(&job, workload, held));
        if let Err(why) = started {
            self.jobs.refuse(&job, why);
        }
    }

    /// Hands a job to the engine, with a thread that waits for its end.
    fn start(
        self: &Arc<Self>,
        job: &Arc<Job>,
        workload: FilecoinWorkload,
        held: Option<Held>,
    ) -> Result<(), Status> {
        if job.is_cancelled() {
            return Err(status::draining());
        }
        let label = workload.label();
        let priority = job.priority();
        let options = JobOptions {
            priority,
            blinding: Blinding::Fresh,
        };
        let handle = self
            .engine
            .submit(Arc::new(workload), options)
            .map_err(|error| {
                // It may have stopped by itself.
                self.note_service();
                status::refused(&error)
            })?;
        let (canceller, raiser) = (handle.canceller(), handle.raiser());
        let timeline = handle.timeline().clone();
        let (state, mine) = (Arc::clone(self), Arc::clone(job));
        // The job is known before its end can be.
        let (known, begin) = std::sync::mpsc::sync_channel(1);
        let waits = std::thread::Builder::new()
            .name("cuzk-wait".to_owned())
            .spawn(move || {
                if begin.recv().is_err() {
                    return;
                }
                let result = handle.wait();
                // Whoever hears of the end finds room for the next request.
                drop(held);
                let ended = Instant::now();
                let total = ended.saturating_duration_since(mine.accepted);
                let error = result
                    .as_ref()
                    .err()
                    .map(|error| escaped(&error.to_string()));
                let was_cancelled = matches!(result, Err(ProveError::Cancelled));
                let answer = answer::answer(&mine, handle.timeline(), result, total);
                tell(&label, &answer, error.filter(|_| !was_cancelled));
                state.note_service();
                state.jobs.finish(&mine, answer, ended);
            });
        if waits.is_err() {
            canceller.cancel();
            return Err(Status::resource_exhausted("no thread can be started"));
        }
        let give_up = move || canceller.cancel();
        let raise = move |priority| raiser.raise(priority);
        self.jobs.admit(job, priority, give_up, raise, timeline);
        // The thread waits for exactly this.
        let _ = known.send(());
        Ok(())
    }

    /// The end of a job, or that the wait for it ended.
    async fn await_job(&self, job: &Job, timeout_ms: u64) -> Result<AwaitProofResponse, Status> {
        if timeout_ms == 0 {
            return Ok(job.ended().await?.as_ref().clone());
        }
        let wait_max = Duration::from_millis(timeout_ms);
        match tokio::time::timeout(wait_max, job.ended()).await {
            Ok(end) => Ok(end?.as_ref().clone()),
            Err(_) => Ok(answer::timed_out(job)),
        }
    }
}

/// A device as the wire has it. What runs on it at this moment is not told: parts of
/// several jobs may be on their way.
fn gpu_status(state: DeviceState) -> GpuStatus {
    let device = state.device;
    GpuStatus {
        ordinal: u32::try_from(device.ordinal).unwrap_or(u32::MAX),
        name: device.name,
        vram_total_bytes: device.limit_bytes,
        vram_free_bytes: device.limit_bytes.saturating_sub(device.held_bytes),
        current_job_id: String::new(),
        current_proof_kind: String::new(),
    }
}

/// Everything that can be told before a proof is begun.
fn check(engine: &Engine, request: &ProofRequest) -> Result<FilecoinWorkload, Status> {
    let workload = request
        .workload()
        .map_err(|error| status::invalid(&error))?;
    engine
        .check(workload.circuit().as_ref())
        .map_err(|error| status::refused(&error))?;
    workload
        .check_vanilla()
        .map_err(|error| status::invalid(&error))?;
    Ok(workload)
}

/// One line of the log a job, with the names that answers have.
fn tell(label: &str, answer: &AwaitProofResponse, error: Option<String>) {
    let AwaitProofResponse {
        job_id: job,
        backend,
        tier,
        placement,
        is_pinned,
        synthesis,
        retries,
        queue_wait_ms,
        srs_load_ms,
        synthesis_ms,
        gpu_compute_ms,
        total_ms,
        ..
    } = answer;
    match (error, answer.status()) {
        (Some(error), _) => tracing::warn!(job, label, error, total_ms, "no proof"),
        (None, End::Cancelled) => tracing::info!(job, label, total_ms, "given up"),
        (None, _) => tracing::info!(
            job,
            label,
            backend,
            tier,
            placement,
            is_pinned,
            synthesis,
            retries,
            queue_wait_ms,
            srs_load_ms,
            synthesis_ms,
            gpu_compute_ms,
            total_ms,
            "proof made"
        ),
    }
}

/// What the gate counted for a call.
fn held_by<T>(request: &Request<T>) -> Option<Held> {
    request.extensions().get::<HeldByCall>()?.take()
}

/// Runs work that blocks or takes long on a thread for such work.
async fn off_loop<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a request's work panicked");
        status::internal("the work for this request panicked")
    })
}

/// The methods of one server, for any number of transports.
#[derive(Clone)]
pub(super) struct Service(pub(super) Arc<State>);

#[tonic::async_trait]
impl ProvingEngine for Service {
    async fn submit_proof(
        &self,
        request: Request<SubmitProofRequest>,
    ) -> Result<Response<SubmitProofResponse>, Status> {
        let held = held_by(&request);
        let job = self.0.submit(request.into_inner(), held).await?;
        Ok(Response::new(SubmitProofResponse {
            job_id: job.id.clone(),
            queue_position: whole(job.position),
            assigned_gpu: String::new(),
        }))
    }

    async fn await_proof(
        &self,
        request: Request<AwaitProofRequest>,
    ) -> Result<Response<AwaitProofResponse>, Status> {
        let AwaitProofRequest { job_id, timeout_ms } = request.into_inner();
        let job = self.0.jobs.job(&job_id, Instant::now())?;
        Ok(Response::new(self.0.await_job(&job, timeout_ms).await?))
    }

    async fn prove(
        &self,
        request: Request<ProveRequest>,
    ) -> Result<Response<ProveResponse>, Status> {
        let held = held_by(&request);
        let submit = request.into_inner().submit;
        let submit = submit.ok_or_else(|| Status::invalid_argument("submit: missing"))?;
        let job = self.0.submit(submit, held).await?;
        let result = self.0.await_job(&job, 0).await?;
        Ok(Response::new(ProveResponse {
            result: Some(result),
        }))
    }

    async fn cancel_proof(
        &self,
        request: Request<CancelProofRequest>,
    ) -> Result<Response<CancelProofResponse>, Status> {
        let job_id = request.into_inner().job_id;
        let was_running = self.0.jobs.cancel(&job_id, Instant::now())?;
        Ok(Response::new(CancelProofResponse { was_running }))
    }

    async fn get_status(
        &self,
        _request: Request<GetStatusRequest>,
    ) -> Result<Response<GetStatusResponse>, Status> {
        let state = Arc::clone(&self.0);
        Ok(Response::new(off_loop(move || state.status()).await?))
    }

    async fn get_metrics(
        &self,
        _request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        Ok(Response::new(GetMetricsResponse {
            prometheus_text: self.0.metrics(),
        }))
    }

    async fn preload_srs(
        &self,
        request: Request<PreloadSrsRequest>,
    ) -> Result<Response<PreloadSrsResponse>, Status> {
        let (state, id) = (Arc::clone(&self.0), request.into_inner().circuit_id);
        let preload = move || {
            let preloaded = state.keys.preload(&id);
            state.note_service();
            preloaded
        };
        off_loop(preload).await?.map(Response::new)
    }

    async fn evict_srs(
        &self,
        request: Request<EvictSrsRequest>,
    ) -> Result<Response<EvictSrsResponse>, Status> {
        let (state, id) = (Arc::clone(&self.0), request.into_inner().circuit_id);
        off_loop(move || state.keys.evict(&id))
            .await?
            .map(Response::new)
    }
}
