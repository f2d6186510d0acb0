//! The seam between the engine and the arithmetic.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use bellperson::groth16::Proof;
use blstrs::{Bls12, Scalar};

use crate::column::{CColumn, ColumnLayout, Columns};
use crate::error::BackendError;
use crate::key::{Key, KeyTier};
use crate::phase::Phase;
use crate::shape::{CircuitShape, CircuitSizes};
use crate::watch::Watch;

/// One circuit instance to be proved.
#[derive(Debug)]
pub struct ProveRequest {
    /// The columns, in the lengths of the backend's [`layout`](Backend::layout), and the
    /// third as its [`CColumn`] says.
    pub columns: Columns,
    /// Public inputs, the constant one first, which a [`Verifier`](crate::Verifier) does
    /// not want.
    pub inputs: Vec<Scalar>,
    /// Sizes and densities of the circuit.
    pub shape: Arc<CircuitShape>,
    /// The proving key. Its section counts were compared with the shape.
    pub key: Arc<Key>,
    /// Groth16's blinding scalars. The same `r` and `s` give the same bytes on
    /// every backend.
    pub r: Scalar,
    /// See `r`.
    pub s: Scalar,
    /// Who is shown the intermediates; it costs nothing where there is nobody.
    pub watch: Option<Arc<dyn Watch>>,
}

/// A proof and how it came to be.
#[derive(Clone, Debug)]
pub struct Proved {
    /// The proof, not yet verified.
    pub proof: Proof<Bls12>,
    /// Where the time went, in the order in which the phases began.
    pub phases: Vec<Phase>,
    /// Where the key's points were, for a backend that keeps them itself.
    pub tier: Option<KeyTier>,
}

/// How columns get to the memory that a backend computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// It reads them where they lie, in host memory.
    None,
    /// It copies them from where they lie: at full speed only from page-locked
    /// memory.
    FromColumns,
    /// As `FromColumns`, but what is not page-locked goes through page-locked
    /// chunks that the backend has for it.
    Staged,
}

/// A device that a backend works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// Its number among the visible ones.
    pub ordinal: usize,
    /// The driver's name for it.
    pub name: String,
    /// Bytes of it that the backend took at its start.
    pub limit_bytes: u64,
    /// Bytes of these that are in use.
    pub held_bytes: u64,
}

/// Groth16 arithmetic on some device. Every backend of this crate passes the same tests, and
/// another one must do the same:
///
/// - **The proof** has the bytes of bellperson's for the same circuit, key, `r` and `s`. An
///   unsatisfied witness is no error here: its proof does not verify.
/// - **Columns** come back whatever becomes of the proof, also where it is refused, and before
///   [`done`](Pending::done) answers. Only a backend that was lost, or that panicked while it
///   still reads them, may keep them from coming: then [`Pending::columns_read`] gives `None`.
///   It calls [`Completion::columns_read`] at most once, and when nothing reads them any more.
/// - **Parts that do not fit** are [`BackendError::Mismatch`] with what is there and what is
///   wanted: lengths of columns, inputs and densities, and the key's points in each section.
/// - **The queue** has a limit, given at the start: while a proof is computed, so many may wait
///   behind it. One more is [`BackendError::QueueFull`] at once; `submit` never waits.
/// - **A failure** ends its own proof: the next one is as good as if it had not been, unless
///   the backend [`is_lost`](Self::is_lost).
/// - **Dropping** the backend finishes what was submitted; dropping a [`Pending`] waits for its
///   columns alone.
/// - **A watch** is shown every [`Intermediate`](crate::Intermediate) in their order, each in
///   pieces that are not empty, from its start to its end; every backend shows the same bytes.
///   The proof goes on with what the watch leaves.
pub trait Backend: Send + Sync {
    /// Short name, as replies and metrics show it (`cpu`).
    fn name(&self) -> &'static str;

    /// The device, for a backend that works on one.
    fn device(&self) -> Option<DeviceUse> {
        None
    }

    /// Whether it has failed in a way after which it refuses everything.
    fn is_lost(&self) -> bool {
        false
    }

    /// Whether it keeps the points of keys itself, so that nobody needs to keep them in
    /// host memory for it.
    fn keeps_keys(&self) -> bool {
        false
    }

    /// Proofs that it works on at the same time: while one is computed, the columns of
    /// the next are read.
    fn slots(&self) -> usize {
        1
    }

