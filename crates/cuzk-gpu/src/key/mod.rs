//! Proving keys (SRS): files in bellperson's format.

use std::fmt;

/// A section of a key file, in file order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Section {
    /// The fixed points of the verifying key.
    VerifyingKey,
    /// Input commitments of the verifying key, one G1 point an input.
    Ic,
    /// H query: `domain - 1` G1 points.
    H,
    /// L query: one G1 point an auxiliary variable.
    L,
    /// A query: all inputs, then the auxiliary variables of A's density.
    A,
    /// B query in G1: inputs and auxiliary variables of B's densities.
    BG1,
    /// B query in G2, like [`Section::BG1`].
    BG2,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Section::VerifyingKey => "vk",
            Section::Ic => "ic",
            Section::H => "h",
            Section::L => "l",
            Section::A => "a",
            Section::BG1 => "b_g1",
            Section::BG2 => "b_g2",
        })
    }
}

/// A proving key.
#[derive(Debug)]
pub struct Key;
