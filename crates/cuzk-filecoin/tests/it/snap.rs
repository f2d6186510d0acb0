use cuzk_core::Workload;
use cuzk_synth::assign_growing;
use filecoin_proofs::constants::SectorShapeBase;
use storage_proofs_core::merkle::{MerkleProof, MerkleProofTrait};
use storage_proofs_update::PartitionProof;

use crate::support::{SNAP, check_all, refused, request, workload};

type Partition = PartitionProof<SectorShapeBase>;

#[test]
fn real_update_satisfies_its_circuit() {
    let workload = workload(SNAP);
    insta::assert_snapshot!(workload.label(), @"snap-2k sector 11 of miner 1000");
    check_all(&workload, 1_705_044);
}

#[test]
fn bad_fields_are_named() {
    let reasons = [
        refused(SNAP, |it| it.vanilla_proof = vec![0]),
        refused(SNAP, |it| it.vanilla_proofs.clear()),
        refused(SNAP, |it| it.registered_proof = 5),
        refused(SNAP, |it| it.registered_proof = 3),
        refused(SNAP, |it| it.comm_r_old.clear()),
        refused(SNAP, |it| it.comm_d_new = vec![0; 32]),
        refused(SNAP, |it| it.comm_r_new = vec![255; 32]),
        refused(SNAP, |it| it.comm_r_new = it.comm_r_old.clone()),
        refused(SNAP, |it| it.comm_d_new[0] ^= 1),
    ];
    insta::assert_snapshot!(reasons.join("\n"));
}

/// Where nobody has checked the vanilla proofs, the segment says that they do not hold.
#[test]
fn a_segment_whose_leaf_is_another_is_refused() {
    let mut request = request(SNAP);
    let bytes = &mut request.vanilla_proofs[0];
    let mut partition: Partition = bincode::deserialize(bytes).expect("the proof is real");
    let proofs = &mut partition.challenge_proofs[4];
    proofs.proof_r_new = proofs.proof_r_old.clone();
    *bytes = bincode::serialize(&partition).expect("proofs serialise");
    let workload = request.workload().expect("well formed");
    let part = workload.part(0).expect("the part exists");
    for segment in 0..part.segments() {
        let assigned = assign_growing(false, |pass| part.synthesize(segment, pass));
        let error = assigned.err().map(|error| error.to_string());
        let want = "the circuit could not be synthesised: unsatisfiable constraint system";
        assert_eq!(error.as_deref(), (segment == 4).then_some(want));
    }
}

#[test]
fn bad_bincode_is_named() {
    let of_partition = |change: &dyn Fn(&mut Partition)| {
        refused(SNAP, |it| {
            let bytes = &mut it.vanilla_proofs[0];
            let mut partition = bincode::deserialize(bytes).expect("the proof is real");
            change(&mut partition);
            *bytes = bincode::serialize(&partition).expect("proofs serialise");
        })
    };
    let reasons = [
        refused(SNAP, |it| it.vanilla_proofs[0].truncate(100)),
        refused(SNAP, |it| it.vanilla_proofs[0].push(0)),
        of_partition(&|it| it.apex_leafs.truncate(7)),
        of_partition(&|it| it.challenge_proofs.truncate(9)),
        of_partition(&|it| it.comm_c = [255; 32].into()),
        of_partition(&|it| it.apex_leafs[3] = [255; 32].into()),
        of_partition(&|it| it.apex_leafs[3] = it.apex_leafs[2]),
        of_partition(&|it| {
            let proof = &mut it.challenge_proofs[4].proof_d_new;
            let mut path = proof.path();
            path.pop();
            *proof = MerkleProof::from_parts(proof.leaf(), proof.root(), path);
        }),
        of_partition(&|it| {
            it.challenge_proofs[9].proof_r_new = it.challenge_proofs[9].proof_r_old.clone();
        }),
    ];
    insta::assert_snapshot!(reasons.join("\n"));
}
