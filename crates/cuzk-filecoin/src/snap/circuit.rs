//! The circuit of an update's partition, challenge by challenge.
//!
//! The circuit crates synthesise all challenges of a partition or none, since what draws
//! them is theirs alone. This is the same circuit for some of the challenges: variable by
//! variable and row by row, which tests hold beside the stock one. It is used for
//! segments; what they repeat, a whole part and a key come from the stock circuit.

use std::ops::Range;

use bellpepper_core::boolean::{AllocatedBit, Boolean};
use bellpepper_core::num::AllocatedNum;
use bellpepper_core::{ConstraintSystem, LinearCombination, SynthesisError};
use bellperson::gadgets::multipack::pack_bits;
use blstrs::Scalar;
use ff::{Field, PrimeField, PrimeFieldBits};
use filecoin_hashers::sha256::Sha256Hasher;
use filecoin_hashers::{HashFunction, Hasher};
use neptune::circuit::poseidon_hash;
use storage_proofs_core::gadgets::insertion::select;
use storage_proofs_core::gadgets::por::por_no_challenge_input;
use storage_proofs_core::merkle::MerkleProofTrait;
use storage_proofs_update::circuit::PublicInputs;
use storage_proofs_update::constants::{POSEIDON_CONSTANTS_GEN_RANDOMNESS, TreeD, hs};
use storage_proofs_update::{ChallengeProof, PartitionProof, PublicParams};

use cuzk_synth::Pass;

use crate::shape::Shape;

/// Name of what is apart: the tree over the apex leafs, of which no challenge uses a node.
pub(crate) const APART: &str = "apex_gadget";

type Num = AllocatedNum<Scalar>;

/// A partition with its witness.
pub(super) struct Partition<'a, Tree: Shape> {
    pub(super) params: &'a PublicParams,
    pub(super) inputs: &'a PublicInputs,
    pub(super) proof: &'a PartitionProof<Tree>,
}

/// What all challenges share.
struct Shared {
    partition_bits: Vec<AllocatedBit>,
    h_select_bits: Vec<AllocatedBit>,
    phi: Num,
    root_r_old: Num,
    root_r_new: Num,
    apex_leafs: Vec<Num>,
    /// The bits of each challenge, without those of the partition.
    challenges: Vec<Vec<AllocatedBit>>,
}

