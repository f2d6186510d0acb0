//! Under construction.
#![forbid(unsafe_code)]

mod c1;
mod circuits;
mod error;
pub mod fixture;
mod merkle;
mod porep;
mod post;
mod priority;
mod registered;
mod request;
mod shape;
mod sizes;
#[cfg(test)]
mod testing;
mod workload;

pub use circuits::FilecoinCircuit;
pub use cuzk_core::schedule::Priority;
pub use error::UnknownName;
pub use request::Request;
pub use sizes::{ProofKind, SectorSize};
pub use workload::{FilecoinWorkload, PROOF_BYTES};
