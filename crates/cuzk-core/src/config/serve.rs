//! What the server listens on and what it keeps.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::tuning::words;

/// The largest message that protobuf defines.
pub(super) const MESSAGE_BYTES_LIMIT: usize = i32::MAX as usize;

/// How the engine is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeConfig {
    /// Address for requests over TCP; there is no encryption.
    pub listen: Option<SocketAddr>,
    /// Unix socket for requests.
    pub socket: Option<PathBuf>,
    /// Permission bits of the socket.
    pub socket_mode: u32,
    /// Address of the metrics page.
    pub metrics_listen: Option<SocketAddr>,
    /// Which keys are loaded before the server reports ready.
    pub preload: Preload,
    /// Ids of the circuits whose columns are allocated before the server reports ready.
    pub warm: Vec<String>,
    /// The longest message that is read; a longer one is refused unread.
    pub message_bytes_max: usize,
    /// Bytes of all requests together that are being read, wait or run; one more
    /// request is refused.
    pub requests_bytes_max: u64,
    /// Proofs of finished jobs that are remembered, and as many jobs that failed or were
    /// cancelled: those make no proof go.
    pub results_kept_max: usize,
    /// How long a finished job is remembered; with none those who wait when it ends have its
    /// answer, and to those who ask later it is unknown.
    pub results_kept: Duration,
    /// How long running jobs get to finish when the server is told to end.
    pub drain_max: Duration,
}

impl ServeConfig {
    pub(super) fn new() -> Self {
        Self {
            listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9820))),
            socket: None,
            socket_mode: 0o660,
            metrics_listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9821))),
            preload: Preload::Present,
            warm: Vec::new(),
            message_bytes_max: 256 << 20,
            // As many PoReps of 32 GiB sectors (67 MB each) as there may be jobs.
            requests_bytes_max: 4 << 30,
            results_kept_max: 4096,
            results_kept: Duration::from_secs(24 * 3600),
            drain_max: Duration::from_secs(600),
        }
    }
}

/// Which keys are loaded before the server reports ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preload {
    /// Every key whose file is there.
    Present,
    /// None: the first proof of a circuit loads its key.
    None,
}

words!(Preload { Present = "present", None = "none" });
