//! Commands that ask a server: submit, await, cancel, status, preload, evict.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::args::{Args, AwaitArgs, CircuitIdArgs, JobArgs, ServerArgs, SubmitArgs};
use crate::client::Client;
use crate::error::{ClientError, ServeError};
use crate::exit::{Exit, Failure};
use crate::files;
use crate::output;
use crate::wire::await_proof_response::Status;
use crate::wire::srs_status::Tier;
use crate::wire::{AwaitProofResponse, GetStatusResponse};

/// Connects and asks, on an event loop of its own.
fn ask<T>(
    server: &ServerArgs,
    ask: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?;
    let answer = runtime.block_on(async {
        let mut client = match &server.socket {
            Some(path) => Client::connect_socket(path).await?,
            None => Client::connect(&server.address).await?,
        };
        ask(&mut client).await
    });
    Ok(answer?)
}

pub(super) fn submit(args: &Args, submit: &SubmitArgs) -> Result<(), Failure> {
    let request = super::request(&submit.request)?;
    let job = ask(&submit.server, async |client| client.submit(request).await)?;
    let submitted = Submitted {
        job_id: output::escaped(&job.job_id),
        queue_position: job.queue_position,
    };
    output::result(args.json, &submitted)
}

pub(super) fn wait(args: &Args, wait: &AwaitArgs) -> Result<(), Failure> {
    if let Some(path) = &wait.out {
        files::check_new(path)?;
    }
    let wait_max = wait.timeout_ms.map(Duration::from_millis);
    let job_id = wait.job.job_id.as_str();
    let answer = ask(&wait.job.server, async |client| {
        client.wait(job_id, wait_max).await
    })?;
    if answer.status() != Status::Completed {
        let end = answer.status().as_str_name().to_lowercase();
        let why = format!("{job_id}: {end}: {}", answer.error_message);
        return Err(Failure::new(Exit::Failure, why));
    }
    if let Some(path) = &wait.out {
        files::NewFile::create(path)?.finish_with(&answer.proof)?;
    }
    output::result(args.json, &Finished::from(answer))
}

pub(super) fn cancel(args: &Args, job: &JobArgs) -> Result<(), Failure> {
    let job_id = job.job_id.as_str();
    let was_running = ask(&job.server, async |client| client.cancel(job_id).await)?;
    output::result(args.json, &Cancelled { was_running })
}

pub(super) fn status(args: &Args, server: &ServerArgs) -> Result<(), Failure> {
    let status = ask(server, async |client| client.status().await)?;
    output::result(args.json, &ServerStatus::from(status))
}

pub(super) fn preload(args: &Args, circuit: &CircuitIdArgs) -> Result<(), Failure> {
    let id = circuit.circuit_id.as_str();
    let answer = ask(&circuit.server, async |client| client.preload(id).await)?;
    let preloaded = Preloaded {
        already_loaded: answer.already_loaded,
        load_time_ms: answer.load_time_ms,
    };
    output::result(args.json, &preloaded)
}

pub(super) fn evict(args: &Args, circuit: &CircuitIdArgs) -> Result<(), Failure> {
    let id = circuit.circuit_id.as_str();
    let answer = ask(&circuit.server, async |client| client.evict(id).await)?;
    let evicted = Evicted {
        was_loaded: answer.was_loaded,
        freed_bytes: answer.freed_bytes,
    };
    output::result(args.json, &evicted)
}

#[derive(Serialize)]
struct Submitted {
    job_id: String,
    queue_position: u32,
}

impl fmt::Display for Submitted {
    /// The id alone, for scripts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.job_id)
    }
}

#[derive(Serialize)]
struct Finished {
    job_id: String,
    proof_bytes: usize,
    queue_wait_ms: u64,
    srs_load_ms: u64,
    synthesis_ms: u64,
    gpu_compute_ms: u64,
    total_ms: u64,
    backend: String,
    tier: String,
    placement: String,
    is_pinned: bool,
    synthesis: String,
    retries: u32,
}

impl From<AwaitProofResponse> for Finished {
    fn from(answer: AwaitProofResponse) -> Self {
        Self {
            job_id: output::escaped(&answer.job_id),
            proof_bytes: answer.proof.len(),
            queue_wait_ms: answer.queue_wait_ms,
            srs_load_ms: answer.srs_load_ms,
            synthesis_ms: answer.synthesis_ms,
            gpu_compute_ms: answer.gpu_compute_ms,
            total_ms: answer.total_ms,
            backend: output::escaped(&answer.backend),
            tier: output::escaped(&answer.tier),
            placement: output::escaped(&answer.placement),
            is_pinned: answer.is_pinned,
            synthesis: output::escaped(&answer.synthesis),
            retries: answer.retries,
        }
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: proof of {} bytes", self.job_id, self.proof_bytes)?;
        writeln!(
            f,
            "backend {}, key tier {}, placement {}, is_pinned={}, synthesis {}, retries {}",
            self.backend, self.tier, self.placement, self.is_pinned, self.synthesis, self.retries
        )?;
        writeln!(
            f,
            "waited {} ms, key {} ms, synthesis {} ms, proving {} ms, in all {} ms",
            self.queue_wait_ms,
            self.srs_load_ms,
            self.synthesis_ms,
            self.gpu_compute_ms,
            self.total_ms
        )
    }
}

