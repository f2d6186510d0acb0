//! PoRep C2: a C1 output to one part a partition.

use bellpepper_core::{Circuit, SynthesisError};
use blstrs::Scalar;
use cuzk_core::WorkloadError;
use cuzk_synth::Pass;
use filecoin_hashers::HashFunction;
use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonFunction};
use filecoin_hashers::sha256::Sha256Domain;
use filecoin_proofs::constants::{DefaultPieceHasher, DefaultTreeHasher};
use filecoin_proofs::parameters::public_params;
use filecoin_proofs_api::{ApiFeature, RegisteredSealProof};
use rayon::prelude::*;
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_core::drgraph::Graph;
use storage_proofs_core::merkle::MerkleProofTrait;
use storage_proofs_porep::stacked::{
    self, PublicInputs, PublicParams, StackedCircuit, StackedCompound, StackedDrg, Tau,
    generate_replica_id,
};

use crate::c1::{self, C1, ChallengeProof, Opened, VanillaProofs};
use crate::circuits::FilecoinCircuit;
use crate::error::fault;
use crate::merkle::scalar;
use crate::registered::seal_proof;
use crate::request::{Request, prover_id};
use crate::shape::Shape;
use crate::sizes::{ProofKind, SectorSize};
use crate::workload::{FilecoinWorkload, Job};

const FIELD: &str = "vanilla_proof";

type Inputs = PublicInputs<PoseidonDomain, Sha256Domain>;
type Compound<Tree> = StackedCompound<Tree, DefaultPieceHasher>;
type VanillaProof<Tree> = stacked::Proof<Tree, DefaultPieceHasher>;

pub(crate) fn workload(
    request: &Request,
    size: SectorSize,
) -> Result<FilecoinWorkload, WorkloadError> {
    if !request.vanilla_proofs.is_empty() {
        let reason = format!("{} takes a C1 output in vanilla_proof", request.proof_kind);
        return Err(fault("vanilla_proofs", reason));
    }
    let registered = seal_proof(request.registered_proof, size)?;
    if registered.feature_enabled(ApiFeature::NonInteractivePoRep) {
        let reason = format!("{registered:?} is not supported: its proof is an aggregate");
        return Err(fault("registered_proof", reason));
    }
    let opened = c1::open(&request.vanilla_proof)?;
    check_wrapper(&opened, request, size)?;
    let mut c1 = opened.parse()?;
    if c1.registered_proof != registered {
        let (have, number) = (c1.registered_proof, request.registered_proof);
        let reason =
            format!("a C1 output of {have:?}, and registered_proof {number} is {registered:?}");
        return Err(fault(opened.field(), reason));
    }
    let inputs = public_inputs(&c1, request, registered)?;
    let context = Context {
        request,
        size,
        registered,
        inputs,
    };
    let proofs = std::mem::replace(&mut c1.vanilla_proofs, VanillaProofs::Base(Vec::new()));
    drop(c1);
    use crate::shape::TreeShape;
    match (proofs, size.shape()) {
        (VanillaProofs::Base(proofs), TreeShape::Base) => context.check(proofs),
        (VanillaProofs::Sub8(proofs), TreeShape::Sub8) => context.check(proofs),
        (VanillaProofs::Top2(proofs), TreeShape::Top2) => context.check(proofs),
        _ => {
            let reason = format!("its vanilla proofs are not of {size}");
            Err(fault(opened.field(), reason))
        }
    }
}

/// What the wrapper says must be what the request says.
fn check_wrapper(
    opened: &Opened<'_>,
    request: &Request,
    size: SectorSize,
) -> Result<(), WorkloadError> {
    let pairs = [
        (
            "SectorNum",
            opened.sector_number,
            "sector_number",
            request.sector_number,
        ),
        (
            "SectorSize",
            opened.sector_size,
            "sector_size",
            size.bytes(),
        ),
    ];
    for (name, have, field, want) in pairs {
        if let Some(have) = have.filter(|&have| have != want) {
            let reason = format!("{name} is {have}, and {field} says {want}");
            return Err(fault(FIELD, reason));
        }
    }
    Ok(())
}

/// The public inputs, with the replica id recomputed from who and what is sealed.
fn public_inputs(
    c1: &C1,
    request: &Request,
    registered: RegisteredSealProof,
) -> Result<Inputs, WorkloadError> {
    for (name, bytes) in [("comm_r", &c1.comm_r), ("comm_d", &c1.comm_d)] {
        if *bytes == [0; 32] {
            return Err(fault(FIELD, format!("{name} is all zeros")));
        }
        scalar(name, bytes).map_err(|reason| fault(FIELD, reason))?;
    }
    if c1.seed == [0; 32] {
        return Err(fault(FIELD, "seed is all zeros"));
    }
    let (miner, sector) = (request.miner_id, request.sector_number);
    let replica_id = generate_replica_id::<DefaultTreeHasher, _>(
        &prover_id(miner),
        sector,
        &c1.ticket,
        c1.comm_d,
        &registered.as_v1_config().porep_id,
    );
    if replica_id != PoseidonDomain::from(c1.replica_id) {
        let reason = format!(
            "its replica id is not that of sector {sector} of miner {miner} with its ticket and comm_d: \
             wrong miner_id or sector_number"
        );
        return Err(fault(FIELD, reason));
    }
    Ok(PublicInputs {
        replica_id,
        seed: Some(c1.seed),
        tau: Some(Tau {
            comm_r: c1.comm_r.into(),
            comm_d: c1.comm_d.into(),
        }),
        k: None,
    })
}

