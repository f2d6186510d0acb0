//! The stock software's circuits of a request of up to 512 MiB, for bellperson's prover. They are
//! built here from the request's bytes alone, so that nothing of ours is trusted.

use anyhow::{Context, Result, bail, ensure};
use bellpepper_core::Circuit;
use bellperson::groth16::{Parameters, Proof, create_proof_batch};
use blstrs::{Bls12, Scalar};
use filecoin_proofs::constants::{
    DefaultPieceHasher, SectorShape2KiB, WINDOW_POST_CHALLENGE_COUNT, WINNING_POST_CHALLENGE_COUNT,
    WINNING_POST_SECTOR_COUNT,
};
use filecoin_proofs::parameters::{
    public_params, window_post_public_params, winning_post_public_params,
};
use filecoin_proofs::{FallbackPoStSectorProof, PoStConfig, PoStType, SectorSize};
use filecoin_proofs_api::RegisteredSealProof;
use storage_proofs_core::api_version::ApiVersion;
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_core::merkle::MerkleTreeTrait;
use storage_proofs_porep::stacked::{self, StackedCompound};
use storage_proofs_post::fallback::{self, FallbackPoStCompound};
use storage_proofs_update as update;

use crate::request::RequestFile;

type Tree = SectorShape2KiB;
type Domain = <<Tree as MerkleTreeTrait>::Hasher as filecoin_hashers::Hasher>::Domain;

/// bellperson's proof of a 2 KiB request with given blinding scalars.
///
/// # Errors
/// If the request has no stock circuit or bellperson refuses it.
pub fn prove(
    file: &RequestFile,
    params: &Parameters<Bls12>,
    blinding: (Scalar, Scalar),
) -> Result<Vec<u8>> {
    match file.kind()? {
        "POREP_SEAL_COMMIT" => prove_circuit(porep(file)?, params, blinding),
        "WINDOW_POST_PARTITION" => prove_circuit(post(file, PoStType::Window)?, params, blinding),
        "WINNING_POST" => prove_circuit(post(file, PoStType::Winning)?, params, blinding),
        other => bail!("no stock circuit for {other}"),
    }
}

/// bellperson's proof of a circuit, encoded.
///
/// # Errors
/// What bellperson says.
pub fn prove_circuit(
    circuit: impl Circuit<Scalar> + Send,
    params: &Parameters<Bls12>,
    (r, s): (Scalar, Scalar),
) -> Result<Vec<u8>> {
    let proofs: Vec<Proof<Bls12>> = create_proof_batch(vec![circuit], params, vec![r], vec![s])?;
    let mut bytes = Vec::new();
    proofs[0].write(&mut bytes)?;
    Ok(bytes)
}

/// The stock PoRep circuit of a request with one partition.
///
/// # Errors
/// If the request's bytes are not a C1 output.
pub fn porep(file: &RequestFile) -> Result<impl Circuit<Scalar> + Send + use<>> {
    use base64::Engine as _;
    let wrapper: serde_json::Value = serde_json::from_slice(&file.bytes("vanilla_proof")?)?;
    let c1 = wrapper["Phase1Out"].as_str().context("Phase1Out")?;
    let c1 = base64::engine::general_purpose::STANDARD.decode(c1)?;
    let c1: filecoin_proofs_api::seal::SealCommitPhase1Output = serde_json::from_slice(&c1)?;
    let known = [
        RegisteredSealProof::StackedDrg2KiBV1_1,
        RegisteredSealProof::StackedDrg8MiBV1_1,
        RegisteredSealProof::StackedDrg512MiBV1_1,
    ];
    ensure!(known.contains(&c1.registered_proof), "another proof");
    let vanilla: Vec<Vec<stacked::Proof<Tree, DefaultPieceHasher>>> =
        c1.vanilla_proofs.try_into()?;
    let inputs = stacked::PublicInputs {
        replica_id: c1.replica_id,
        seed: Some(c1.seed),
        tau: Some(stacked::Tau {
            comm_r: c1.comm_r.into(),
            comm_d: c1.comm_d.into(),
        }),
        k: None,
    };
    let params = public_params::<Tree>(&c1.registered_proof.as_v1_config())?;
    StackedCompound::<Tree, DefaultPieceHasher>::circuit(&inputs, (), &vanilla[0], &params, Some(0))
}

