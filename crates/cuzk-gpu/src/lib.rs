//! Groth16 arithmetic over BLS12-381: one [`Backend`] trait, a CPU backend that is
//! always built, key files with their reader and writer, and the multiplications of
//! key generation.
//!
//! | to do this | use |
//! |---|---|
//! | prove columns that somebody filled | [`Backend`], [`cpu::CpuBackend`] |
//! | prove on two backends and find where they part | [`Dual`], [`Watch`] |
//! | open, check and read a key file | [`Key`], [`KeyChecks`] |
//! | write one | [`KeyWriter`], [`fixed_base`] |
//! | check a proof | [`verify()`] |
//!
//! It does not synthesise circuits, queue jobs, try anything again or decide whether
//! a proof may leave: that is the engine's. It draws no randomness; the blinding
//! scalars are arguments.
//!
//! Invariants: the same columns, key and scalars give the same proof bytes on every
//! backend, those of bellperson; columns are the backend's until it gives them back;
//! a key file that is damaged, cut or another circuit's is an error with its place.
//!
//! ```
//! use blstrs::{G1Affine, Scalar};
//! use cuzk_gpu::cpu::msm::{Density, msm};
//! use group::{Curve, prime::PrimeCurveAffine};
//!
//! let points = [G1Affine::generator(); 3];
//! let sum = msm(&points, &[1, 2, 3].map(Scalar::from), Density::Full);
//! assert_eq!(sum.to_affine(), (points[0] * Scalar::from(6)).to_affine());
//! ```
#![deny(unsafe_op_in_unsafe_fn)]

mod accelerator;
mod backend;
mod column;
#[cfg(test)]
mod conformance;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(any(test, feature = "cuda"))]
mod device;
mod dual;
mod error;
pub mod fixed_base;
mod groth16;
pub mod key;
mod phase;
mod shape;
mod verify;
mod watch;

pub use accelerator::{
    DEVICE_SLOTS_MAX, DEVICE_WINDOW_BITS, DeviceBuffers, DeviceOptions, DeviceReport, KeyMemory,
    TakeBuffers, devices, open_device,
};
pub use backend::{Backend, Completion, DeviceUse, Pending, ProveRequest, Proved, Upload, pending};
pub use column::{CColumn, Column, ColumnLayout, Columns};
pub use dual::Dual;
pub use error::{BackendError, KeyError, PointFault};
pub use groth16::Statement;
pub use key::{Key, KeyChecks, KeyTier, KeyWriter, PointCheck, Section};
pub use phase::{Phase, PhaseLane, union};
pub use shape::{Bitmap, CircuitShape, CircuitSizes};
pub use verify::verify;
pub use watch::{Intermediate, Watch};

/// Whether the curve arithmetic was compiled for processors with ADX. On any other
/// it ends the process with an illegal instruction, so a program asks first. The
/// `portable` feature turns it off.
pub const USES_ADX: bool = cfg!(cuzk_adx);

/// Version of the toolkit that compiled the device code, such as `13.0`; `None` in a
/// build without any.
#[cfg(feature = "cuda")]
pub const CUDA_TOOLKIT: Option<&str> = option_env!("CUZK_CUDA_TOOLKIT");

/// The architectures that there is device code for, such as `sm_90 sm_120`; `None` in a build
/// without any.
#[cfg(feature = "cuda")]
pub const CUDA_ARCHS: Option<&str> = option_env!("CUZK_CUDA_COMPILED");
