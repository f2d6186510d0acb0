//! How the program ends.

use std::fmt;
use std::process::ExitCode;

use cuzk_core::config::ConfigError;
use cuzk_core::keygen::KeygenError;
use cuzk_core::{KeyError, ProveError, StartError, WorkloadError};
use tonic::Code;

use crate::error::{ClientError, ServeError};

/// Exit codes, by what the caller can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Success = 0,
    /// A fault of the program or the machine.
    Failure = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The request, the witness or an input file is wrong.
    Input = 3,
    /// A key is missing or cannot be used.
    Key = 4,
    /// There is not enough memory, or the queue of a server is full.
    Memory = 5,
    /// The proof does not verify.
    Invalid = 6,
}

impl Exit {
    /// The codes, for `--help`.
    pub(crate) const HELP: &'static str = "\
Exit codes: 0 done, 1 a fault of the program or the machine, 2 wrong usage or configuration,
3 wrong request or input, 4 key missing or unusable, 5 not enough memory or a full queue, 6 proof not valid.";
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why the program ends without doing what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self {
            exit,
            message: message.to_string(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<WorkloadError> for Failure {
    fn from(error: WorkloadError) -> Self {
        Self::new(Exit::Input, error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Usage, error)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::new(Exit::Key, error)
    }
}

impl From<KeygenError> for Failure {
    fn from(error: KeygenError) -> Self {
        let exit = match error {
            KeygenError::RealKeys { .. } | KeygenError::Key(_) => Exit::Key,
            _ => Exit::Failure,
        };
        Self::new(exit, error)
    }
}

impl From<ProveError> for Failure {
    fn from(error: ProveError) -> Self {
        let exit = match error {
            ProveError::Request(_)
            | ProveError::TooManyParts { .. }
            | ProveError::Unsatisfied { .. }
            | ProveError::Synthesis { .. }
            | ProveError::InvalidWhole => Exit::Input,
            ProveError::MissingKey { .. }
            | ProveError::TestKey { .. }
            | ProveError::Sidecar { .. }
            | ProveError::Key(_) => Exit::Key,
            ProveError::Memory { .. }
            | ProveError::TooLarge { .. }
            | ProveError::Allocation { .. }
            | ProveError::PageLocked { .. }
            | ProveError::Placement { .. } => Exit::Memory,
            _ => Exit::Failure,
        };
        Self::new(exit, error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let exit = match error {
            StartError::Twin(_) => Exit::Usage,
            StartError::Limit(_) | StartError::Engine(ProveError::Placement { .. }) => Exit::Memory,
            _ => Exit::Failure,
        };
        Self::new(exit, error)
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let exit = match error {
            ServeError::Nowhere
            | ServeError::Warm(_)
            | ServeError::Address { .. }
            | ServeError::Socket { .. }
            | ServeError::SocketInUse { .. }
            | ServeError::NotASocket { .. } => Exit::Usage,
            _ => Exit::Failure,
        };
        Self::new(exit, error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Address(_) => Exit::Usage,
            ClientError::Refused(status) => match status.code() {
                Code::InvalidArgument | Code::OutOfRange | Code::NotFound | Code::AlreadyExists => {
                    Exit::Input
                }
                Code::FailedPrecondition => Exit::Key,
                Code::ResourceExhausted => Exit::Memory,
                _ => Exit::Failure,
            },
            _ => Exit::Failure,
        };
        Self::new(exit, error)
    }
}
