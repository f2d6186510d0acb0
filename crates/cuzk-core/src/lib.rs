//! The proving engine: jobs, stages, scheduler, key store, key generation,
//! configuration and timeline. It knows no Filecoin, no protobuf, no CUDA type.
#![forbid(unsafe_code)]

pub mod config;
pub mod keygen;
pub mod schedule;
mod timeline;
mod workload;

pub use config::Config;
pub use timeline::{Span, Timeline};
pub use workload::{CircuitId, CircuitSpec, Part, Workload, WorkloadError};
