//! Every optimisation is a switch here, so that one binary runs every ablation.

/// The switches. Each default is what measurements say, or, until there is one,
/// the plainer way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Take c as the product of a and b: six transforms instead of seven, and no
    /// evaluation of C.
    pub c_from_ab: bool,
    /// How the columns of a part get their length.
    pub sizing: Sizing,
    /// Where the points of a key are kept between proofs.
    pub key_tier: KeyTier,
}

/// How the columns of a part get their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// From the shape's hint, or before there is one from the key's counts: columns
    /// are taken once and written in place.
    Exact,
    /// Columns grow on the heap as the circuit writes and are copied afterwards: the
    /// way without hints, kept to measure what hints are worth.
    Growing,
}

/// Where the points of a key are kept between proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTier {
    /// Resident if the budget has room, otherwise in the file.
    Auto,
    /// In memory, decoded, counted in the budget; an error if there is no room.
    Resident,
    /// In the file, from which each section is read and decoded when a proof uses it.
    File,
}

/// The words of a configuration value: how it is read and shown.
macro_rules! words {
    ($type:ty { $($variant:ident = $word:literal),+ }) => {
        impl $type {
            pub(super) fn parse(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    other => {
                        let words = [$($word),+].join(", ");
                        Err(format!("want one of {words}, have {other:?}"))
                    }
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($word),)+
                }
            }
        }
    };
}
pub(super) use words;

words!(Sizing { Exact = "exact", Growing = "growing" });
words!(KeyTier { Auto = "auto", Resident = "resident", File = "file" });
