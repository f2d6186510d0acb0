//! Everything that can go wrong in this crate.

use std::io;
use std::path::PathBuf;

use crate::key::Section;
use crate::watch::Intermediate;

/// A proof that a backend could not make.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The backend ended without completing the proof.
    #[error("the backend ended without completing the proof")]
    Lost,
    /// The columns, inputs, shape and key of a request do not fit together.
    #[error("{what}: have {have}, want {want}")]
    Mismatch {
        /// What was compared.
        what: &'static str,
        /// What the request holds.
        have: usize,
        /// What the circuit's shape asks for.
        want: usize,
    },
    /// The key could not be read when its points were needed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The backend's threads could not be started.
    #[error("could not start {what}: {reason}")]
    Start {
        /// What was refused.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
    /// As many proofs wait already as may.
    #[error("the backend's queue is full: {limit} proofs wait")]
    QueueFull {
        /// Most proofs that may wait.
        limit: usize,
    },
    /// A call of a device or its driver failed.
    #[error("device: {call}: {reason}")]
    Device {
        /// What was called.
        call: &'static str,
        /// What it said.
        reason: String,
    },
    /// A device failed before in a way after which it does nothing more.
    #[error("device {ordinal} failed earlier and is out of service until the process starts anew")]
    DeviceLost {
        /// Its number.
        ordinal: usize,
    },
    /// A device has too little memory left.
    #[error("device memory for {what}: asked {asked} bytes, {free} are free, the limit is {limit}")]
    DeviceMemory {
        /// What it was for.
        what: &'static str,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that were free.
        free: u64,
        /// Most bytes that may be held.
        limit: u64,
    },
    /// Values that are no scalars: not below the group's order.
    #[error("{count} values in {what} are not reduced scalars")]
    Unreduced {
        /// Where they are.
        what: &'static str,
        /// How many there are.
        count: u32,
    },
    /// Two backends that made the same proof do not agree.
    #[error("{first} and {second} disagree, first on {}", differing(*at))]
    Disagreement {
        /// Name of the one.
        first: &'static str,
        /// Name of the other.
        second: &'static str,
        /// The first of the steps of which they computed different values; `None` if
        /// all are the same and the proofs are not.
        at: Option<Intermediate>,
    },
    /// The arithmetic panicked; the process goes on.
    #[error("the prover panicked: {0}")]
    Panic(String),
}

impl BackendError {
    /// Whether the same request would end the same way again, on any device.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Mismatch { .. }
            | Self::Key(KeyError::Changed { .. } | KeyError::Rewritten { .. }) => true,
            Self::Lost
            | Self::Key(_)
            | Self::DeviceMemory { .. }
            | Self::Start { .. }
            | Self::QueueFull { .. }
            | Self::Device { .. }
            | Self::DeviceLost { .. }
            | Self::Unreduced { .. }
            | Self::Disagreement { .. }
            | Self::Panic(_) => false,
        }
    }
}

/// Names what two backends disagree on.
fn differing(at: Option<Intermediate>) -> String {
    at.map_or_else(|| "the proof".to_owned(), |at| at.to_string())
}

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file could not be opened, read or written.
    #[error("key file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file holds text: a web page or a pointer to the key, not the key.
    #[error("key file {} is not a key: it is text that begins {start:?}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// How the text begins.
        start: String,
    },
    /// The file ends inside a section.
    #[error("key file {}: section {section} at offset {offset} needs {need} bytes, the file has {have} left", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The section that is cut.
        section: Section,
        /// Where the section begins.
        offset: u64,
        /// Bytes the section's count asks for.
        need: u64,
        /// Bytes there are.
        have: u64,
    },
    /// Bytes follow the last section.
    #[error("key file {}: {extra} bytes after the last section, which ends at offset {offset}", path.display())]
    Trailing {
        /// The file.
        path: PathBuf,
        /// Where the last section ends.
        offset: u64,
        /// Bytes after it.
        extra: u64,
    },
    /// A point is not one: bad encoding, not on the curve, or not in the subgroup.
    #[error("key file {}: section {section}, point {index} at offset {offset}: {what}", path.display())]
    Point {
        /// The file.
        path: PathBuf,
        /// The section.
        section: Section,
        /// Index of the point in its section.
        index: u64,
        /// Where it is in the file.
        offset: u64,
        /// What is wrong with it.
        what: PointFault,
    },
    /// The file is no longer as long as it was when it was opened.
    #[error("key file {} changed while in use: it had {want} bytes when opened, it has {have} now", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Bytes it has now.
        have: u64,
        /// Bytes it had when it was opened.
        want: u64,
    },
    /// The file was written to since it was opened, and is as long as before.
    #[error("key file {} changed while in use: it was written to since it was opened", path.display())]
    Rewritten {
        /// The file.
        path: PathBuf,
    },
    /// The key belongs to another circuit.
    #[error("key file {} does not belong to this circuit: section {section} has {have} points, the circuit wants {want}", path.display())]
    OtherCircuit {
        /// The file.
        path: PathBuf,
        /// The first section that disagrees.
        section: Section,
        /// Points in the file.
        have: u64,
        /// Points the circuit wants.
        want: u64,
    },
    /// The file's digest is not the published one.
    #[error("key file {}: digest {have}, the published one is {want}", path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// Digest of the file.
        have: String,
        /// Digest that `parameters.json` lists.
        want: String,
    },
    /// A section to be written has more points than the format can count.
    #[error("key file {}: section {section} would have {have} points, the format counts up to {limit}", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// The section.
        section: Section,
        /// Points to be written.
        have: u64,
        /// The most a section can hold.
        limit: u64,
    },
    /// There already is a file, and keys are never overwritten.
    #[error("{} already exists; keys are never overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// What is wrong with an encoded point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointFault {
    /// Flag bits or a coordinate that is not a field element.
    #[error("bad encoding")]
    Encoding,
    /// The coordinates do not satisfy the curve equation.
    #[error("not on the curve")]
    NotOnCurve,
    /// On the curve, outside the prime-order subgroup.
    #[error("not in the prime-order subgroup")]
    NotInSubgroup,
    /// The point at infinity, which no section may hold.
    #[error("point at infinity")]
    Infinity,
}
