//! The proving engine: jobs become parts, parts pass through stages, and proofs that
//! verify leave.
//!
//! | to do this | use |
//! |---|---|
//! | describe a kind of proof | [`Workload`], [`Part`], [`CircuitSpec`] |
//! | run jobs | [`Engine`], [`JobHandle`], [`JobOptions`] |
//! | read a configuration, with the origin of every value | [`config`] |
//! | make an insecure key for tests | [`keygen`] |
//! | look into a key file without an engine | [`keys`] |
//! | see where the time of a job went, and of all jobs | [`Timeline`], [`timeline`] |
//! | decide what runs next, without threads or clock | [`schedule`] |
//!
//! It knows no Filecoin, no wire format and no CUDA type, leaves proofs to a backend,
//! and reads no environment. It keeps no job beyond the process: whoever must not
//! lose one keeps the request.
//!
//! Invariants:
//!
//! - a proof that does not verify never leaves: each part is checked with the
//!   verifying key of the key it used, then the whole by its workload;
//! - a part asks for its columns and its working memory in one request, counted in
//!   one budget; what can never fit is an error at once, never a wait;
//! - a fault of the request is told and not retried; any other is retried once, from
//!   synthesis, with a reservation of its own;
//! - a stage that panics fails its job alone;
//! - generated keys are never used unless the configuration allows them.
//!
//! ```
//! use std::path::Path;
//! use cuzk_core::{Config, Engine, config};
//!
//! let text = "[memory]\nlimit = \"1GiB\"\n\n[engine]\nthreads = 1\n";
//! let file = Some((Path::new("cuzk.toml"), text));
//! let loaded = config::load(Config::new("keys".into()), file, &[])?;
//!
//! // `engine.submit(workload, options)?.wait()?.proof` makes a proof.
//! let engine = Engine::from_config(&loaded.config)?;
//! assert_eq!(engine.budget().usage().limit_bytes, 1 << 30);
//! assert_eq!(engine.jobs(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/whole_job` is a whole job with a circuit of one constraint.
#![forbid(unsafe_code)]

mod assemble;
mod backends;
mod belonging;
pub mod config;
mod crew;
mod engine;
mod error;
mod filling;
pub mod keygen;
pub mod keys;
mod keystore;
mod lock;
mod log;
mod memory;
mod metrics;
mod placement;
pub mod schedule;
mod shapes;
mod stage;
mod standing;
mod templates;
pub mod timeline;
mod waits;
mod workload;

pub use assemble::{
    ExcessiveLimit, StartError, cpu_backend, excessive_limit, memory_limit, page_locked_limit,
};
pub use backends::DeviceState;
pub use config::Config;
pub use cuzk_budget::ByteCount;
pub use cuzk_gpu::{DeviceReport, DeviceUse, KeyError, KeyTier, USES_ADX, Verifier, devices};
pub use cuzk_pinned::PoolStats;
pub use engine::{
    Blinding, Canceller, Engine, EngineParts, JobHandle, JobOptions, PARTS_MAX, PartReport,
    ProofReply, Raiser,
};
pub use error::ProveError;
pub use filling::{Filling, Obstacle, ObstacleCounters};
pub use keystore::{Eviction, HeldKey, KeyStore};
pub use memory::{Forecast, PartMemory};
pub use metrics::{Counter, Metrics, PlacementCounters};
pub use placement::{ColumnMemory, Placed};
pub use shapes::{Shapes, circuit_shape};
pub use timeline::{Span, Timeline};
pub use waits::MemoryWait;
pub use workload::{BlankCircuit, CircuitId, CircuitSpec, Part, Workload, WorkloadError};