#[derive(Serialize)]
struct Cancelled {
    was_running: bool,
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "was running: {}", self.was_running)
    }
}

#[derive(Serialize)]
struct Preloaded {
    already_loaded: bool,
    load_time_ms: u64,
}

impl fmt::Display for Preloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.already_loaded {
            true => writeln!(f, "loaded already"),
            false => writeln!(f, "loaded in {} ms", self.load_time_ms),
        }
    }
}

#[derive(Serialize)]
struct Evicted {
    was_loaded: bool,
    freed_bytes: u64,
}

impl fmt::Display for Evicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.was_loaded {
            true => writeln!(f, "freed {}", output::bytes(self.freed_bytes)),
            false => writeln!(f, "was not loaded"),
        }
    }
}

#[derive(Serialize)]
struct KeyLine {
    circuit_id: String,
    tier: &'static str,
    size_bytes: u64,
    ref_count: u32,
}

#[derive(Serialize)]
struct QueueLine {
    proof_kind: String,
    pending: u32,
    in_progress: u32,
}

#[derive(Serialize)]
struct DeviceLine {
    index: u32,
    name: String,
    limit_bytes: u64,
    free_bytes: u64,
}

#[derive(Serialize)]
struct ServerStatus {
    uptime_seconds: u64,
    completed: u64,
    failed: u64,
    pinned_bytes: u64,
    pinned_limit_bytes: u64,
    device_policy: String,
    /// Those in service.
    devices: Vec<DeviceLine>,
    /// Why there are none.
    no_device_reason: String,
    /// What waits for memory.
    memory_waits: Vec<String>,
    queues: Vec<QueueLine>,
    keys: Vec<KeyLine>,
}

impl From<GetStatusResponse> for ServerStatus {
    fn from(status: GetStatusResponse) -> Self {
        let queues = status.queues.into_iter().map(|queue| QueueLine {
            proof_kind: output::escaped(&queue.proof_kind),
            pending: queue.pending,
            in_progress: queue.in_progress,
        });
        let devices = status.gpus.into_iter().map(|device| DeviceLine {
            index: device.ordinal,
            name: output::escaped(&device.name),
            limit_bytes: device.vram_total_bytes,
            free_bytes: device.vram_free_bytes,
        });
        let keys = status.loaded_srs.into_iter().map(|key| KeyLine {
            tier: match key.tier() {
                Tier::Hot => "hot",
                Tier::Warm => "warm",
                Tier::Cold => "cold",
            },
            circuit_id: output::escaped(&key.circuit_id),
            size_bytes: key.size_bytes,
            ref_count: key.ref_count,
        });
        Self {
            uptime_seconds: status.uptime_seconds,
            completed: status.total_proofs_completed,
            failed: status.total_proofs_failed,
            pinned_bytes: status.pinned_memory_bytes,
            pinned_limit_bytes: status.pinned_memory_limit_bytes,
            device_policy: output::escaped(&status.device_policy),
            devices: devices.collect(),
            no_device_reason: output::escaped(&status.no_device_reason),
            memory_waits: {
                let waits = status.memory_waits.iter();
                waits.map(|wait| output::escaped(wait)).collect()
            },
            queues: queues.collect(),
            keys: keys.collect(),
        }
    }
}

impl fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "up {} s, {} proofs made, {} failed",
            self.uptime_seconds, self.completed, self.failed
        )?;
        for device in &self.devices {
            writeln!(
                f,
                "device {}: {}, {} of {} free",
                device.index,
                device.name,
                output::bytes(device.free_bytes),
                output::bytes(device.limit_bytes)
            )?;
        }
        // Another server of the contract says nothing of it.
        if self.devices.is_empty() && !self.device_policy.is_empty() {
            let reason = match self.no_device_reason.as_str() {
                "" => "every device is out of service",
                reason => reason,
            };
            writeln!(
                f,
                "no device, device.policy is {}: {reason}",
                self.device_policy
            )?;
        }
        for queue in &self.queues {
            writeln!(
                f,
                "{:<22} {} waiting, {} running",
                queue.proof_kind, queue.pending, queue.in_progress
            )?;
        }
        for wait in &self.memory_waits {
            writeln!(f, "waits for memory: {wait}")?;
        }
        for key in &self.keys {
            writeln!(
                f,
                "key {:<13} {:<5} {:>10}, used by {}",
                key.circuit_id,
                key.tier,
                output::bytes(key.size_bytes),
                key.ref_count
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_memory_has_a_line() {
        let status = GetStatusResponse {
            memory_waits: vec!["a part\u{1b} of it".to_owned()],
            ..GetStatusResponse::default()
        };
        let shown = ServerStatus::from(status).to_string();
        let line = shown.lines().find(|line| line.starts_with("waits"));
        assert_eq!(
            line,
            Some("waits for memory: a part\\u{1b} of it"),
            "{shown}"
        );
    }
}