    /// What a proof takes of a device's memory, a line of text for each consumer with its
    /// bytes; `None` for a backend that plans none.
    fn plan(&self, _shape: &CircuitShape, _key: &Key) -> Option<String> {
        None
    }

    /// What this backend's third column is for, whatever the circuit.
    fn c_column(&self) -> CColumn;

    /// The columns this backend wants for a circuit.
    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout;

    /// How columns get from host memory to where this backend computes.
    fn upload(&self) -> Upload {
        Upload::None
    }

    /// Bytes of host memory one proof takes at its peak beside its columns.
    /// `tier` says where the points of the key are then.
    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64;

    /// Whether a proof of a circuit of these sizes with this key can be made here at all,
    /// told from counts alone: before anything is synthesised for it. Asks no device.
    ///
    /// # Errors
    /// What [`submit`](Self::submit) would end with, whatever else is under way:
    /// [`BackendError::DeviceMemory`], or [`BackendError::Mismatch`] for more constraints
    /// than any device transforms.
    fn check(&self, sizes: &CircuitSizes, key: &Key) -> Result<(), BackendError> {
        let _ = (sizes, key);
        Ok(())
    }

    /// Brings a key to where proofs with it will have its points, if this backend keeps
    /// them itself and nothing has to go for it: whoever proves first then waits for none
    /// of it. Waits until it is there; returns where it is now.
    ///
    /// # Errors
    /// What a proof with the key would end with: [`BackendError::Key`] for a point that is
    /// none, [`BackendError::DeviceMemory`], and what the device says.
    fn preload(&self, key: &Arc<Key>) -> Result<KeyTier, BackendError> {
        let _ = key;
        Ok(KeyTier::File)
    }

    /// Brings what stays of a circuit beside its key to where proofs of this shape will have
    /// it, if nothing has to go for it: no proof then waits for it. Waits until it is there.
    ///
    /// # Errors
    /// What the device says.
    fn preload_shape(&self, shape: &Arc<CircuitShape>) -> Result<(), BackendError> {
        let _ = shape;
        Ok(())
    }

    /// Starts a proof and returns at once. The backend owns the columns until
    /// [`Pending::columns_read`] gives them back: as they were, if it copies them
    /// elsewhere ([`upload`](Self::upload)), and otherwise with anything in them.
    fn submit(&self, request: ProveRequest) -> Pending;
}

/// A proof under way. It completes twice: when the columns are free again, and
/// when the proof is there. Dropping it waits for the columns, so that memory a
/// device may still read is never handed to somebody else.
pub struct Pending {
    columns: Option<Receiver<Columns>>,
    done: Receiver<Result<Proved, BackendError>>,
}

/// The backend's end of a [`Pending`].
pub struct Completion {
    columns: SyncSender<Columns>,
    done: SyncSender<Result<Proved, BackendError>>,
}

/// Both ends of a proof under way.
pub fn pending() -> (Completion, Pending) {
    let (columns, columns_read) = sync_channel(1);
    let (done, finished) = sync_channel(1);
    (
        Completion { columns, done },
        Pending {
            columns: Some(columns_read),
            done: finished,
        },
    )
}

impl Completion {
    /// Gives the columns back: nothing reads them any more. At most once a proof, before
    /// [`done`](Self::done).
    pub fn columns_read(&self, columns: Columns) {
        // A dropped `Pending` has waited for its columns or never will: then they
        // are dropped here, which returns their buffers to the pool. So is what would be
        // given back a second time.
        let _ = self.columns.try_send(columns);
    }

    /// Completes the proof.
    pub fn done(self, result: Result<Proved, BackendError>) {
        let _ = self.done.send(result);
    }
}

impl Pending {
    /// Waits until the columns are free. `None` if the backend lost them with a
    /// failure (their buffers went back to the pool), or on a second call.
    pub fn columns_read(&mut self) -> Option<Columns> {
        self.columns.take()?.recv().ok()
    }

    /// Waits for the proof.
    ///
    /// # Errors
    /// What the backend met, or [`BackendError::Lost`] if it ended without a word.
    pub fn done(&mut self) -> Result<Proved, BackendError> {
        self.done.recv().unwrap_or(Err(BackendError::Lost))
    }

    /// Waits for the proof, `wait_max` at the longest; `None` if that passed.
    pub fn done_within(&mut self, wait_max: Duration) -> Option<Result<Proved, BackendError>> {
        match self.done.recv_timeout(wait_max) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(BackendError::Lost)),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        drop(self.columns_read());
    }
}