/// What is known before the vanilla proofs are looked at.
struct Context<'a> {
    request: &'a Request,
    size: SectorSize,
    registered: RegisteredSealProof,
    inputs: Inputs,
}

impl Context<'_> {
    fn check<Tree: Shape>(
        self,
        proofs: Vec<Vec<ChallengeProof<Tree>>>,
    ) -> Result<FilecoinWorkload, WorkloadError> {
        let config = self.registered.as_v1_config();
        let params = public_params::<Tree>(&config)
            .map_err(|error| fault("registered_proof", format!("{error:#}")))?;
        let (have, want) = (proofs.len(), usize::from(config.partitions));
        if have != want {
            return Err(fault(FIELD, format!("{have} partitions, must be {want}")));
        }
        let proofs = proofs
            .into_iter()
            .enumerate()
            .map(|(partition, challenges)| well_formed_partition(&params, partition, challenges))
            .collect::<Result<_, _>>()?;
        let job = PorepJob {
            inputs: self.inputs,
            params,
            proofs,
        };
        Ok(FilecoinWorkload::new(
            FilecoinCircuit::new(ProofKind::PoRep, self.size),
            self.request.sector(),
            want,
            job,
        ))
    }
}

/// The challenges of one partition, if they are as many as the circuit has and of
/// its shape.
fn well_formed_partition<Tree: Shape>(
    params: &PublicParams<Tree>,
    partition: usize,
    challenges: Vec<ChallengeProof<Tree>>,
) -> Result<Vec<VanillaProof<Tree>>, WorkloadError> {
    let want = params.challenges.num_challenges_per_partition();
    let have = challenges.len();
    if have != want {
        let reason = format!("partition {partition}: {have} challenges, must be {want}");
        return Err(fault(FIELD, reason));
    }
    let mut checked: Vec<VanillaProof<Tree>> = Vec::with_capacity(want);
    for (challenge, proof) in challenges.into_iter().enumerate() {
        let proof = proof
            .check(params)
            .map_err(|reason| challenge_fault(partition, challenge, reason))?;
        // All challenges of a partition open the same two trees.
        let first = checked.first().unwrap_or(&proof);
        if first.comm_c() != proof.comm_c() || first.comm_r_last() != proof.comm_r_last() {
            let reason = "its roots are not those of challenge 0";
            return Err(challenge_fault(partition, challenge, reason));
        }
        checked.push(proof);
    }
    Ok(checked)
}

fn challenge_fault(
    partition: usize,
    challenge: usize,
    reason: impl std::fmt::Display,
) -> WorkloadError {
    fault(
        FIELD,
        format!("partition {partition}, challenge {challenge}: {reason}"),
    )
}

/// A PoRep with the vanilla proofs of all partitions.
struct PorepJob<Tree: Shape> {
    inputs: Inputs,
    params: PublicParams<Tree>,
    proofs: Vec<Vec<VanillaProof<Tree>>>,
}

impl<Tree: Shape> PorepJob<Tree> {
    /// A circuit of some challenges of a partition.
    fn circuit(
        &self,
        partition: usize,
        proofs: &Vec<VanillaProof<Tree>>,
    ) -> Result<StackedCircuit<Tree, DefaultPieceHasher>, SynthesisError> {
        Compound::<Tree>::circuit(&self.inputs, (), proofs, &self.params, Some(partition))
            .map_err(|_| SynthesisError::Unsatisfiable)
    }
}

impl<Tree: Shape> Job for PorepJob<Tree> {
    /// One a challenge.
    fn segments(&self) -> usize {
        self.params.challenges.num_challenges_per_partition()
    }

    fn synthesize_segment(
        &self,
        partition: usize,
        challenge: usize,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        let proofs = vec![self.proofs[partition][challenge].clone()];
        self.circuit(partition, &proofs)?.synthesize(pass)
    }

    fn synthesize(&self, partition: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.circuit(partition, &self.proofs[partition])?
            .synthesize(pass)
    }

    fn public_inputs(&self, partition: usize) -> Result<Vec<Scalar>, WorkloadError> {
        <Compound<Tree> as CompoundProof<
            '_,
            StackedDrg<'_, Tree, DefaultPieceHasher>,
            _,
        >>::generate_public_inputs(&self.inputs, &self.params, Some(partition))
        .map_err(|error| fault(FIELD, format!("{error:#}")))
    }

    fn check_part(&self, partition: usize) -> Result<(), WorkloadError> {
        let proofs = &self.proofs[partition];
        let comm_r = PoseidonFunction::hash2(&proofs[0].comm_c(), &proofs[0].comm_r_last());
        if self.inputs.tau.as_ref().map(|tau| tau.comm_r) != Some(comm_r) {
            let reason = "its tree roots are not those of comm_r";
            return Err(fault(FIELD, format!("partition {partition}: {reason}")));
        }
        let graph = &self.params.graph;
        let challenges =
            self.inputs
                .challenges(&self.params.challenges, graph.size(), Some(partition));
        proofs
            .par_iter()
            .zip(challenges)
            .enumerate()
            .try_for_each(|(index, (proof, node))| {
                // The circuit crates leave the paths of these two to the circuit.
                let holds = proof.comm_d_proofs.verify()
                    && proof.comm_r_last_proof.verify()
                    && proof.verify(&self.params, &self.inputs, node, graph);
                if holds {
                    return Ok(());
                }
                let reason = "the proof does not hold for the challenge that the seed draws";
                Err(challenge_fault(partition, index, reason))
            })
    }
}
