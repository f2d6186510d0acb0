//! Checks of Merkle proofs that came in from outside.
//!
//! The circuit crates index into these proofs and turn their bytes into scalars
//! without asking: a path that is too short, an index beyond the arity or bytes
//! that are no scalar would panic there. What passes here cannot.

use blstrs::Scalar;
use filecoin_hashers::{Hasher, PoseidonArity};
use storage_proofs_core::merkle::{
    MerkleProof, MerkleProofTrait, MerkleTreeTrait, base_path_length,
};

/// An inclusion proof in a sector's tree.
pub(crate) type TreeProof<Tree> = MerkleProof<
    <Tree as MerkleTreeTrait>::Hasher,
    <Tree as MerkleTreeTrait>::Arity,
    <Tree as MerkleTreeTrait>::SubTreeArity,
    <Tree as MerkleTreeTrait>::TopTreeArity,
>;

/// Whether the bytes are the little-endian form of a scalar.
pub(crate) fn is_scalar(bytes: &[u8]) -> bool {
    <[u8; 32]>::try_from(bytes)
        .is_ok_and(|bytes| bool::from(Scalar::from_bytes_le(&bytes).is_some()))
}

/// Says so if the bytes are not a scalar.
pub(crate) fn scalar(name: &str, bytes: &[u8]) -> Result<(), String> {
    if is_scalar(bytes) {
        Ok(())
    } else {
        Err(format!("{name} is not an element of the scalar field"))
    }
}

/// Gives the proof back in the form that its tree has, if it is a proof of a tree
/// of so many leaves. Nothing is hashed here: whether the path leads to the root
/// is another question.
pub(crate) fn well_formed<H, Base, Sub, Top>(
    proof: &MerkleProof<H, Base, Sub, Top>,
    leaf_count: usize,
) -> Result<MerkleProof<H, Base, Sub, Top>, String>
where
    H: 'static + Hasher,
    Base: 'static + PoseidonArity,
    Sub: 'static + PoseidonArity,
    Top: 'static + PoseidonArity,
{
    let base_length = base_path_length::<Base, Sub, Top>(leaf_count);
    let upper = [Sub::to_usize(), Top::to_usize()];
    let arities: Vec<usize> = std::iter::repeat_n(Base::to_usize(), base_length)
        .chain(upper.into_iter().filter(|&arity| arity > 0))
        .collect();

    let path = proof.path();
    if path.len() != arities.len() {
        let (have, want) = (path.len(), arities.len());
        return Err(format!("the path has {have} levels, the tree has {want}"));
    }
    for (level, ((hashes, index), arity)) in path.iter().zip(arities).enumerate() {
        if hashes.len() != arity - 1 {
            let (have, want) = (hashes.len(), arity - 1);
            return Err(format!(
                "level {level} of the path has {have} siblings, the tree has {want}"
            ));
        }
        if *index >= arity {
            return Err(format!(
                "level {level} of the path has index {index}, the tree's arity is {arity}"
            ));
        }
        for hash in hashes {
            scalar(&format!("a sibling on level {level}"), hash.as_ref())?;
        }
    }
    scalar("the leaf", proof.leaf().as_ref())?;
    scalar("the root", proof.root().as_ref())?;
    Ok(MerkleProof::from_parts(proof.leaf(), proof.root(), path))
}
