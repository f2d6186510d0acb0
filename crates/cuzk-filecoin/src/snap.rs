//! SnapDeals: bincode partition proofs of a replica update, one part each.

mod circuit;

use bellpepper_core::{Circuit, SynthesisError};
use blstrs::Scalar;
use cuzk_core::WorkloadError;
use cuzk_synth::Pass;
use filecoin_hashers::sha256::{Sha256Domain, Sha256Hasher};
use filecoin_hashers::{HashFunction, Hasher};
use generic_array::typenum::U2;
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_core::merkle::{MerkleProof, MerkleProofTrait};
use storage_proofs_core::proof::ProofScheme;
use storage_proofs_update::constants::h_default;
use storage_proofs_update::{
    EmptySectorUpdate, EmptySectorUpdateCircuit, EmptySectorUpdateCompound, PartitionProof,
    PublicInputs, PublicParams,
};

pub(crate) use circuit::APART;

use crate::circuits::FilecoinCircuit;
use crate::error::{bincode_exact, fault, item};
use crate::merkle::{is_scalar, scalar, well_formed};
use crate::registered::same_update_proof;
use crate::request::{Request, bytes32};
use crate::shape::{Shape, with_tree};
use crate::sizes::{ProofKind, SectorSize};
use crate::workload::{FilecoinWorkload, Job};

const PROOFS: &str = "vanilla_proofs";

pub(crate) fn workload(
    request: &Request,
    size: SectorSize,
) -> Result<FilecoinWorkload, WorkloadError> {
    request.sends_a_list("partition")?;
    same_update_proof(request.registered_proof, size)?;
    with_tree!(size, parse(request, size))
}

/// An update with the vanilla proofs of all partitions.
struct SnapJob<Tree: Shape> {
    params: PublicParams,
    /// The partition is filled in where it is needed.
    inputs: PublicInputs,
    proofs: Vec<PartitionProof<Tree>>,
}

fn parse<Tree: Shape>(
    request: &Request,
    size: SectorSize,
) -> Result<FilecoinWorkload, WorkloadError> {
    let params = PublicParams::from_sector_size(size.bytes());
    let (have, want) = (request.vanilla_proofs.len(), params.partition_count);
    if have != want {
        return Err(fault(PROOFS, format!("{have} partitions, must be {want}")));
    }
    let inputs = PublicInputs {
        k: 0,
        comm_r_old: commitment("comm_r_old", &request.comm_r_old)?.into(),
        comm_d_new: commitment("comm_d_new", &request.comm_d_new)?.into(),
        comm_r_new: commitment("comm_r_new", &request.comm_r_new)?.into(),
        h: h_default(params.sector_nodes),
    };
    let proofs = request
        .vanilla_proofs
        .iter()
        .enumerate()
        .map(|(index, bytes)| {
            partition_proof(bytes, &params).map_err(|reason| fault(item(PROOFS, index), reason))
        })
        .collect::<Result<_, _>>()?;
    let job = SnapJob::<Tree> {
        params,
        inputs,
        proofs,
    };
    Ok(FilecoinWorkload::new(
        FilecoinCircuit::new(ProofKind::SnapDeals, size),
        request.sector(),
        job.proofs.len(),
        job,
    ))
}

fn commitment(field: &str, bytes: &[u8]) -> Result<[u8; 32], WorkloadError> {
    let bytes = bytes32(field, bytes)?;
    if bytes == [0; 32] {
        return Err(fault(field, "all zeros"));
    }
    if !is_scalar(&bytes) {
        return Err(fault(field, "not an element of the scalar field"));
    }
    Ok(bytes)
}

