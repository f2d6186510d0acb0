//! The proving engine: jobs, stages, scheduler, key store, key generation,
//! configuration and timeline. It knows no Filecoin, no protobuf, no CUDA type.
#![forbid(unsafe_code)]

mod assemble;
pub mod config;
mod engine;
mod error;
pub mod keygen;
pub mod keys;
mod keystore;
mod metrics;
pub mod schedule;
mod shapes;
mod stage;
mod timeline;
mod workload;

pub use assemble::{StartError, cpu_backend, memory_limit};
pub use config::Config;
pub use cuzk_gpu::{KeyError, USES_ADX};
pub use cuzk_pinned::PoolStats;
pub use engine::{
    Blinding, Canceller, Engine, EngineParts, JobHandle, JobOptions, PartReport, ProofReply,
};
pub use error::ProveError;
pub use keystore::{Eviction, HeldKey, KeyStore};
pub use metrics::{Counter, Metrics};
pub use shapes::Shapes;
pub use stage::Placement;
pub use timeline::{Span, Timeline};
pub use workload::{CircuitId, CircuitSpec, Part, Workload, WorkloadError};
