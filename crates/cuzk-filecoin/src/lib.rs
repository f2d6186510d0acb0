//! Filecoin proof kinds for the proving engine: request bytes to parts and public
//! inputs, and proofs back to bytes and verification.
//!
//! | kind | from | parts |
//! |---|---|---|
//! | PoRep (C2) | C1 output as JSON, bare or wrapped | one a partition |
//! | WindowPoSt | bincode sector proofs of one partition | one |
//! | WinningPoSt | the bincode proof of one sector | one |
//! | SnapDeals | bincode partition proofs | one a partition |
//!
//! Circuits and public inputs are those of the filecoin-proofs crates. This crate
//! does not prove, reads no key and no file, and looks at no environment variable
//! of its own.
//!
//! Invariants: what [`Request::workload`] accepts cannot panic in a circuit, since
//! counts, paths and scalars are checked while parsing; what
//! [`FilecoinWorkload::check_vanilla`] accepts satisfies its circuit; errors name
//! the field and index, and hold no witness data.
//!
//! ```
//! use cuzk_core::Workload;
//! use cuzk_filecoin::Request;
//!
//! // A sector that was really sealed, at 2 KiB.
//! let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/winning-2k.json");
//! let request = Request::from_json(&std::fs::read(file)?)?;
//! let workload = request.workload()?;
//! workload.check_vanilla()?;
//!
//! assert_eq!(workload.circuit().id().as_str(), "winning-2k");
//! assert_eq!(workload.part_count(), 1);
//! // 66 challenges: a commitment and a leaf index each.
//! assert_eq!(workload.public_inputs(0)?.len(), 132);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod sizes;

mod circuits;
mod shape;

mod priority;
mod request;

mod c1;
mod porep;

mod post;

mod snap;

mod merkle;
mod registered;

pub mod fixture;

mod error;
mod workload;

pub use circuits::FilecoinCircuit;
pub use cuzk_core::schedule::Priority;
pub use error::UnknownName;
pub use request::{Request, prover_id};
pub use sizes::{ProofKind, SectorSize};
pub use workload::{FilecoinWorkload, PROOF_BYTES};