/// One partition's bincode, checked so far that nothing below can panic on it.
fn partition_proof<Tree: Shape>(
    bytes: &[u8],
    params: &PublicParams,
) -> Result<PartitionProof<Tree>, String> {
    let mut proof: PartitionProof<Tree> = bincode_exact("PartitionProof", bytes)?;
    let counts = [
        ("apex leafs", proof.apex_leafs.len(), params.apex_leaf_count),
        (
            "challenge proofs",
            proof.challenge_proofs.len(),
            params.challenge_count,
        ),
    ];
    for (name, have, want) in counts {
        if have != want {
            return Err(format!("{have} {name}, must be {want}"));
        }
    }
    scalar("comm_c", proof.comm_c.as_ref())?;
    for (index, leaf) in proof.apex_leafs.iter().enumerate() {
        scalar(&format!("apex leaf {index}"), leaf.as_ref())?;
    }
    let leaf_count = params.sector_nodes;
    for (index, challenge) in proof.challenge_proofs.iter_mut().enumerate() {
        let of = |name: &'static str| move |reason| format!("challenge {index}: {name}: {reason}");
        challenge.proof_r_old =
            well_formed(&challenge.proof_r_old, leaf_count).map_err(of("proof_r_old"))?;
        challenge.proof_d_new =
            well_formed(&challenge.proof_d_new, leaf_count).map_err(of("proof_d_new"))?;
        challenge.proof_r_new =
            well_formed(&challenge.proof_r_new, leaf_count).map_err(of("proof_r_new"))?;
    }
    // The circuit takes the path from the partition's subtree to the root of the
    // data from the first challenge, and insists that the others have it too.
    let upper = upper_path(&proof, params, 0);
    let siblings = |path: &[(Vec<Sha256Domain>, usize)]| -> Vec<Sha256Domain> {
        path.iter().flat_map(|(hashes, _)| hashes.clone()).collect()
    };
    for index in 1..proof.challenge_proofs.len() {
        if siblings(&upper_path(&proof, params, index)) != siblings(&upper) {
            return Err(format!(
                "challenge {index}: proof_d_new: leaves the partition of challenge 0"
            ));
        }
    }
    Ok(proof)
}

/// The levels of a challenge's data path above its partition's subtree.
fn upper_path<Tree: Shape>(
    proof: &PartitionProof<Tree>,
    params: &PublicParams,
    challenge: usize,
) -> Vec<(Vec<Sha256Domain>, usize)> {
    let mut path = proof.challenge_proofs[challenge].proof_d_new.path();
    path.split_off(path.len() - params.partition_bit_len)
}

/// Root of the binary tree over the apex leafs, whose count is a power of two.
fn apex_root(mut row: Vec<Sha256Domain>) -> Sha256Domain {
    while row.len() > 1 {
        row = row
            .chunks(2)
            .map(|pair| <Sha256Hasher as Hasher>::Function::hash2(&pair[0], &pair[1]))
            .collect();
    }
    row[0]
}

impl<Tree: Shape> Job for SnapJob<Tree> {
    /// One a challenge.
    fn segments(&self) -> usize {
        self.params.challenge_count
    }

    fn synthesize_segment(
        &self,
        partition: usize,
        challenge: usize,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        let inputs = storage_proofs_update::circuit::PublicInputs::new(
            self.params.sector_nodes,
            partition,
            self.inputs.h,
            self.inputs.comm_r_old,
            self.inputs.comm_d_new,
            self.inputs.comm_r_new,
        );
        let partition = circuit::Partition {
            params: &self.params,
            inputs: &inputs,
            proof: &self.proofs[partition],
        };
        partition.synthesize(challenge..challenge + 1, pass)
    }

    fn synthesize(&self, partition: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        let circuit: EmptySectorUpdateCircuit<Tree> = EmptySectorUpdateCompound::circuit(
            &self.inputs,
            (),
            &self.proofs[partition],
            &self.params,
            Some(partition),
        )
        .map_err(|_| SynthesisError::Unsatisfiable)?;
        circuit.synthesize(pass)
    }

    fn public_inputs(&self, partition: usize) -> Result<Vec<Scalar>, WorkloadError> {
        EmptySectorUpdateCompound::<Tree>::generate_public_inputs(
            &self.inputs,
            &self.params,
            Some(partition),
        )
        .map_err(|error| fault(PROOFS, format!("{error:#}")))
    }

    fn check_part(&self, partition: usize) -> Result<(), WorkloadError> {
        let proof = &self.proofs[partition];
        let at = |reason: &str| fault(item(PROOFS, partition), reason);
        let inputs = PublicInputs {
            k: partition,
            ..self.inputs.clone()
        };
        let holds = EmptySectorUpdate::<Tree>::verify(&self.params, &inputs, proof)
            .map_err(|error| at(&format!("{error:#}")))?;
        if !holds {
            return Err(at(
                "does not hold for these commitments and the challenges of comm_r_new",
            ));
        }
        // The circuit crates check only the apex leafs that a path goes by.
        let path = upper_path(proof, &self.params, 0);
        let rooted: MerkleProof<Sha256Hasher, U2> = MerkleProof::from_parts(
            apex_root(proof.apex_leafs.clone()),
            self.inputs.comm_d_new,
            path,
        );
        if !rooted.validate(partition) {
            return Err(at("its apex leafs do not lead to comm_d_new"));
        }
        Ok(())
    }
}
