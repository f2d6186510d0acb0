//! The CUDA backend: Groth16 on one NVIDIA device.
//!
//! A proof's columns are copied to the device and given back; everything else
//! happens there. The points of keys and the index lists of circuits stay on the
//! device from proof to proof, least recently used first to go. One thread owns the
//! device (`backend`); kernels are C++ beyond a narrow border (`border`, and the
//! folder `cuda/` of this crate), most of them sppark's.
//!
//! Device bytes of a proof of domain n with m variables: the columns a, b and c
//! (32 n each; b's and c's place is scratch after the transforms), the assignment
//! (32 m), rows of sums, beside 96 or 192 bytes a point of its key and 4 bytes an
//! entry of its A and B queries.

mod backend;
mod border;
mod device;
mod multiples;
mod plan;
mod points;
mod probe;
mod prove;
mod query;
mod resident;
mod rows;

#[cfg(test)]
mod tests;

pub use backend::{CudaBackend, CudaJob};
pub use points::{Encoding, PointBytes};
pub(crate) use probe::devices;
