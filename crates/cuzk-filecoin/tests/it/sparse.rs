//! Sparse trees against the stock trees.

use std::collections::BTreeMap;

use cuzk_filecoin::fixture::SparseTreeError;
use cuzk_filecoin::fixture::sparse::SparseTree;
use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::Sha256Hasher;
use filecoin_hashers::{Domain, Hasher};
use generic_array::typenum::{U0, U2, U8};
use merkletree::store::VecStore;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use storage_proofs_core::merkle::{
    MerkleProof, MerkleProofTrait, MerkleTreeTrait, MerkleTreeWrapper, generate_tree,
};

type Stock<H, A, S, T> = MerkleTreeWrapper<H, VecStore<<H as Hasher>::Domain>, A, S, T>;

/// Builds a stock tree and a sparse one over the same random leaves and compares
/// root and every opening; then the same sparse tree again, with all but three of
/// the leaves left to the pattern.
fn agrees<Tree>(leaf_count: usize, pattern_len: usize)
where
    Tree: MerkleTreeTrait,
    Tree::Store: 'static,
{
    let mut random = ChaCha20Rng::seed_from_u64(1);
    let (bytes, stock) = generate_tree::<Tree, _>(&mut random, leaf_count, None);
    let leaves: Vec<_> = bytes
        .chunks_exact(32)
        .map(|node| <Tree::Hasher as Hasher>::Domain::try_from_bytes(node).expect("32 bytes"))
        .collect();
    let all = leaves
        .iter()
        .copied()
        .zip(0u64..)
        .map(|(leaf, at)| (at, leaf));
    let sparse =
        SparseTree::<Tree::Proof>::build(leaf_count as u64, vec![leaves[0]], all.collect())
            .expect("the leaves fill the tree");
    assert_eq!(sparse.root(), stock.root());
    for (index, &leaf) in leaves.iter().enumerate() {
        let expected = stock.gen_proof(index).expect("stock proof");
        let proof = sparse.proof(index as u64).expect("inside");
        assert_eq!(proof.leaf(), leaf);
        assert_eq!(proof.path(), expected.path());
        assert_eq!(proof.root(), expected.root());
        assert!(proof.validate(index));
    }

    let pattern = leaves[..pattern_len].to_vec();
    let set: BTreeMap<u64, _> = [1, leaf_count / 2, leaf_count - 1]
        .map(|index| (index as u64, leaves[leaf_count - 2]))
        .into();
    let spelled_out = (0..leaf_count as u64)
        .map(|index| {
            let default = pattern[index as usize % pattern_len];
            (index, set.get(&index).copied().unwrap_or(default))
        })
        .collect();
    let full = SparseTree::<Tree::Proof>::build(leaf_count as u64, vec![leaves[0]], spelled_out)
        .expect("the leaves fill the tree");
    let sparse = SparseTree::<Tree::Proof>::build(leaf_count as u64, pattern, set)
        .expect("the pattern fills subtrees");
    for index in 0..leaf_count as u64 {
        assert_eq!(sparse.path(index), full.path(index));
    }
    assert_eq!(sparse.root(), full.root());
    assert_eq!(sparse.leaf(1), full.leaf(1));
}

#[test]
fn equals_the_stock_trees_of_every_shape() {
    agrees::<Stock<Sha256Hasher, U2, U0, U0>>(64, 16);
    agrees::<Stock<PoseidonHasher, U8, U0, U0>>(64, 8);
    agrees::<Stock<PoseidonHasher, U8, U2, U0>>(128, 1);
    agrees::<Stock<PoseidonHasher, U8, U8, U0>>(512, 64);
    agrees::<Stock<PoseidonHasher, U8, U8, U2>>(1024, 512);
}