/// The stock circuit of the first partition of an update.
///
/// # Errors
/// If the request's bytes are not partition proofs.
pub fn snap(file: &RequestFile) -> Result<impl Circuit<Scalar> + Send + use<>> {
    let size = match file.number("registered_proof")? {
        0 => 2 << 10,
        1 => 8 << 20,
        2 => 512 << 20,
        other => bail!("registered proof {other}"),
    };
    let commitment = |name| -> Result<[u8; 32]> {
        let bytes: Option<[u8; 32]> = file.bytes(name)?.try_into().ok();
        bytes.with_context(|| format!("32 bytes of {name}"))
    };
    let params = update::PublicParams::from_sector_size(size);
    let inputs = update::PublicInputs {
        k: 0,
        comm_r_old: commitment("comm_r_old")?.into(),
        comm_d_new: commitment("comm_d_new")?.into(),
        comm_r_new: commitment("comm_r_new")?.into(),
        h: update::constants::h_default(params.sector_nodes),
    };
    let proofs = file.vanilla_proofs()?;
    let proof = proofs.first().context("a partition proof")?;
    let proof: update::PartitionProof<Tree> = bincode::deserialize(proof)?;
    update::EmptySectorUpdateCompound::<Tree>::circuit(&inputs, (), &proof, &params, Some(0))
}

/// The stock PoSt circuit of a request.
///
/// # Errors
/// If the request's bytes are not sector proofs.
pub fn post(file: &RequestFile, typ: PoStType) -> Result<impl Circuit<Scalar> + Send + use<>> {
    let proofs = file
        .vanilla_proofs()?
        .iter()
        .map(|bytes| {
            Ok(bincode::deserialize::<FallbackPoStSectorProof<Tree>>(
                bytes,
            )?)
        })
        .collect::<Result<Vec<_>>>()?;
    let winning = typ == PoStType::Winning;
    // The numbers of WinningPoSt begin at 0, those of WindowPoSt V1.1 at 10.
    let size = match file.number("registered_proof")? {
        0 | 10 => 2 << 10,
        1 | 11 => 8 << 20,
        2 | 12 => 512 << 20,
        other => bail!("registered proof {other}"),
    };
    let config = PoStConfig {
        sector_size: SectorSize(size),
        challenge_count: if winning {
            WINNING_POST_CHALLENGE_COUNT
        } else {
            WINDOW_POST_CHALLENGE_COUNT
        },
        sector_count: if winning {
            WINNING_POST_SECTOR_COUNT
        } else {
            2
        },
        typ,
        priority: false,
        api_version: if winning {
            ApiVersion::V1_0_0
        } else {
            ApiVersion::V1_2_0
        },
    };
    let params = if winning {
        winning_post_public_params::<Tree>(&config)?
    } else {
        window_post_public_params::<Tree>(&config)?
    };
    let mut randomness: [u8; 32] = file
        .bytes("randomness")?
        .try_into()
        .ok()
        .context("32 bytes of randomness")?;
    randomness[31] &= 0x3f;
    let mut sectors = Vec::new();
    let mut sector_proofs = Vec::new();
    for proof in proofs {
        let public = fallback::PublicSector {
            id: proof.sector_id,
            comm_r: proof.comm_r,
        };
        for sector in proof.vanilla_proof.sectors {
            if winning {
                // Each challenge of the one sector takes a place of its own.
                for inclusion in &sector.inclusion_proofs {
                    sectors.push(public.clone());
                    sector_proofs.push(fallback::SectorProof {
                        inclusion_proofs: vec![inclusion.clone()],
                        comm_c: sector.comm_c,
                        comm_r_last: sector.comm_r_last,
                    });
                }
            } else {
                sectors.push(public.clone());
                sector_proofs.push(sector);
            }
        }
    }
    let inputs = fallback::PublicInputs::<Domain> {
        randomness: randomness.into(),
        prover_id: file.verifier("prover_id")?.into(),
        sectors,
        k: Some(0),
    };
    let vanilla = fallback::Proof {
        sectors: sector_proofs,
    };
    FallbackPoStCompound::<Tree>::circuit(&inputs, Default::default(), &vanilla, &params, Some(0))
}
