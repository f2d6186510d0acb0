//! The wire contract: messages, client and server of `cuzk.v1.ProvingEngine`, made
//! from the proto file, and the way between messages and requests.

mod convert;

pub(crate) use convert::{message_of, request_of};

/// The descriptors of the contract, as the reflection service hands them out.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// What the generator makes of the proto file.
mod generated {
    // Generated code follows the rules of its generator.
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    include!(concat!(env!("OUT_DIR"), "/cuzk.v1.rs"));
}

pub use generated::*;
