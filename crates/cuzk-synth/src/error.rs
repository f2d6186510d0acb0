//! Everything that can go wrong in this crate.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use bellpepper_core::SynthesisError;

use crate::Sizes;

/// A pass over a circuit that did not give what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// The circuit itself refused: a value was missing, a division by zero. The
    /// witness does not belong to the circuit.
    #[error("the circuit could not be synthesised: {0}")]
    Circuit(#[from] SynthesisError),
    /// Whoever wanted the pass does not want it any more.
    #[error("the pass was given up")]
    GivenUp,
    /// A column was shorter than what is written to it. `want` holds the true
    /// sizes, so one re-run with columns of that size succeeds.
    #[error("column {column} has room for {have} values, {} are written to it", column.of(want))]
    HintTooSmall {
        /// The first column that overflowed.
        column: ColumnName,
        /// Its length.
        have: usize,
        /// The true sizes of the circuit or, of columns for a
        /// [segment alone](crate::Template::alone), of what they are for.
        want: Sizes,
    },
    /// The evaluation point is a root of unity of the domain, so the Lagrange
    /// basis has a division by zero there.
    #[error("tau is a root of unity of the domain of {domain} elements")]
    TauInDomain {
        /// Elements of the domain.
        domain: usize,
    },
    /// The domain is larger than the scalar field's roots of unity allow.
    #[error("{constraints} constraints are more than the largest domain of 2^32")]
    DomainTooLarge {
        /// Constraints of the circuit.
        constraints: usize,
    },
    /// A circuit wrote another number of constraints than the count said.
    #[error("the circuit wrote {have} constraints in one pass and {want} in another")]
    NotDeterministic {
        /// Constraints in this pass.
        have: usize,
        /// Constraints counted before.
        want: usize,
    },
    /// A segment did not write what its circuit's template has.
    #[error("a segment wrote {have} {part}, its circuit's has {want}")]
    OtherSegment {
        /// What was counted.
        part: SegmentPart,
        /// Of these so many were written.
        have: usize,
        /// So many there must be.
        want: usize,
    },
    /// The blocks of a circuit cannot be divided evenly.
    #[error("{blocks} blocks make no {segments} segments of equal size")]
    UnevenSegments {
        /// Blocks of the circuit.
        blocks: usize,
        /// Segments asked for.
        segments: usize,
    },
    /// A segment was to have blocks that its circuit does not.
    #[error("blocks {asked:?} were asked for, the circuit has {blocks}")]
    NoSuchBlocks {
        /// Blocks asked for.
        asked: Range<usize>,
        /// Blocks of the circuit.
        blocks: usize,
    },
    /// C is to be evaluated or compared, and the template was stored without it.
    #[error("the rows of c are asked for, the circuit's were stored without them")]
    NoC,
    /// Columns were cut by the template of another circuit.
    #[error("the columns were cut for another circuit")]
    OtherTemplate,
    /// Segments that were filled are not all those of one cut, in its order.
    #[error("block {block} of the cut was to come next: the segments are others, or not in order")]
    OtherCut {
        /// Of the segments before it all was right.
        block: usize,
    },
    /// What all blocks share has other public inputs in one segment than in the first.
    #[error("the segment of block {block} has other shared inputs than the first")]
    OtherShared {
        /// The first block of the segment.
        block: usize,
    },
}

/// What is counted of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentPart {
    /// Public inputs.
    Inputs,
    /// Auxiliary variables.
    Aux,
    /// Constraints.
    Constraints,
}

impl fmt::Display for SegmentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inputs => "inputs",
            Self::Aux => "auxiliary variables",
            Self::Constraints => "constraints",
        })
    }
}

/// One of the columns of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnName {
    /// Evaluations of A.
    A,
    /// Evaluations of B.
    B,
    /// Evaluations of C.
    C,
    /// The auxiliary assignment.
    Aux,
}

impl ColumnName {
    fn of(self, sizes: &Sizes) -> usize {
        match self {
            ColumnName::A | ColumnName::B | ColumnName::C => sizes.constraints,
            ColumnName::Aux => sizes.aux,
        }
    }
}

impl fmt::Display for ColumnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ColumnName::A => "a",
            ColumnName::B => "b",
            ColumnName::C => "c",
            ColumnName::Aux => "aux",
        })
    }
}

/// A hint file that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HintError {
    /// The file could not be read or written.
    #[error("hint file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a hint file.
    #[error("hint file {}: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Where and why it could not be parsed.
        source: serde_json::Error,
    },
    /// The file was written by a program that keeps other things.
    #[error(
        "hint file {} is of version {have}, this program reads version {want}",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        have: u64,
        /// Version this program reads.
        want: u64,
    },
}
