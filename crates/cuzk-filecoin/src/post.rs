//! WinningPoSt and WindowPoSt: bincode sector proofs to one part.

use std::borrow::Cow;

use bellpepper_core::{Circuit, SynthesisError};
use blstrs::Scalar;
use cuzk_core::WorkloadError;
use cuzk_synth::Pass;
use filecoin_hashers::poseidon::PoseidonDomain;
use filecoin_proofs::parameters::{window_post_public_params, winning_post_public_params};
use filecoin_proofs::{FallbackPoStSectorProof, PoStConfig};
use rayon::prelude::*;
use storage_proofs_core::api_version::ApiVersion;
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_core::merkle::MerkleProofTrait;
use storage_proofs_core::proof::ProofScheme;
use storage_proofs_post::fallback::{
    FallbackPoSt, FallbackPoStCircuit, FallbackPoStCompound, Proof, PublicInputs, PublicParams,
    PublicSector, Sector, SectorProof, generate_leaf_challenge, get_challenge_index,
};

use crate::circuits::FilecoinCircuit;
use crate::error::{bincode_exact, fault, item};
use crate::merkle::{scalar, well_formed};
use crate::registered::post_proof;
use crate::request::{Request, bytes32, prover_id};
use crate::shape::{Shape, with_tree};
use crate::sizes::{ProofKind, SectorSize};
use crate::workload::{FilecoinWorkload, Job};

/// Partitions that the chain allows in a deadline.
pub(crate) const PARTITIONS_MAX: u32 = 3000;

const PROOFS: &str = "vanilla_proofs";

pub(crate) fn workload(
    request: &Request,
    size: SectorSize,
) -> Result<FilecoinWorkload, WorkloadError> {
    request.sends_a_list("sector")?;
    with_tree!(size, parse(request, size))
}

/// A PoSt of one partition.
struct PostJob<Tree: Shape> {
    kind: ProofKind,
    partition_index: u32,
    params: PublicParams,
    /// Of this partition alone, as if it were the first.
    inputs: PublicInputs<PoseidonDomain>,
    /// Of the sectors that the request has: the free places of the circuit are filled
    /// when it is synthesised, so that a job is no larger than its request.
    proof: Proof<Tree::Proof>,
}

fn parse<Tree: Shape>(
    request: &Request,
    size: SectorSize,
) -> Result<FilecoinWorkload, WorkloadError> {
    let kind = request.proof_kind;
    let config = post_proof(request.registered_proof, kind, size)?.as_v1_config();
    check_partition(request)?;
    let count = request.vanilla_proofs.len();
    // One sector for WinningPoSt, up to a full partition for WindowPoSt.
    let most = config.sector_count;
    if count == 0 || count > most {
        let takes = if most == 1 {
            "1"
        } else {
            &format!("1 to {most}")
        };
        let reason = format!("{count} sectors; {kind} {size} takes {takes}");
        return Err(fault(PROOFS, reason));
    }
    // What the chain does to make a field element of any 32 bytes.
    let mut randomness = bytes32("randomness", &request.randomness)?;
    randomness[31] &= 0x3f;

    let mut sectors = Vec::with_capacity(count);
    let mut proofs = Vec::with_capacity(count);
    for (index, bytes) in request.vanilla_proofs.iter().enumerate() {
        let (sector, proof) = sector_proof::<Tree>(bytes, &config, size)
            .map_err(|reason| fault(item(PROOFS, index), reason))?;
        // The chain lists the sectors of a partition in ascending order, and so does
        // every verifier: in another order the proof would be for nobody.
        if let Some(before) = sectors.last().map(|before: &PublicSector<_>| before.id)
            && before >= sector.id
        {
            let reason = format!(
                "sector {} comes after sector {before}; sectors must ascend",
                u64::from(sector.id),
                before = u64::from(before),
            );
            return Err(fault(item(PROOFS, index), reason));
        }
        sectors.push(sector);
        proofs.push(proof);
    }
    let params = match kind {
        ProofKind::WinningPost => winning_post_public_params::<Tree>(&config),
        _ => window_post_public_params::<Tree>(&config),
    }
    .map_err(|error| fault("registered_proof", format!("{error:#}")))?;
    if kind == ProofKind::WinningPost {
        (sectors, proofs) = unroll(sectors, proofs, params.sector_count);
    }
    let job = PostJob::<Tree> {
        kind,
        partition_index: request.partition_index,
        inputs: PublicInputs {
            randomness: randomness.into(),
            prover_id: prover_id(request.miner_id).into(),
            sectors,
            k: Some(0),
        },
        params,
        proof: Proof { sectors: proofs },
    };
    let (partition, miner) = (request.partition_index, request.miner_id);
    let subject = match kind {
        ProofKind::WinningPost => format!("of miner {miner}"),
        _ => format!("partition {partition} ({count} sectors) of miner {miner}"),
    };
    let circuit = FilecoinCircuit::new(kind, size);
    Ok(FilecoinWorkload::new(circuit, subject, 1, job))
}

