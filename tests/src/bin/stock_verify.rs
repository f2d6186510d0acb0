//! Has the stock software's own verifier judge a proof: `stock_verify REQUEST PROOF`.
//! Prints `accepted` or `rejected`. For a WindowPoSt the sectors to verify may be those
//! of several partitions, and the proof theirs, one after the other. The verifying key is the one in
//! FIL_PROOFS_PARAMETER_CACHE; the stock software reads it once a process, which is
//! why this is one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cuzk_tests::request::RequestFile;
use filecoin_proofs_api::{
    PublicReplicaInfo, RegisteredPoStProof, RegisteredSealProof, RegisteredUpdateProof, SectorId,
    post, seal, update,
};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(request), Some(proof), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        bail!("want REQUEST PROOF");
    };
    let file = RequestFile::read(Path::new(&request))?;
    let proof = std::fs::read(&proof).context(proof)?;
    let accepted = match file.kind()? {
        "POREP_SEAL_COMMIT" => verify_seal(&file, &proof)?,
        "SNAP_DEALS_UPDATE" => verify_update(&file, &proof)?,
        "WINDOW_POST_PARTITION" => verify_window(&file, &proof)?,
        "WINNING_POST" => verify_winning(&file, &proof)?,
        other => bail!("no stock verifier for {other}"),
    };
    println!("{}", if accepted { "accepted" } else { "rejected" });
    Ok(())
}

fn verify_seal(file: &RequestFile, proof: &[u8]) -> Result<bool> {
    let registered = match file.number("registered_proof")? {
        5 => RegisteredSealProof::StackedDrg2KiBV1_1,
        6 => RegisteredSealProof::StackedDrg8MiBV1_1,
        7 => RegisteredSealProof::StackedDrg512MiBV1_1,
        other => bail!("registered proof {other}"),
    };
    seal::verify_seal(
        registered,
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
    let registered = match file.number("registered_proof")? {
        0 => RegisteredUpdateProof::StackedDrg2KiBV1,
        other => bail!("registered proof {other}"),
    };
    update::verify_empty_sector_update_proof(
        registered,
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
    let registered = match file.number("registered_proof")? {
        5 => RegisteredPoStProof::StackedDrgWindow2KiBV1,
        10 => RegisteredPoStProof::StackedDrgWindow2KiBV1_2,
        other => bail!("registered proof {other}"),
    };
    let replicas = replicas(file, registered)?;
    post::verify_window_post(
        &file.verifier("randomness")?,
        &[(registered, proof)],
        &replicas,
        file.verifier("prover_id")?,
    )
}

fn verify_winning(file: &RequestFile, proof: &[u8]) -> Result<bool> {
    let registered = match file.number("registered_proof")? {
        0 => RegisteredPoStProof::StackedDrgWinning2KiBV1,
        other => bail!("registered proof {other}"),
    };
    let replicas = replicas(file, registered)?;
    post::verify_winning_post(
        &file.verifier("randomness")?,
        proof,
        &replicas,
        file.verifier("prover_id")?,
    )
}
