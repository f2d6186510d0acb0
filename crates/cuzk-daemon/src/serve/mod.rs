//! The server: `cuzk.v1.ProvingEngine` over TCP and a unix socket, standard health
//! and reflection services, and the metrics page.
//!
//! [`run`] serves on listeners that are open already, so that tests use port 0. It
//! keeps jobs in memory only and speaks plain text only; both are told by where they
//! would be: [`Listeners`] is the one place that opens transports, and `jobs` the one
//! that knows jobs.
//!
//! The end comes in two steps: [`ShutdownHandle::drain`] makes the server not ready,
//! refuses new jobs and lets the others finish, [`ShutdownHandle::stop`] ends it now.

mod answer;
mod content;
mod durations;
mod gate;
mod intake;
mod jobs;
mod keys;
mod listen;
mod metrics;
mod page;
mod service;
mod shutdown;
mod status;

use std::sync::Arc;
use std::time::Duration;

use cuzk_core::Engine;
use cuzk_core::config::{Config, Preload, ServeConfig};
use cuzk_filecoin::FilecoinCircuit;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

pub use listen::Listeners;
pub use shutdown::{Shutdown, ShutdownHandle, shutdown};

use crate::error::ServeError;
use crate::output::MILESTONES;
use crate::wire::DESCRIPTORS;
use crate::wire::proving_engine_server::{ProvingEngineServer, SERVICE_NAME};
use gate::Gate;
use intake::Intake;
use jobs::{Jobs, Kept};
use service::{Service, State};

/// How long connections get to hear the last answers when all jobs have ended.
const GOODBYE_MAX: Duration = Duration::from_secs(5);
/// Calls that one connection may have open; waiting for a job is one.
const CALLS_PER_CONNECTION_MAX: u32 = 1024;
/// A silent connection is asked this often whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All jobs had finished.
    Drained,
    /// The time to drain was over, or the server was to end now.
    Cut {
        /// Jobs that had not finished.
        jobs: usize,
    },
}

/// Serves an engine until it is told to end.
///
/// # Errors
/// [`ServeError::Warm`], [`ServeError::Reflection`] and [`ServeError::Transport`].
pub async fn run(
    listeners: Listeners,
    engine: Arc<Engine>,
    config: &Config,
    mut shutdown: Shutdown,
) -> Result<Ended, ServeError> {
    let warm = keys::circuits(&config.serve.warm)?;
    let jobs = Jobs::new(
        config.jobs_max,
        Kept {
            count_max: config.serve.results_kept_max,
            age_max: config.serve.results_kept,
        },
    );
    let intake = Intake::new(config.serve.requests_bytes_max);
    let state = Arc::new(State::new(engine, jobs, intake, config.device_policy));
    let (health, router) = router(&config.serve, &state).await?;
    let (goodbye, leave) = watch::channel(false);
    let mut transports = transports(listeners, router, &state, &leave);

    let mut stop = shutdown.clone();
    let ended = tokio::select! {
        ended = live(&state, config, warm, &health, &mut shutdown) => ended,
        () = stop.stop() => Ended::Cut { jobs: state.jobs.live() },
        Some(fault) = transports.join_next() => return Err(fault_of(fault)),
    };
    if stop.is_stopping() {
        return Ok(ended);
    }
    // Whoever waits for this hears it.
    goodbye.send_replace(true);
    let left = async { while transports.join_next().await.is_some() {} };
    if tokio::time::timeout(GOODBYE_MAX, left).await.is_err() {
        tracing::debug!("some connections stayed open and were cut");
    }
    Ok(ended)
}

/// From the start to the last job.
async fn live(
    state: &Arc<State>,
    config: &Config,
    warm: Vec<FilecoinCircuit>,
    health: &HealthReporter,
    shutdown: &mut Shutdown,
) -> Ended {
    tokio::select! {
        () = shutdown.drain() => {}
        () = serve_until_told(state, config, warm, health) => {}
    }
    report(health, ServingStatus::NotServing).await;
    state.jobs.drain();
    tracing::info!(jobs = state.jobs.live(), "draining");
    let idle = tokio::time::timeout(config.serve.drain_max, state.jobs.idle()).await;
    match (idle, state.jobs.live()) {
        (Ok(()), _) | (_, 0) => Ended::Drained,
        (Err(_), jobs) => {
            tracing::warn!(jobs, "the time to drain is over");
            state.jobs.cancel_all();
            Ended::Cut { jobs }
        }
    }
}

