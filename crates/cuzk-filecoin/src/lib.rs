//! Under construction.
#![forbid(unsafe_code)]

pub mod fixture;
mod sizes;
mod circuits;
mod request;
mod workload;
mod porep;
mod c1;
mod post;
mod merkle;
mod registered;
mod shape;
mod error;
#[cfg(test)]
mod testing;

pub use circuits::FilecoinCircuit;
pub use error::UnknownName;
pub use request::{Priority, Request};
pub use sizes::{ProofKind, SectorSize};
pub use workload::{FilecoinWorkload, PROOF_BYTES};
