//! Sector sizes and proof kinds, with the names that wires and people use.

use std::fmt;
use std::str::FromStr;

use crate::error::UnknownName;

/// A sector size of the Filecoin chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SectorSize {
    /// 2 KiB, for tests.
    KiB2,
    /// 8 MiB, for tests.
    MiB8,
    /// 512 MiB, for test networks.
    MiB512,
    /// 32 GiB.
    GiB32,
    /// 64 GiB.
    GiB64,
}

impl SectorSize {
    /// All sizes, in the order in which the chain numbers them.
    pub const ALL: [Self; 5] = [
        Self::KiB2,
        Self::MiB8,
        Self::MiB512,
        Self::GiB32,
        Self::GiB64,
    ];

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::KiB2 => 2 << 10,
            Self::MiB8 => 8 << 20,
            Self::MiB512 => 512 << 20,
            Self::GiB32 => 32 << 30,
            Self::GiB64 => 64 << 30,
        }
    }

    /// Nodes of 32 bytes in a sector.
    pub const fn node_count(self) -> u64 {
        self.bytes() / 32
    }

    /// The size of that many bytes, if the chain has it.
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.bytes() == bytes)
    }

    /// The form in circuit ids: `2k`, `512m`, `32g`.
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::KiB2 => "2k",
            Self::MiB8 => "8m",
            Self::MiB512 => "512m",
            Self::GiB32 => "32g",
            Self::GiB64 => "64g",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::KiB2 => "2KiB",
            Self::MiB8 => "8MiB",
            Self::MiB512 => "512MiB",
            Self::GiB32 => "32GiB",
            Self::GiB64 => "64GiB",
        }
    }
}

impl fmt::Display for SectorSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Reads `2KiB`, `2k` or `2048`; letter case does not matter.
impl FromStr for SectorSize {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let wanted = text.trim().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|size| {
                wanted == size.short_name()
                    || wanted == size.name().to_ascii_lowercase()
                    || wanted == size.bytes().to_string()
            })
            .ok_or_else(|| UnknownName {
                what: "sector size",
                have: text.into(),
                known: "2KiB, 8MiB, 512MiB, 32GiB, 64GiB",
            })
    }
}

/// A kind of proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProofKind {
    /// Proof of replication, the second step of sealing (C2).
    PoRep,
    /// Replica update of a sector that was sealed empty.
    SnapDeals,
    /// Proof of spacetime of one partition of a deadline.
    WindowPost,
    /// Proof of spacetime of a block producer.
    WinningPost,
}

impl ProofKind {
    /// All kinds, in the order of the wire's numbers, which start at 1.
    pub const ALL: [Self; 4] = [
        Self::PoRep,
        Self::SnapDeals,
        Self::WindowPost,
        Self::WinningPost,
    ];

    /// The name on the wire: `POREP_SEAL_COMMIT`.
    pub const fn wire_name(self) -> &'static str {
        match self {
            Self::PoRep => "POREP_SEAL_COMMIT",
            Self::SnapDeals => "SNAP_DEALS_UPDATE",
            Self::WindowPost => "WINDOW_POST_PARTITION",
            Self::WinningPost => "WINNING_POST",
        }
    }

    /// The number on the wire.
    pub const fn wire_number(self) -> i32 {
        match self {
            Self::PoRep => 1,
            Self::SnapDeals => 2,
            Self::WindowPost => 3,
            Self::WinningPost => 4,
        }
    }

    /// The kind that has this number on the wire; 0 is none.
    pub fn from_wire_number(number: i32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.wire_number() == number)
    }

    /// The name on command lines and in circuit ids: `porep`.
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::PoRep => "porep",
            Self::SnapDeals => "snap",
            Self::WindowPost => "wpost",
            Self::WinningPost => "winning",
        }
    }
}

impl fmt::Display for ProofKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.wire_name())
    }
}

/// Reads the short name or the wire's; letter case does not matter.
impl FromStr for ProofKind {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .into_iter()
            .find(|kind| {
                text.eq_ignore_ascii_case(kind.short_name())
                    || text.eq_ignore_ascii_case(kind.wire_name())
            })
            .ok_or_else(|| UnknownName {
                what: "proof kind",
                have: text.into(),
                known: "porep, snap, wpost, winning",
            })
    }
}
