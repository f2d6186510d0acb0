//! The proving engine: jobs, stages, scheduler, key store, key generation,
//! configuration and timeline. It knows no Filecoin, no protobuf, no CUDA type.
#![forbid(unsafe_code)]

mod workload;

pub use workload::{CircuitId, CircuitSpec, Part, Workload, WorkloadError};