impl<Tree: Shape> Partition<'_, Tree> {
    /// What is shared, then some of the challenges.
    pub(super) fn synthesize(
        &self,
        challenges: Range<usize>,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        let shared = self.shared(pass)?;
        for challenge in challenges {
            self.challenge(&shared, challenge, pass)?;
        }
        Ok(())
    }

    fn shared(&self, pass: &mut Pass<'_>) -> Result<Shared, SynthesisError> {
        let Self {
            params,
            inputs,
            proof,
        } = self;
        let k_and_h = public(pass, inputs.k_and_h_select)?;
        let bit_count = params.partition_bit_len + hs(params.sector_nodes).len();
        let mut partition_bits = bits(pass, &k_and_h, bit_count)?;
        let h_select_bits = partition_bits.split_off(params.partition_bit_len);
        let partition = pack(pass, &partition_bits)?;
        let comm_r_old = public(pass, inputs.comm_r_old)?;
        let comm_d_new = public(pass, inputs.comm_d_new)?;
        let comm_r_new = public(pass, inputs.comm_r_new)?;
        let phi = random(pass, &comm_d_new, &comm_r_old)?;

        let first = &proof.challenge_proofs[0];
        let comm_c = private(pass, proof.comm_c)?;
        let root_r_old = private(pass, first.proof_r_old.root())?;
        let root_r_new = private(pass, first.proof_r_new.root())?;
        let apex_leafs = all(pass, &proof.apex_leafs)?;
        let mut path = first.proof_d_new.path();
        let path = path.split_off(path.len() - params.partition_bit_len);
        let path = siblings(pass, &path)?;
        for (root, comm_r) in [(&root_r_old, &comm_r_old), (&root_r_new, &comm_r_new)] {
            let space = pass.namespace(|| "comm_r");
            let computed = <Tree::Hasher as Hasher>::Function::hash2_circuit(space, &comm_c, root)?;
            equal(pass, |lc| lc + computed.get_variable(), comm_r);
        }
        if !pass.leaves_out() {
            let space = &mut pass.namespace(|| APART);
            let root = apex_root(space, &apex_leafs)?;
            let space = space.namespace(|| "partition's path");
            por_no_challenge_input::<TreeD, _>(
                space,
                partition_bits.clone(),
                root,
                path,
                comm_d_new,
            )?;
        }
        let challenges = self.draw(pass, &comm_r_new, &partition)?;
        Ok(Shared {
            partition_bits,
            h_select_bits,
            phi,
            root_r_old,
            root_r_new,
            apex_leafs,
            challenges,
        })
    }

    /// The random bits of all challenges: pieces of digests of the new replica.
    fn draw(
        &self,
        pass: &mut Pass<'_>,
        comm_r_new: &Num,
        partition: &Num,
    ) -> Result<Vec<Vec<AllocatedBit>>, SynthesisError> {
        let each = self.params.challenge_bit_len - self.params.partition_bit_len;
        let count = self.params.challenge_count;
        let per_digest = Scalar::CAPACITY as usize / each;
        let digests = Scalar::from(count.div_ceil(per_digest) as u64);
        let mut challenges = Vec::with_capacity(count);
        let mut digest_number = 0;
        while challenges.len() < count {
            let number = Scalar::from(digest_number);
            let value = partition.get_value().map(|k| k * digests + number);
            let index = private(pass, or_missing(value)?)?;
            let of = partition.get_variable();
            equal(
                pass,
                |lc| lc + (digests, of) + (number, Pass::one()),
                &index,
            );
            let digest = random(pass, comm_r_new, &index)?;
            let bits = bits(pass, &digest, Scalar::NUM_BITS as usize)?;
            let wanted = per_digest.min(count - challenges.len());
            challenges.extend(bits.chunks(each).take(wanted).map(<[_]>::to_vec));
            digest_number += 1;
        }
        Ok(challenges)
    }

    fn challenge(
        &self,
        shared: &Shared,
        index: usize,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        let ChallengeProof {
            proof_r_old,
            proof_d_new,
            proof_r_new,
        } = &self.proof.challenge_proofs[index];
        let within = &shared.challenges[index];
        let mut c_bits = within.clone();
        c_bits.extend_from_slice(&shared.partition_bits);

        let high = self.high_bits(pass, &c_bits, &shared.h_select_bits)?;
        let rho = random(pass, &shared.phi, &high)?;
        let leaf_r_old = private(pass, proof_r_old.leaf())?;
        let leaf_d_new = private(pass, proof_d_new.leaf())?;
        let leaf_r_new = encode(pass, &leaf_r_old, &leaf_d_new, &rho)?;
        let claimed: Scalar = proof_r_new.leaf().into();
        if leaf_r_new.get_value().is_some_and(|leaf| leaf != claimed) {
            return Err(SynthesisError::Unsatisfiable);
        }
        let trees = [
            (proof_r_old.path(), leaf_r_old, &shared.root_r_old),
            (proof_r_new.path(), leaf_r_new, &shared.root_r_new),
        ];
        for (path, leaf, root) in trees {
            let path = siblings(pass, &path)?;
            let space = pass.namespace(|| "replica's path");
            por_no_challenge_input::<Tree, _>(space, c_bits.clone(), leaf, path, root.clone())?;
        }
        // A challenge's lower bits lead to an apex leaf, and the next ones say to which.
        let below = within.len() - self.params.apex_leaf_bit_len;
        let (to_apex, apex) = within.split_at(below);
        let space = pass.namespace(|| "apex leaf");
        let apex_leaf = select(space, &shared.apex_leafs, &booleans(apex))?;
        let path = siblings(pass, &proof_d_new.path()[..below])?;
        let space = pass.namespace(|| "data's path");
        por_no_challenge_input::<TreeD, _>(space, to_apex.to_vec(), leaf_d_new, path, apex_leaf)
    }

    /// The high bits of a challenge as a number, as many as the one selecting bit says.
    fn high_bits(
        &self,
        pass: &mut Pass<'_>,
        c_bits: &[AllocatedBit],
        h_select_bits: &[AllocatedBit],
    ) -> Result<Num, SynthesisError> {
        let mut candidates = Vec::with_capacity(h_select_bits.len());
        for (h, select) in hs(self.params.sector_nodes).into_iter().zip(h_select_bits) {
            let high = pack(pass, &c_bits[c_bits.len() - h..])?;
            let value = high.get_value().zip(select.get_value());
            let value = value.map(|(high, is_it)| if is_it { high } else { Scalar::ZERO });
            let candidate = private(pass, or_missing(value)?)?;
            pass.enforce(
                || "high bits, if selected",
                |lc| lc + high.get_variable(),
                |lc| lc + select.get_variable(),
                |lc| lc + candidate.get_variable(),
            );
            candidates.push(candidate);
        }
        let value = candidates
            .iter()
            .map(Num::get_value)
            .sum::<Option<Scalar>>();
        let selected = private(pass, or_missing(value)?)?;
        let sum = |lc| {
            let variables = candidates.iter().map(Num::get_variable);
            variables.fold(lc, |lc, variable| lc + variable)
        };
        equal(pass, sum, &selected);
        Ok(selected)
    }
}

