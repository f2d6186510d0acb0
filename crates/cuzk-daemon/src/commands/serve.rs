//! `cuzk serve`: the server, until a signal ends it.

use std::fmt;
use std::sync::Arc;

use cuzk_core::config::Value;
use cuzk_core::{Config, Engine};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::draw::Drawings;
use crate::args::{Args, ServeArgs};
use crate::configuration;
use crate::error::ServeError;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::serve::{self, Ended, Listeners, ShutdownHandle};

/// Threads of the event loop: it only moves messages.
const LOOP_THREADS: usize = 2;

pub(super) fn run(args: &Args, serve: &ServeArgs) -> Result<(), Failure> {
    let text = |value: &String| Value::Text(value.clone());
    let overrides = [
        ("--listen", "serve.listen", &serve.listen),
        ("--socket", "serve.socket", &serve.socket),
        (
            "--metrics-listen",
            "serve.metrics_listen",
            &serve.metrics_listen,
        ),
    ]
    .into_iter()
    .filter_map(|(option, key, value)| Some((option, key.to_owned(), text(value.as_ref()?))))
    .collect();
    let loaded = configuration::load_with(args, Some(&serve.keys), overrides)?;
    let config = &loaded.config;
    let drawings = Drawings::begin(&serve.draw, None)?;
    let engine = Arc::new(Engine::from_config(config)?);
    configuration::warn_without_effect(&loaded, &engine);
    let runtime = Builder::new_multi_thread()
        .worker_threads(LOOP_THREADS)
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?;
    let ended = runtime.block_on(listen(args, config, &engine));
    // However it ended, what was done until then is told.
    let drawn = drawings.finish("cuzk serve", &engine.recorded());
    end(runtime, engine, ended?)?;
    drawn
}

async fn listen(args: &Args, config: &Config, engine: &Arc<Engine>) -> Result<Ended, Failure> {
    let (handle, shutdown) = serve::shutdown();
    // Before anything is said of the addresses, so that no signal is missed.
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let [terminate, interrupt] = signals.map(|signal| signal.map_err(ServeError::Signal));
    let listeners = Listeners::bind(&config.serve).await?;
    let listening = Listening {
        address: listeners.address().map(|address| address.to_string()),
        socket: config
            .serve
            .socket
            .as_ref()
            .map(|path| path.display().to_string()),
        metrics: listeners
            .metrics_address()
            .map(|address| address.to_string()),
    };
    output::result(args.json, &listening)?;
    tokio::spawn(obey(terminate?, interrupt?, handle));
    Ok(serve::run(listeners, Arc::clone(engine), config, shutdown).await?)
}

/// The first signal drains, the second one stops.
async fn obey(mut terminate: Signal, mut interrupt: Signal, handle: ShutdownHandle) {
    for tell in [ShutdownHandle::drain, ShutdownHandle::stop] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tell(&handle);
    }
}

fn end(runtime: Runtime, engine: Arc<Engine>, ended: Ended) -> Result<(), Failure> {
    runtime.shutdown_background();
    match ended {
        Ended::Drained => Ok(()),
        Ended::Cut { jobs: 0 } => Ok(()),
        Ended::Cut { jobs } => {
            // Dropping the engine would wait for the stages that run; the process
            // ends without them.
            std::mem::forget(engine);
            let why = format!("ended with {jobs} jobs unfinished");
            Err(Failure::new(Exit::Failure, why))
        }
    }
}

/// Where the server listens, ports as they were given.
#[derive(Serialize)]
struct Listening {
    address: Option<String>,
    socket: Option<String>,
    metrics: Option<String>,
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, place) in [("tcp", &self.address), ("socket", &self.socket)] {
            if let Some(place) = place {
                writeln!(f, "listening on {what} {place}")?;
            }
        }
        match &self.metrics {
            Some(address) => writeln!(f, "metrics on http://{address}/metrics"),
            None => Ok(()),
        }
    }
}
