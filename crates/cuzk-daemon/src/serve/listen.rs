//! Where the server listens. A socket gets its permissions before anybody can reach
//! it, and only a socket that nobody listens on is replaced.

use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cuzk_core::config::ServeConfig;
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::error::ServeError;

/// Open listeners, of which at least one takes requests.
pub struct Listeners {
    pub(super) tcp: Option<TcpListener>,
    pub(super) socket: Option<Socket>,
    pub(super) metrics: Option<TcpListener>,
}

/// A unix socket that is removed when it is dropped.
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    file: SocketFile,
}

impl Socket {
    pub(super) fn split(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// A socket's place in the file system.
pub(super) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may have taken the place in the meantime.
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|file| file.ino() == self.inode && file.file_type().is_socket());
        if ours {
            // Nothing depends on it: whoever binds here replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Listeners {
    /// Binds what the configuration names. Port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServeError::Nowhere`], [`ServeError::Address`], [`ServeError::Socket`],
    /// [`ServeError::SocketInUse`] and [`ServeError::NotASocket`].
    pub async fn bind(config: &ServeConfig) -> Result<Self, ServeError> {
        if config.listen.is_none() && config.socket.is_none() {
            return Err(ServeError::Nowhere);
        }
        let socket = match &config.socket {
            Some(path) => Some(bind_socket(path, config.socket_mode).await?),
            None => None,
        };
        Ok(Self {
            tcp: bind_tcp("serve.listen", config.listen).await?,
            socket,
            metrics: bind_tcp("serve.metrics_listen", config.metrics_listen).await?,
        })
    }

    /// The address for requests over TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }

    /// The address of the metrics page.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref()?.local_addr().ok()
    }
}

async fn bind_tcp(
    key: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, ServeError> {
    let Some(address) = address else {
        return Ok(None);
    };
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "{key} is reachable from elsewhere, without encryption");
    }
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(source) => Err(ServeError::Address {
            key,
            address,
            source,
        }),
    }
}

async fn bind_socket(path: &Path, mode: u32) -> Result<Socket, ServeError> {
    let at = |source| ServeError::Socket {
        path: path.to_owned(),
        source,
    };
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            let path = path.to_owned();
            return Err(ServeError::NotASocket { path });
        }
        // A dead server's socket refuses; a live one's connects.
        Ok(_) if UnixStream::connect(path).await.is_ok() => {
            let path = path.to_owned();
            return Err(ServeError::SocketInUse { path });
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(at(error)),
    }
    let directory = path
        .parent()
        .unwrap_or(Path::new(""))
        .join(format!(".{}", std::process::id()));
    DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .map_err(at)?;
    let bound = bind_within(&directory, path, mode);
    // It is empty now, or what is in it is of no use.
    let _ = std::fs::remove_dir_all(&directory);
    bound.map_err(at)
}

/// Binds in a directory that is ours alone and moves the socket to its place when it
/// has its permissions.
fn bind_within(directory: &Path, path: &Path, mode: u32) -> std::io::Result<Socket> {
    let private = directory.join("s");
    let listener = UnixListener::bind(&private)?;
    std::fs::set_permissions(&private, Permissions::from_mode(mode))?;
    let inode = std::fs::symlink_metadata(&private)?.ino();
    std::fs::rename(&private, path)?;
    let path = path.to_owned();
    Ok(Socket {
        listener,
        file: SocketFile { path, inode },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_this_thread<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime")
            .block_on(work)
    }

    #[test]
    fn a_socket_has_its_mode_and_goes_with_its_server() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("cuzk.sock");
        on_this_thread(async {
            let socket = bind_socket(&path, 0o660).await.expect("bound");
            let mode = std::fs::metadata(&path)
                .expect("there")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o660);
            let in_use = bind_socket(&path, 0o660).await.err().expect("in use");
            assert!(matches!(in_use, ServeError::SocketInUse { .. }), "{in_use}");
            drop(socket);
            assert!(!path.exists());
        });
        assert_eq!(
            std::fs::read_dir(directory.path())
                .expect("readable")
                .count(),
            0
        );
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_file_is_not() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("cuzk.sock");
        on_this_thread(async {
            drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
            assert!(path.exists());
            let socket = bind_socket(&path, 0o600).await.expect("replaced");
            // A socket that took the place of ours is not removed with ours.
            std::fs::remove_file(&path).expect("removable");
            std::fs::write(&path, "kept").expect("writable");
            drop(socket);
            let not_ours = bind_socket(&path, 0o600).await.err().expect("a file");
            assert!(
                matches!(not_ours, ServeError::NotASocket { .. }),
                "{not_ours}"
            );
            assert_eq!(std::fs::read(&path).expect("there"), b"kept");
        });
    }

    #[test]
    fn nowhere_to_listen_is_an_error() {
        let mut config = cuzk_core::Config::new("keys".into()).serve;
        config.listen = None;
        let nowhere = on_this_thread(Listeners::bind(&config)).err();
        assert!(matches!(nowhere, Some(ServeError::Nowhere)));
    }
}