/// Loads keys, allocates columns, reports ready for as long as anything proves, and never
/// returns.
async fn serve_until_told(
    state: &Arc<State>,
    config: &Config,
    warm: Vec<FilecoinCircuit>,
    health: &HealthReporter,
) {
    let loads = config.serve.preload == Preload::Present;
    let directory = config.params_directory.clone();
    let prepared = Arc::clone(state);
    let prepare = move || {
        if loads {
            prepared.keys.load_present();
            prepared.note_service();
        }
        prepared.keys.warm(&warm);
        prepared.keys.tell_usable(&directory)
    };
    let prepared = tokio::task::spawn_blocking(prepare).await;
    let circuits = prepared.unwrap_or_else(|error| {
        tracing::error!(%error, "preparing panicked");
        Vec::new()
    });
    report(health, ServingStatus::Serving).await;
    let circuits = match circuits.join(", ") {
        none if none.is_empty() => "none".to_owned(),
        some => some,
    };
    let on = state.proves_on();
    tracing::info!(target: MILESTONES, circuits, on, "ready");
    state.out_of_service().await;
    report(health, ServingStatus::NotServing).await;
    let reason = match state.engine.has_stopped() {
        true => "the engine has stopped by a panic",
        false => "every device is out of service",
    };
    tracing::error!("not ready any more: {reason}");
    std::future::pending().await
}

/// Tells health, of the server and of the service.
async fn report(health: &HealthReporter, status: ServingStatus) {
    health.set_service_status("", status).await;
    health.set_service_status(SERVICE_NAME, status).await;
}

/// The services, not ready yet.
async fn router(
    config: &ServeConfig,
    state: &Arc<State>,
) -> Result<(HealthReporter, Router), ServeError> {
    let (health, health_service) = health_reporter();
    report(&health, ServingStatus::NotServing).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let wrong = |error: tonic_reflection::server::Error| ServeError::Reflection(error.to_string());
    let proving = ProvingEngineServer::new(Service(Arc::clone(state)))
        .max_decoding_message_size(config.message_bytes_max);
    let proving = Gate::new(proving, state.intake.clone(), config.message_bytes_max);
    let router = Server::builder()
        .max_concurrent_streams(CALLS_PER_CONNECTION_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_adaptive_window(Some(true))
        .add_service(proving)
        .add_service(health_service)
        .add_service(reflection().build_v1().map_err(wrong)?)
        .add_service(reflection().build_v1alpha().map_err(wrong)?);
    Ok((health, router))
}

type Transport = Result<(), ServeError>;

/// Starts a task for each listener. Each ends when told to leave, after its open
/// calls.
fn transports(
    listeners: Listeners,
    router: Router,
    state: &Arc<State>,
    leave: &watch::Receiver<bool>,
) -> JoinSet<Transport> {
    let fault = |transport: &'static str| {
        move |error: &dyn std::fmt::Display| ServeError::Transport {
            transport,
            message: error.to_string(),
        }
    };
    let mut tasks = JoinSet::new();
    if let Some(listener) = listeners.tcp {
        let (router, leave) = (router.clone(), left(leave.clone()));
        tasks.spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            let served = router.serve_with_incoming_shutdown(incoming, leave).await;
            served.map_err(|error| fault("tcp")(&error))
        });
    }
    if let Some(socket) = listeners.socket {
        let leave = left(leave.clone());
        tasks.spawn(async move {
            let (listener, file) = socket.split();
            let incoming = UnixListenerStream::new(listener);
            let served = router.serve_with_incoming_shutdown(incoming, leave).await;
            // The file goes when nobody listens any more.
            drop(file);
            served.map_err(|error| fault("socket")(&error))
        });
    }
    if let Some(listener) = listeners.metrics {
        let (page, leave) = (page::router(Arc::clone(state)), left(leave.clone()));
        tasks.spawn(async move {
            let served = axum::serve(listener, page)
                .with_graceful_shutdown(leave)
                .await;
            served.map_err(|error| fault("metrics")(&error))
        });
    }
    tasks
}

/// Returns when it is time to leave.
async fn left(mut leave: watch::Receiver<bool>) {
    // If the sender is gone the server has ended.
    let _ = leave.wait_for(|leave| *leave).await;
}

/// A transport ended although nobody told it to.
fn fault_of(ended: Result<Transport, tokio::task::JoinError>) -> ServeError {
    let message = match ended {
        Ok(Err(error)) => return error,
        Ok(Ok(())) => "ended by itself".to_owned(),
        Err(error) => error.to_string(),
    };
    ServeError::Transport {
        transport: "transport",
        message,
    }
}
