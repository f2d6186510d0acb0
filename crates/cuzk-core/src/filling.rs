//! How the columns of a part were filled, and why not in segments.

use std::fmt;

use crate::metrics::Counter;

/// How the columns of a part were filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filling {
    /// In segments, from stored rows.
    Segments,
    /// The whole circuit by one thread, as was asked, or since nothing of it is said to
    /// repeat.
    Whole,
    /// The same, although segments were asked for.
    Instead(Obstacle),
}

/// Why a part was not synthesised in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// `tuning.sizing = "growing"`: segments have their places in columns of known sizes.
    Growing,
    /// The circuit was said to repeat, and does not.
    Differs,
    /// Another part was finding out whether it does.
    Surveyed,
    /// A proof that was made from its stored rows did not verify.
    Doubted,
    /// There was no memory for what it repeats.
    NoMemory,
}

impl Obstacle {
    const ALL: [Self; 5] = [
        Self::Growing,
        Self::Differs,
        Self::Surveyed,
        Self::Doubted,
        Self::NoMemory,
    ];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Growing => "growing",
            Self::Differs => "differs",
            Self::Surveyed => "surveyed",
            Self::Doubted => "doubted",
            Self::NoMemory => "no-memory",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Growing => "its columns grow (tuning.sizing)",
            Self::Differs => "its circuit does not repeat",
            Self::Surveyed => "another part surveys its circuit",
            Self::Doubted => "a proof from its circuit's stored rows did not verify",
            Self::NoMemory => "there is no memory for what its circuit repeats",
        })
    }
}

impl Filling {
    /// `segments`, `whole`, or why it is whole although segments were asked for
    /// (`whole-no-memory`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Segments => "segments",
            Self::Whole => "whole",
            Self::Instead(Obstacle::Growing) => "whole-growing",
            Self::Instead(Obstacle::Differs) => "whole-differs",
            Self::Instead(Obstacle::Surveyed) => "whole-surveyed",
            Self::Instead(Obstacle::Doubted) => "whole-doubted",
            Self::Instead(Obstacle::NoMemory) => "whole-no-memory",
        }
    }
}

/// Parts synthesised whole although segments were asked for, by why.
#[derive(Debug, Default)]
pub struct ObstacleCounters([Counter; Obstacle::ALL.len()]);

impl ObstacleCounters {
    pub(crate) fn add(&self, obstacle: Obstacle) {
        self.0[obstacle as usize].add(1);
    }

    /// Names and numbers.
    pub fn counts(&self) -> [(&'static str, u64); Obstacle::ALL.len()] {
        Obstacle::ALL.map(|obstacle| (obstacle.name(), self.0[obstacle as usize].count()))
    }
}
