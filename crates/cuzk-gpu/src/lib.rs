//! Groth16 arithmetic over BLS12-381: one [`Backend`] trait, a CPU backend that is
//! always there, key files and key generation.
#![deny(unsafe_op_in_unsafe_fn)]

mod backend;
mod column;
pub mod cpu;
mod error;
pub mod fixed_base;
pub mod key;
mod shape;
mod verify;

pub use backend::{Backend, Completion, Pending, PhaseTimes, ProveRequest, Proved, pending};
pub use column::{CColumn, Column, ColumnLayout, Columns};
pub use error::{BackendError, KeyError, PointFault};
pub use key::{Key, KeyChecks, KeyTier, KeyWriter, PointCheck, Section};
pub use shape::{Bitmap, CircuitShape, CircuitSizes};
pub use verify::verify;

/// Whether the curve arithmetic was compiled for processors with ADX. On any other
/// it ends the process with an illegal instruction, so a program asks first. The
/// `portable` feature turns it off.
pub const USES_ADX: bool = cfg!(cuzk_adx);