/// The root over the apex leafs, whose number is a power of two.
fn apex_root(
    space: &mut impl ConstraintSystem<Scalar>,
    leafs: &[Num],
) -> Result<Num, SynthesisError> {
    let mut row = leafs.to_vec();
    while row.len() > 1 {
        let mut parents = Vec::with_capacity(row.len() / 2);
        for pair in row.chunks(2) {
            let space = space.namespace(|| "apex node");
            let hash = <Sha256Hasher as Hasher>::Function::hash2_circuit(space, &pair[0], &pair[1]);
            parents.push(hash?);
        }
        row = parents;
    }
    Ok(row[0].clone())
}

/// The new label of a node: the old one and a multiple of its data.
fn encode(
    pass: &mut Pass<'_>,
    leaf_r_old: &Num,
    leaf_d_new: &Num,
    rho: &Num,
) -> Result<Num, SynthesisError> {
    let product = leaf_d_new.mul(pass.namespace(|| "data times rho"), rho)?;
    let values = leaf_r_old.get_value().zip(product.get_value());
    let label = private(pass, or_missing(values.map(|(old, more)| old + more))?)?;
    let terms = [leaf_r_old.get_variable(), product.get_variable()];
    equal(pass, |lc| lc + terms[0] + terms[1], &label);
    Ok(label)
}

/// The hash that randomness is drawn with.
fn random(pass: &mut Pass<'_>, left: &Num, right: &Num) -> Result<Num, SynthesisError> {
    let space = pass.namespace(|| "random");
    let input = vec![left.clone(), right.clone()];
    poseidon_hash(space, input, &*POSEIDON_CONSTANTS_GEN_RANDOMNESS)
}

fn private(pass: &mut Pass<'_>, value: impl Into<Scalar>) -> Result<Num, SynthesisError> {
    let value = value.into();
    Num::alloc(pass.namespace(|| "value"), || Ok(value))
}

fn public(pass: &mut Pass<'_>, value: Option<Scalar>) -> Result<Num, SynthesisError> {
    let number = private(pass, or_missing(value)?)?;
    number.inputize(pass.namespace(|| "public"))?;
    Ok(number)
}

fn all<T: Copy + Into<Scalar>>(
    pass: &mut Pass<'_>,
    values: &[T],
) -> Result<Vec<Num>, SynthesisError> {
    let values = values.iter();
    values.map(|&value| private(pass, value)).collect()
}

/// The siblings of a path, level by level.
fn siblings<T: Copy + Into<Scalar>>(
    pass: &mut Pass<'_>,
    path: &[(Vec<T>, usize)],
) -> Result<Vec<Vec<Num>>, SynthesisError> {
    let levels = path.iter();
    levels.map(|(siblings, _)| all(pass, siblings)).collect()
}

/// The lowest bits of a number that has no others, the lowest first.
fn bits(
    pass: &mut Pass<'_>,
    number: &Num,
    count: usize,
) -> Result<Vec<AllocatedBit>, SynthesisError> {
    let values = number.get_value().map(|value| value.to_le_bits());
    let mut bits = Vec::with_capacity(count);
    for index in 0..count {
        let value = values.as_ref().map(|values| values[index]);
        bits.push(AllocatedBit::alloc(pass.namespace(|| "bit"), value)?);
    }
    let sum = |lc: LinearCombination<Scalar>| {
        let mut power = Scalar::ONE;
        bits.iter().fold(lc, |lc, bit| {
            let lc = lc + (power, bit.get_variable());
            power = power.double();
            lc
        })
    };
    equal(pass, sum, number);
    Ok(bits)
}

fn pack(pass: &mut Pass<'_>, bits: &[AllocatedBit]) -> Result<Num, SynthesisError> {
    pack_bits(pass.namespace(|| "pack"), &booleans(bits))
}

fn booleans(bits: &[AllocatedBit]) -> Vec<Boolean> {
    bits.iter().cloned().map(Boolean::from).collect()
}

/// A row that says what a sum is.
fn equal(
    pass: &mut Pass<'_>,
    sum: impl FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    number: &Num,
) {
    pass.enforce(
        || "sum",
        sum,
        |lc| lc + Pass::one(),
        |lc| lc + number.get_variable(),
    );
}

fn or_missing(value: Option<Scalar>) -> Result<Scalar, SynthesisError> {
    value.ok_or(SynthesisError::AssignmentMissing)
}
