//! The stock software's own verifiers, with the verifying keys of the directory that
//! FIL_PROOFS_PARAMETER_CACHE names. They read a key once a process, so whoever uses
//! several directories calls this in a process for each.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use filecoin_proofs_api::{
    PublicReplicaInfo, RegisteredPoStProof, RegisteredSealProof, RegisteredUpdateProof, SectorId,
    post, seal, update,
};

use crate::request::RequestFile;

/// Whether the stock verifier of its kind accepts a request's proof. For a WindowPoSt
/// the sectors to verify may be those of several partitions, and the proof theirs, one
/// after the other.
///
/// # Errors
/// If the file is no request, or what the verifier says of
/// what it cannot judge.
pub fn accepts(file: &RequestFile, proof: &[u8]) -> Result<bool> {
    match file.kind()? {
        "POREP_SEAL_COMMIT" => verify_seal(file, proof),
        "SNAP_DEALS_UPDATE" => verify_update(file, proof),
        "WINDOW_POST_PARTITION" => verify_window(file, proof),
        "WINNING_POST" => verify_winning(file, proof),
        other => bail!("no stock verifier for {other}"),
    }
}

/// The registered proof of a request, from a list of the chain's numbers from `first`.
fn registered<Proof: Copy>(file: &RequestFile, first: u64, known: &[Proof]) -> Result<Proof> {
    let number = file.number("registered_proof")?;
    let place = number
        .checked_sub(first)
        .and_then(|place| place.try_into().ok());
    let found = place.and_then(|place: usize| known.get(place));
    found
        .copied()
        .with_context(|| format!("registered proof {number}"))
}

fn verify_seal(file: &RequestFile, proof: &[u8]) -> Result<bool> {
    let known = [
        RegisteredSealProof::StackedDrg2KiBV1_1,
        RegisteredSealProof::StackedDrg8MiBV1_1,
        RegisteredSealProof::StackedDrg512MiBV1_1,
        RegisteredSealProof::StackedDrg32GiBV1_1,
        RegisteredSealProof::StackedDrg64GiBV1_1,
    ];
    seal::verify_seal(
        registered(file, 5, &known)?,
        file.verifier("comm_r")?,
        file.verifier("comm_d")?,
        file.verifier("prover_id")?,
        SectorId::from(file.number("sector_number")?),
        file.verifier("ticket")?,
        file.verifier("seed")?,
        proof,
    )
}

fn verify_update(file: &RequestFile, proof: &[u8]) -> Result<bool> {
    let known = [
        RegisteredUpdateProof::StackedDrg2KiBV1,
        RegisteredUpdateProof::StackedDrg8MiBV1,
        RegisteredUpdateProof::StackedDrg512MiBV1,
        RegisteredUpdateProof::StackedDrg32GiBV1,
        RegisteredUpdateProof::StackedDrg64GiBV1,
    ];
    update::verify_empty_sector_update_proof(
        registered(file, 0, &known)?,
        proof,
        file.verifier("comm_r_old")?,
        file.verifier("comm_r_new")?,
        file.verifier("comm_d_new")?,
    )
}

fn replicas(
    file: &RequestFile,
    registered: RegisteredPoStProof,
) -> Result<BTreeMap<SectorId, PublicReplicaInfo>> {
    let sectors = file.sectors()?.into_iter();
    let info = |comm_r| PublicReplicaInfo::new(registered, comm_r);
    Ok(sectors
        .map(|(id, comm_r)| (SectorId::from(id), info(comm_r)))
        .collect())
}

fn verify_window(file: &RequestFile, proof: &[u8]) -> Result<bool> {
    let first = [
        RegisteredPoStProof::StackedDrgWindow2KiBV1,
        RegisteredPoStProof::StackedDrgWindow8MiBV1,
        RegisteredPoStProof::StackedDrgWindow512MiBV1,
        RegisteredPoStProof::StackedDrgWindow32GiBV1,
        RegisteredPoStProof::StackedDrgWindow64GiBV1,
    ];
    let second = [
        RegisteredPoStProof::StackedDrgWindow2KiBV1_2,
        RegisteredPoStProof::StackedDrgWindow8MiBV1_2,
        RegisteredPoStProof::StackedDrgWindow512MiBV1_2,
        RegisteredPoStProof::StackedDrgWindow32GiBV1_2,
        RegisteredPoStProof::StackedDrgWindow64GiBV1_2,
    ];
    let registered = registered(file, 5, &first).or_else(|_| registered(file, 10, &second))?;
    let replicas = replicas(file, registered)?;
    post::verify_window_post(
        &file.verifier("randomness")?,
        &[(registered, proof)],
        &replicas,
        file.verifier("prover_id")?,
    )
}

fn verify_winning(file: &RequestFile, proof: &[u8]) -> Result<bool> {
    let known = [
        RegisteredPoStProof::StackedDrgWinning2KiBV1,
        RegisteredPoStProof::StackedDrgWinning8MiBV1,
        RegisteredPoStProof::StackedDrgWinning512MiBV1,
        RegisteredPoStProof::StackedDrgWinning32GiBV1,
        RegisteredPoStProof::StackedDrgWinning64GiBV1,
    ];
    let registered = registered(file, 0, &known)?;
    let replicas = replicas(file, registered)?;
    post::verify_winning_post(
        &file.verifier("randomness")?,
        proof,
        &replicas,
        file.verifier("prover_id")?,
    )
}