fn check_partition(request: &Request) -> Result<(), WorkloadError> {
    let (kind, index) = (request.proof_kind, request.partition_index);
    let reason = match kind {
        ProofKind::WinningPost if index != 0 => format!("{index}; {kind} has one partition"),
        _ if index >= PARTITIONS_MAX => {
            format!("{index}; a deadline has at most {PARTITIONS_MAX} partitions")
        }
        _ => return Ok(()),
    };
    Err(fault("partition_index", reason))
}

type SectorParts<Tree> = (
    PublicSector<PoseidonDomain>,
    SectorProof<<Tree as storage_proofs_core::merkle::MerkleTreeTrait>::Proof>,
);

/// One sector's bincode, checked so far that nothing below can panic on it.
fn sector_proof<Tree: Shape>(
    bytes: &[u8],
    config: &PoStConfig,
    size: SectorSize,
) -> Result<SectorParts<Tree>, String> {
    let proof: FallbackPoStSectorProof<Tree> = bincode_exact("FallbackPoStSectorProof", bytes)?;
    let mut sectors = proof.vanilla_proof.sectors;
    let (Some(mut sector), true) = (sectors.pop(), sectors.is_empty()) else {
        return Err("must hold the proof of exactly one sector".into());
    };
    let (have, want) = (sector.inclusion_proofs.len(), config.challenge_count);
    if have != want {
        return Err(format!("{have} inclusion proofs, must be {want}"));
    }
    scalar("comm_r", proof.comm_r.as_ref())?;
    scalar("comm_c", sector.comm_c.as_ref())?;
    let leaf_count = usize::try_from(size.node_count()).map_err(|_| "size past this machine")?;
    for (index, inclusion) in sector.inclusion_proofs.iter_mut().enumerate() {
        *inclusion = well_formed(inclusion, leaf_count)
            .map_err(|reason| format!("inclusion proof {index}: {reason}"))?;
        if inclusion.root() != sector.comm_r_last {
            return Err(format!(
                "inclusion proof {index}: its root is not comm_r_last"
            ));
        }
    }
    let public = PublicSector {
        id: proof.sector_id,
        comm_r: proof.comm_r,
    };
    Ok((public, sector))
}

/// WinningPoSt challenges one sector many times, and its circuit takes each
/// challenge as a sector of its own.
fn unroll<P: MerkleProofTrait>(
    sectors: Vec<PublicSector<PoseidonDomain>>,
    proofs: Vec<SectorProof<P>>,
    places: usize,
) -> (Vec<PublicSector<PoseidonDomain>>, Vec<SectorProof<P>>) {
    let sectors = sectors
        .into_iter()
        .flat_map(|sector| std::iter::repeat_n(sector, places))
        .collect();
    let proofs = proofs
        .into_iter()
        .flat_map(|proof| {
            let (comm_c, comm_r_last) = (proof.comm_c, proof.comm_r_last);
            let one = move |inclusion| SectorProof {
                inclusion_proofs: vec![inclusion],
                comm_c,
                comm_r_last,
            };
            proof.inclusion_proofs.into_iter().map(one)
        })
        .collect();
    (sectors, proofs)
}

impl<Tree: Shape> PostJob<Tree> {
    fn is_winning(&self) -> bool {
        self.kind == ProofKind::WinningPost
    }

