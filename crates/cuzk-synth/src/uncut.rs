//! Why a circuit is not cut.

use std::fmt;

/// Why a circuit cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncut {
    /// No namespace has the name at the depth.
    NoBlock,
    /// A block differs from the first one.
    Differs {
        /// The block, from 0.
        block: usize,
        /// The row within it.
        row: usize,
    },
    /// A block has another number of rows or variables than the first one.
    OtherSize {
        /// The block, from 0.
        block: usize,
    },
    /// A row uses variables of another block.
    Reaches {
        /// The block, from 0.
        block: usize,
        /// The row within it.
        row: usize,
    },
    /// The stored rows would take more memory than they may.
    TooLarge {
        /// Bytes that they may take.
        limit_bytes: usize,
    },
    /// 2^16 terms in a row, or more different coefficients.
    TooVaried,
}

impl fmt::Display for Uncut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBlock => f.write_str("nothing in it has the name of a block"),
            Self::Differs { block, row } => {
                write!(f, "row {row} of block {block} differs from that of block 0")
            }
            Self::OtherSize { block } => {
                write!(f, "block {block} is not of the size of block 0")
            }
            Self::Reaches { block, row } => {
                write!(
                    f,
                    "row {row} of block {block} uses variables of another block"
                )
            }
            Self::TooLarge { limit_bytes } => {
                write!(f, "its rows take more than {limit_bytes} bytes")
            }
            Self::TooVaried => f.write_str("a row or the coefficients are too many"),
        }
    }
}
