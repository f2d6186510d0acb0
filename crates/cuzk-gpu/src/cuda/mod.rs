//! The CUDA backend: Groth16 on one NVIDIA device.
//!
//! A proof's columns are copied to the device and given back; everything else
//! happens there. The points of keys and the index lists of circuits stay on the
//! device from proof to proof, least recently used first to go. One thread owns the
//! device (`owner`); kernels are C++ beyond a narrow border (`border`, and the
//! folder `cuda/` of this crate), most of them sppark's.
//!
//! All device memory is one allocation, made at the start (`arena`); what lies in it,
//! and what has to go for a proof, is `holdings`. Device bytes of a proof of domain n
//! with m variables: a slot with the columns a and b (32 n each, and as much for a c
//! that comes from synthesis) and the assignment (32 m; where that has no room, it comes
//! after the transforms, to where b was), and scratch of 32 n or somewhat more, beside 96
//! or 192 bytes a point of its key and 4 bytes an entry of its A and B queries.

mod arena;
mod backend;
mod border;
mod carried;
mod clock;
mod device;
mod event;
mod holdings;
mod host_key;
mod host_words;
mod key_points;
mod multiples;
mod owner;
mod pass;
mod plan;
mod points;
mod preload;
mod probe;
mod prove;
mod query;
mod resident;
mod rows;
mod staging;
mod upload;
mod warm;
mod watch;

#[cfg(test)]
mod tests;

pub use backend::{CudaBackend, CudaJob};
pub use points::{Encoding, PointBytes};
pub(crate) use probe::devices;
