//! Tree shapes. Circuits are generic over the Merkle tree of a sector, and three
//! trees serve all sizes; code is written once per tree, not once per size.

use filecoin_proofs::constants::DefaultTreeHasher;
use storage_proofs_core::merkle::MerkleTreeTrait;

use crate::sizes::SectorSize;

/// A Merkle tree over sector nodes, hashed with Poseidon.
pub(crate) trait Shape: 'static + MerkleTreeTrait<Hasher = DefaultTreeHasher> {}

impl<Tree: 'static + MerkleTreeTrait<Hasher = DefaultTreeHasher>> Shape for Tree {}

/// The three trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeShape {
    /// One tree of arity 8.
    Base,
    /// Eight trees of arity 8 under a node of arity 8.
    Sub8,
    /// Two of those under a node of arity 2.
    Top2,
}

impl SectorSize {
    pub(crate) fn shape(self) -> TreeShape {
        match self {
            Self::KiB2 | Self::MiB8 | Self::MiB512 => TreeShape::Base,
            Self::GiB32 => TreeShape::Sub8,
            Self::GiB64 => TreeShape::Top2,
        }
    }
}

/// Calls a function that is generic over a [`Shape`] with the tree of a size.
macro_rules! with_tree {
    ($size:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $size.shape() {
            $crate::shape::TreeShape::Base => {
                $function::<filecoin_proofs::constants::SectorShapeBase>($($argument),*)
            }
            $crate::shape::TreeShape::Sub8 => {
                $function::<filecoin_proofs::constants::SectorShapeSub8>($($argument),*)
            }
            $crate::shape::TreeShape::Top2 => {
                $function::<filecoin_proofs::constants::SectorShapeTop2>($($argument),*)
            }
        }
    };
}
pub(crate) use with_tree;