/// A tree in regions, with a few leaves set, against the same leaves spelled out.
fn regions_agree<Tree: MerkleTreeTrait>(leaf_count: u64, region_count: u64, pattern_len: u64) {
    let leaf = |at: u64| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&at.to_le_bytes());
        <Tree::Hasher as Hasher>::Domain::try_from_bytes(&bytes).expect("32 bytes")
    };
    let patterns: Vec<Vec<_>> = (0..region_count)
        .map(|region| {
            let first = region * pattern_len;
            (first..first + pattern_len).map(leaf).collect()
        })
        .collect();
    let region_len = leaf_count / region_count;
    let set = BTreeMap::from([(2, leaf(1 << 40)), (leaf_count - 3, leaf(1 << 41))]);
    let spelled_out = (0..leaf_count)
        .map(|at| {
            let default = leaf(at / region_len * pattern_len + at % pattern_len);
            (at, set.get(&at).copied().unwrap_or(default))
        })
        .collect();
    let full = SparseTree::<Tree::Proof>::build(leaf_count, vec![leaf(0)], spelled_out)
        .expect("the leaves fill the tree");
    let sparse = SparseTree::<Tree::Proof>::build_regions(leaf_count, &patterns, set)
        .expect("the patterns fill the regions");
    assert_eq!(sparse.root(), full.root());
    for at in 0..leaf_count {
        assert_eq!(sparse.leaf(at), full.leaf(at));
        assert_eq!(sparse.path(at), full.path(at));
    }
}

/// Regions of every length beside the arity: whole nodes above them (64), some of
/// their nodes together in one above (4, 2), and a single leaf each.
#[test]
fn regions_equal_what_they_stand_for() {
    type Flat = Stock<PoseidonHasher, U8, U0, U0>;
    type Top = Stock<PoseidonHasher, U8, U8, U2>;
    for (region_count, pattern_len) in [(1, 8), (2, 8), (2, 64), (8, 1), (16, 8), (64, 8)] {
        regions_agree::<Flat>(512, region_count, pattern_len);
    }
    for (region_count, pattern_len) in [(16, 64), (32, 8), (128, 8), (256, 4), (1024, 1)] {
        regions_agree::<Top>(1024, region_count, pattern_len);
    }
    regions_agree::<Stock<Sha256Hasher, U2, U0, U0>>(64, 4, 4);
}

#[test]
fn refuses_what_does_not_fit() {
    type Proof = MerkleProof<PoseidonHasher, U8, U8, U2>;
    let node = |value: u8| PoseidonDomain::from([value; 32]);
    let build = |leaf_count, pattern_len, index| {
        let set = [(index, node(1))].into();
        SparseTree::<Proof>::build(leaf_count, vec![node(0); pattern_len], set)
            .map(|tree| tree.root())
            .expect_err("refused")
            .to_string()
    };
    let messages = [
        build(1000, 1, 0),
        build(16, 1, 0),
        build(1024, 12, 0),
        build(1024, 0, 0),
        build(1024, 1, 1024),
    ];
    insta::assert_snapshot!(messages.join("\n"), @"
    1000 leaves do not fill a tree of arities 8 (base), 8 (sub), 2 (top)
    16 leaves do not fill a tree of arities 8 (base), 8 (sub), 2 (top)
    12 default leaves do not fill a whole subtree of arities [8, 8, 8, 2]
    0 default leaves do not fill a whole subtree of arities [8, 8, 8, 2]
    leaf 1024 lies outside a tree of 1024 leaves
    ");
    let build_regions = |pattern_lens: &[usize]| {
        let patterns: Vec<_> = pattern_lens.iter().map(|&len| vec![node(0); len]).collect();
        SparseTree::<Proof>::build_regions(1024, &patterns, BTreeMap::new())
            .map(|tree| tree.root())
            .expect_err("refused")
            .to_string()
    };
    let messages = [
        build_regions(&[]),
        build_regions(&[8, 8, 8]),
        build_regions(&[8, 1]),
        build_regions(&[0, 0]),
        build_regions(&[1024, 1024]),
        build_regions(&[4, 4]),
    ];
    insta::assert_snapshot!(messages.join("\n"), @"
    0 patterns of default leaves do not cut 1024 leaves into equal regions
    3 patterns of default leaves do not cut 1024 leaves into equal regions
    2 patterns of default leaves do not cut 1024 leaves into equal regions
    0 default leaves do not fill a whole subtree of arities [8, 8, 8, 2]
    1024 default leaves do not fill a whole subtree of arities [8, 8, 8, 2]
    4 default leaves do not fill a whole subtree of arities [8, 8, 8, 2]
    ");
    let tree = SparseTree::<Proof>::build(1024, vec![node(0)], BTreeMap::new())
        .expect("the leaves fill the tree");
    let outside = SparseTreeError::Leaf {
        index: 1024,
        leaf_count: 1024,
    };
    assert_eq!(tree.path(1024), Err(outside));
}
