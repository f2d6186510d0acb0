//! A server on a free port and a socket of its own, and ways to hold its jobs where
//! a test wants them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cuzk_budget::{Consumer, Reservation};
use cuzk_core::config::Preload;
use cuzk_core::{Config, Engine};
use cuzk_daemon::client::Client;
use cuzk_daemon::serve::{self, Ended, Listeners, ShutdownHandle};
use cuzk_daemon::wire::{AwaitProofResponse, await_proof_response::Status};
use cuzk_daemon::{ClientError, ServeError};
use cuzk_filecoin::fixture::{FixtureOptions, generate};
use cuzk_filecoin::{ProofKind, Request, SectorSize};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tonic::Code;

/// Longer than anything here takes; a test that waits for it has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A running server.
pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) address: String,
    pub(crate) socket: PathBuf,
    pub(crate) metrics: SocketAddr,
    pub(crate) shutdown: ShutdownHandle,
    pub(crate) ended: JoinHandle<Result<Ended, ServeError>>,
    _directory: TempDir,
}

impl Server {
    /// Starts a server with the WindowPoSt test key, after `change`.
    pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let engine = |config: &Config| Engine::from_config(config).expect("an engine");
        Self::start_on(change, engine).await
    }

    /// Starts it on an engine that is made otherwise.
    pub(crate) async fn start_on(
        change: impl FnOnce(&mut Config),
        engine: impl FnOnce(&Config) -> Engine,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("cuzk.sock");
        let mut config = Config::new(keys().to_owned());
        config.allow_test_params = true;
        config.memory_limit = cuzk_budget::LimitRule::Bytes(4 << 30);
        config.serve.listen = Some("127.0.0.1:0".parse().expect("an address"));
        config.serve.metrics_listen = config.serve.listen;
        config.serve.socket = Some(socket.clone());
        config.serve.preload = Preload::None;
        change(&mut config);

        let engine = Arc::new(engine(&config));
        let listeners = Listeners::bind(&config.serve).await.expect("listeners");
        let address = listeners.address().expect("an address").to_string();
        let metrics = listeners.metrics_address().expect("an address");
        let (shutdown, told) = serve::shutdown();
        let serving = Arc::clone(&engine);
        let ended =
            tokio::spawn(async move { serve::run(listeners, serving, &config, told).await });
        Self {
            engine,
            address,
            socket,
            metrics,
            shutdown,
            ended,
            _directory: directory,
        }
    }

    /// A new connection.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.address).await.expect("it listens")
    }

    /// A new connection over the socket.
    pub(crate) async fn socket_client(&self) -> Client {
        Client::connect_socket(&self.socket)
            .await
            .expect("it listens")
    }

    /// Takes all memory, also what is idle: until it is given back, jobs begin and
    /// come no further.
    pub(crate) fn take_memory(&self) -> Reservation {
        let usage = self.engine.budget().usage();
        let bytes = usage.free_bytes() + usage.idle_bytes;
        let taken = self.engine.budget().try_reserve(Consumer("test"), bytes);
        taken.expect("what nobody uses can be taken")
    }

    /// Waits until this many WindowPoSt jobs wait and run.
    pub(crate) async fn reaches(&self, pending: u32, in_progress: u32) {
        let mut client = self.client().await;
        within(async {
            loop {
                let status = client.status().await.expect("a status");
                let window = ProofKind::WindowPost.wire_name();
                let queue = status
                    .queues
                    .iter()
                    .find(|queue| queue.proof_kind == window);
                let queue = queue.expect("a queue for each kind");
                if (queue.pending, queue.in_progress) == (pending, in_progress) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// The metrics page, over HTTP.
    pub(crate) fn page(&self, path: &str) -> String {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(self.metrics).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: cuzk\r\nConnection: close\r\n\r\n"
        )
        .expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("it answers");
        page
    }
}

/// What `work` gives, within the deadline.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work)
        .await
        .expect("done before the deadline")
}

/// The directory with the WindowPoSt test key, made once a run.
pub(crate) fn keys() -> &'static Path {
    static KEYS: OnceLock<PathBuf> = OnceLock::new();
    KEYS.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("serve-keys");
        if directory.exists() {
            std::fs::remove_dir_all(&directory).expect("of an earlier run");
        }
        let out = directory.to_str().expect("text");
        let made = cuzk_daemon::run([
            "cuzk", "params", "generate", "--kind", "wpost", "--out", out,
        ]);
        assert_eq!(made, cuzk_daemon::Exit::Success);
        directory
    })
}

/// A WindowPoSt request; each seed has other bytes.
pub(crate) fn window(seed: u64) -> Request {
    window_of(seed, &FixtureOptions::default())
}

/// The same of another deadline.
pub(crate) fn window_of(seed: u64, options: &FixtureOptions) -> Request {
    let fixture = generate(ProofKind::WindowPost, SectorSize::KiB2, seed, options);
    let mut file = Vec::new();
    fixture
        .expect("a fixture")
        .write_json(&mut file)
        .expect("text");
    let mut request = Request::from_json(&file).expect("a request");
    request.request_id = format!("wpost-{seed}");
    request
}

/// The request of a really sealed sector.
pub(crate) fn real(kind: &str) -> Request {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuzk-filecoin/tests/data");
    let file = std::fs::read(data.join(format!("{kind}-2k.json"))).expect("a file");
    Request::from_json(&file).expect("a request")
}

/// The code and the message of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (Code, String) {
    match answer {
        Err(ClientError::Refused(status)) => (status.code(), status.message().to_owned()),
        other => panic!("not refused: {other:?}"),
    }
}

/// Asserts that a job ended with a proof.
pub(crate) fn assert_proof(answer: &AwaitProofResponse) {
    assert_eq!(
        answer.status(),
        Status::Completed,
        "{}",
        answer.error_message
    );
    assert_eq!(answer.proof.len(), 192);
}
