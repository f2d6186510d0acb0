//! Errors of this crate. What a request gets wrong is a
//! [`WorkloadError`], which names the field; names that are not known have a type
//! of their own, since command lines show them without a request around.

use std::fmt;

use bincode::Options as _;
use cuzk_core::WorkloadError;
use serde::de::DeserializeOwned;

/// A name that this crate does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{have}`, expected one of {known}")]
pub struct UnknownName {
    /// What was named: `sector size`, `proof kind`, `circuit`.
    pub what: &'static str,
    /// The name as given.
    pub have: String,
    /// The names that are known.
    pub known: &'static str,
}

/// A fault of one field of a request.
pub(crate) fn fault(field: impl Into<String>, reason: impl fmt::Display) -> WorkloadError {
    WorkloadError {
        field: field.into(),
        reason: reason.to_string(),
    }
}

/// Where a list item is at fault: `vanilla_proofs[3]`.
pub(crate) fn item(field: &str, index: usize) -> String {
    format!("{field}[{index}]")
}

/// Reads bincode as the stock software writes it, all of it and nothing more.
pub(crate) fn bincode_exact<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, String> {
    let limit = bytes.len() as u64;
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .reject_trailing_bytes()
        .with_limit(limit)
        .deserialize(bytes)
        .map_err(|error| format!("not a bincode {what} of {limit} bytes: {error}"))
}
