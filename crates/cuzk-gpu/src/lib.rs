//! Groth16 arithmetic over BLS12-381: one [`Backend`] trait, a CPU backend that is
//! always built, key files with their reader and writer, and the multiplications of
//! key generation.
//!
//! | to do this | use |
//! |---|---|
//! | prove columns that somebody filled | [`Backend`], [`cpu::CpuBackend`] |
//! | find a device, and open a backend on it | [`devices`], [`open_device`], [`cuzk_pinned::page_locked_memory`] |
//! | prove on two backends and find where they part | [`Dual`], [`Watch`] |
//! | open, check and read a key file | [`Key`], [`KeyChecks`] |
//! | write one | [`KeyWriter`], [`fixed_base`] |
//! | check a proof | [`Verifier`], [`Key::verifier`] |
//!
//! It does not synthesise circuits, queue jobs, try anything again or decide whether
//! a proof may leave: that is the engine's. It draws no randomness; the blinding
//! scalars are arguments.
//!
//! Invariants: the same columns, key and scalars give the same proof bytes on every
//! backend, those of bellperson; columns are the backend's until it gives them back;
//! a key file that is damaged, cut or another circuit's is an error with its place.
//!
//! # A proof
//!
//! The columns are filled by hand here, for one constraint. For any other circuit
//! `cuzk_synth::assign` fills them, and `cuzk_core::circuit_shape` makes the shape of the
//! sizes and densities that it gives; the engine, cuzk-core, does both.
//!
//! ```
//! use std::{fs::File, num::NonZeroUsize, sync::Arc};
//!
//! use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
//! use bellperson::groth16::generate_random_parameters;
//! use blstrs::{Bls12, Scalar};
//! use cuzk_budget::{Budget, Consumer, Priority, Wait};
//! use cuzk_gpu::cpu::{CpuBackend, CpuOptions};
//! use cuzk_gpu::{
//!     Backend, Bitmap, CircuitShape, CircuitSizes, Column, Columns, Key, KeyChecks, PointCheck,
//!     ProveRequest,
//! };
//! use cuzk_pinned::{AcquireRequest, PinnedPool};
//! use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
//!
//! /// x * x = y, y public.
//! struct Square;
//!
//! impl Circuit<Scalar> for Square {
//!     fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
//!         let y = cs.alloc_input(|| "y", || Ok(Scalar::from(49)))?;
//!         let x = cs.alloc(|| "x", || Ok(Scalar::from(7)))?;
//!         cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
//!         Ok(())
//!     }
//! }
//!
//! // A key for tests, whose secret nobody may know in earnest.
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("square.params");
//! let rng = &mut ChaCha8Rng::seed_from_u64(1);
//! generate_random_parameters::<Bls12, _, _>(Square, rng)?.write(File::create(&path)?)?;
//! let checks = KeyChecks { points: PointCheck::OnCurve, digest: None };
//! let key = Arc::new(Key::open(&path, &checks)?);
//!
//! // The constraint, and a row for each of the inputs one and y. x is in A and in B.
//! let bits = |bits, len| Bitmap::new(Arc::new([bits]), len);
//! let shape = Arc::new(CircuitShape {
//!     sizes: CircuitSizes { inputs: 2, aux: 1, constraints: 3 },
//!     a_aux: bits(1, 1),
//!     b_inputs: bits(0, 2),
//!     b_aux: bits(1, 1),
//! });
//!
//! // Columns of the lengths that the backend wants, here four rows: zeros after the last
//! // constraint. This backend's `c` is working memory of its own and needs no values.
//! let backend = CpuBackend::new(CpuOptions::new(NonZeroUsize::MIN, 1))?;
//! let layout = backend.layout(&shape.sizes);
//! let bytes: Option<Vec<usize>> = layout.lens().into_iter().map(Column::bytes).collect();
//! let request = AcquireRequest {
//!     buffers: &bytes.ok_or("too long")?,
//!     bytes: 0,
//!     consumer: Consumer("columns"),
//!     wait: Wait::with_priority(Priority::NORMAL),
//! };
//! let pool = PinnedPool::heap(Budget::new(1 << 20));
//! let mut columns = Columns::from_buffers(pool.acquire(&request)?.buffers, &layout);
//! let [zero, one, x, y] = [0, 1, 7, 49].map(Scalar::from);
//! columns.a.scalars_mut().copy_from_slice(&[x, one, y, zero]);
//! columns.b.scalars_mut().copy_from_slice(&[x, zero, zero, zero]);
//! columns.aux.scalars_mut().copy_from_slice(&[x]);
//!
//! let mut pending = backend.submit(ProveRequest {
//!     columns,
//!     inputs: vec![one, y], // with the leading one
//!     shape,
//!     key: Arc::clone(&key),
//!     r: Scalar::from(3), // in earnest r and s are drawn at random for each proof
//!     s: Scalar::from(4),
//!     watch: None,
//! });
//! let columns = pending.columns_read(); // to be filled anew; dropped, they go to the pool
//! assert!(columns.is_some());
//! let proof = pending.done()?.proof;
//! assert!(key.verifier().verify(&proof, &[y])); // without the leading one
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On a device
//!
//! The same, with another backend. Keys reach a device through two page-locked buffers; 64 MiB
//! each is what the engine takes.
//!
//! ```no_run
//! use std::num::NonZeroUsize;
//!
//! use cuzk_budget::{Budget, Consumer, Priority, Wait};
//! use cuzk_gpu::{DeviceBuffers, DeviceOptions, devices, open_device};
//! use cuzk_pinned::{AcquireRequest, NumaNodes, Pages, PinnedPool, PoolOptions};
//! use cuzk_pinned::page_locked_memory;
//!
//! let threads = NonZeroUsize::MIN;
//! let device = devices()?.into_iter().find(|device| device.unusable.is_none());
//! let device = device.ok_or("no device")?;
//! let ordinal = device.ordinal;
//!
//! let nodes = NumaNodes::near(device.numa_node); // memory on the device's side of the host
//! let memory = page_locked_memory(ordinal, threads, Pages::Huge, nodes)?;
//! let pool = PinnedPool::new(Budget::new(1 << 30), memory.backing, PoolOptions::STANDARD);
//! let request = AcquireRequest {
//!     buffers: &[64 << 20; 2],
//!     bytes: 0,
//!     consumer: Consumer("key buffers"),
//!     wait: Wait::with_priority(Priority::NORMAL),
//! };
//! let mut buffers = pool.acquire(&request)?.buffers;
//! let mut next = || buffers.pop().ok_or("as many as asked");
//! let buffers = DeviceBuffers { keys: [next()?, next()?], columns: None, host_keys: None };
//!
//! // Columns from the same pool are page-locked and upload at full speed.
//! let backend = open_device(DeviceOptions::new(ordinal, threads, 4), buffers)?;
//! println!("{:?}", backend.device());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features and dependencies
//!
//! `cuda` compiles the device code and wants nvcc; without it `devices` and `open_device` are
//! there and say that they cannot. `portable` compiles the curve arithmetic for processors
//! without ADX, see [`USES_ADX`].
//!
//! Scalars are blstrs', proofs and verifying keys bellperson's, buffers cuzk-pinned's and
//! their budget cuzk-budget's. None is exported again: depend on them, in the versions that
//! this workspace names.
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
pub use verify::Verifier;
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
