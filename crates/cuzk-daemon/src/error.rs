//! Why serving or asking a server failed.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A server that could not be started, or ended by a fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration names no address and no socket.
    #[error("serve.listen and serve.socket are both empty: nothing to listen on")]
    Nowhere,
    /// An address cannot be listened on.
    #[error("{key} {address}: {source}")]
    Address {
        /// The configuration key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The socket cannot be made.
    #[error("serve.socket {}: {source}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody listens on the socket.
    #[error("serve.socket {}: another process listens on it", path.display())]
    SocketInUse {
        /// Its path.
        path: PathBuf,
    },
    /// There is a file where the socket should be.
    #[error("serve.socket {}: exists and is no socket; it is not replaced", path.display())]
    NotASocket {
        /// Its path.
        path: PathBuf,
    },
    /// A circuit that is to be warmed is none.
    #[error("serve.warm: {0}")]
    Warm(String),
    /// A signal cannot be waited for.
    #[error("signals: {0}")]
    Signal(io::Error),
    /// The event loop cannot be started.
    #[error("event loop: {0}")]
    Runtime(io::Error),
    /// The descriptors of the contract cannot be served.
    #[error("reflection: {0}")]
    Reflection(String),
    /// A transport failed.
    #[error("{transport}: {message}")]
    Transport {
        /// Which one (`tcp`, `socket`, `metrics`).
        transport: &'static str,
        /// What it said.
        message: String,
    },
}

/// A server that did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address is none.
    #[error("{0:?} is no address of a server")]
    Address(String),
    /// Nobody answers there.
    #[error(
        "{address}: no server answers: {} (is `cuzk serve` running there? --address or --socket \
         names another place)",
        innermost(source)
    )]
    Connect {
        /// The address.
        address: String,
        /// What the transport said.
        source: tonic::transport::Error,
    },
    /// The server refused.
    #[error("{}: {}", .0.code(), .0.message())]
    Refused(Box<tonic::Status>),
    /// The server's answer lacks a field.
    #[error("the answer has no {0}")]
    Incomplete(&'static str),
}

impl From<tonic::Status> for ClientError {
    fn from(status: tonic::Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// What lies at the bottom of a transport's error: above it is only where it passed.
fn innermost(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .last()
        .map_or_else(String::new, ToString::to_string)
}