    /// The proof with as many sectors as the circuit has places: the free ones repeat
    /// the last sector. Up to 65 MB where a partition of 32 GiB sectors is nearly empty.
    fn filled(&self) -> Cow<'_, Proof<Tree::Proof>> {
        let sectors = &self.proof.sectors;
        match sectors.last() {
            Some(last) if sectors.len() < self.params.sector_count => {
                let mut sectors = sectors.clone();
                sectors.resize(self.params.sector_count, last.clone());
                Cow::Owned(Proof { sectors })
            }
            _ => Cow::Borrowed(&self.proof),
        }
    }

    /// The challenges of the old API depend on a sector's place in the whole
    /// deadline, those of the new one do not.
    fn depends_on_partition(&self) -> bool {
        self.params.api_version < ApiVersion::V1_2_0
    }

    /// Public inputs of a later partition whose challenges depend on its index.
    /// The circuit crates would want the sectors of all partitions before it,
    /// only to count them.
    fn shifted_inputs(&self, partition: usize) -> Vec<Scalar> {
        let places = self.params.sector_count;
        let count = self.params.challenge_count;
        let mut inputs = Vec::with_capacity(places * (count + 1));
        for (place, sector) in self.inputs.sectors.iter().enumerate() {
            inputs.push(sector.comm_r.into());
            for challenge in 0..count {
                let index = get_challenge_index(
                    self.params.api_version,
                    partition * places + place,
                    count,
                    challenge,
                );
                let leaf = generate_leaf_challenge(
                    &self.params,
                    self.inputs.randomness,
                    sector.id.into(),
                    index,
                );
                inputs.push(Scalar::from(leaf));
            }
        }
        let last = inputs[inputs.len() - (count + 1)..].to_vec();
        while inputs.len() < places * (count + 1) {
            inputs.extend_from_slice(&last);
        }
        inputs
    }
}

impl<Tree: Shape> Job for PostJob<Tree> {
    /// One a place of a sector.
    fn segments(&self) -> usize {
        self.params.sector_count
    }

    fn synthesize_segment(
        &self,
        _: usize,
        place: usize,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        // Free places repeat the last sector.
        let (sectors, proofs) = (&self.inputs.sectors, &self.proof.sectors);
        let place = place.min(sectors.len() - 1);
        let sector = Sector::circuit(&sectors[place], &proofs[place])
            .map_err(|_| SynthesisError::Unsatisfiable)?;
        FallbackPoStCircuit::<Tree> {
            prover_id: Some(self.inputs.prover_id.into()),
            sectors: vec![sector],
        }
        .synthesize(pass)
    }

    fn synthesize(&self, _: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        let proof = self.filled();
        let circuit: FallbackPoStCircuit<Tree> = FallbackPoStCompound::circuit(
            &self.inputs,
            Default::default(),
            &proof,
            &self.params,
            Some(0),
        )
        .map_err(|_| SynthesisError::Unsatisfiable)?;
        circuit.synthesize(pass)
    }

    fn public_inputs(&self, _: usize) -> Result<Vec<Scalar>, WorkloadError> {
        let partition = self.partition_index as usize;
        if partition > 0 && self.depends_on_partition() {
            return Ok(self.shifted_inputs(partition));
        }
        FallbackPoStCompound::<Tree>::generate_public_inputs(&self.inputs, &self.params, Some(0))
            .map_err(|error| fault(PROOFS, format!("{error:#}")))
    }

    fn check_part(&self, _: usize) -> Result<(), WorkloadError> {
        // Of several that are wrong, the first is told.
        let places = 0..self.inputs.sectors.len();
        let checked = places.into_par_iter().map(|place| self.check_sector(place));
        checked.find_first(Result::is_err).unwrap_or(Ok(()))
    }
}

impl<Tree: Shape> PostJob<Tree> {
    /// One sector alone, so that the error names it. It keeps its place through the
    /// partition index of a partition with one place.
    fn check_sector(&self, place: usize) -> Result<(), WorkloadError> {
        let single = PublicParams {
            sector_count: 1,
            ..self.params.clone()
        };
        let sector = &self.inputs.sectors[place];
        let first = self.partition_index as usize * self.params.sector_count;
        let inputs = PublicInputs {
            sectors: vec![sector.clone()],
            k: Some(first + place),
            ..self.inputs
        };
        let proof = Proof {
            sectors: vec![self.proof.sectors[place].clone()],
        };
        let holds = FallbackPoSt::<Tree>::verify(&single, &inputs, &proof)
            .map_err(|error| fault(PROOFS, format!("{error:#}")))?;
        if holds {
            return Ok(());
        }
        let id = u64::from(sector.id);
        let (field, what) = if self.is_winning() {
            (item(PROOFS, 0), format!("challenge {place} of sector {id}"))
        } else {
            (item(PROOFS, place), format!("the proof of sector {id}"))
        };
        let reason = "does not hold for its comm_r and the challenges of this randomness";
        Err(fault(field, format!("{what} {reason}")))
    }
}
