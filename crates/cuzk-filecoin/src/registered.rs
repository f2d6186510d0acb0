//! The chain's numbers of registered proofs.
//!
//! | seal proofs | | PoSt proofs | | update proofs | |
//! |---|---|---|---|---|---|
//! | 0-4 | V1 | 0-4 | Winning V1 | 0-4 | V1 |
//! | 5-9 | V1.1 | 5-9 | Window V1 | | |
//! | 10-14 | V1.1, synthetic | 10-14 | Window V1.1 (API V1.2) | | |
//! | 15-19 | V1.2, non-interactive | | | | |
//!
//! Five of each, by sector size: 2 KiB, 8 MiB, 512 MiB, 32 GiB, 64 GiB.

use cuzk_core::WorkloadError;
use filecoin_proofs_api::{
    PoStType, RegisteredPoStProof, RegisteredSealProof, RegisteredUpdateProof,
};

use crate::error::fault;
use crate::sizes::{ProofKind, SectorSize};

const SEAL_PROOFS: [RegisteredSealProof; 20] = {
    use RegisteredSealProof as P;
    [
        P::StackedDrg2KiBV1,
        P::StackedDrg8MiBV1,
        P::StackedDrg512MiBV1,
        P::StackedDrg32GiBV1,
        P::StackedDrg64GiBV1,
        P::StackedDrg2KiBV1_1,
        P::StackedDrg8MiBV1_1,
        P::StackedDrg512MiBV1_1,
        P::StackedDrg32GiBV1_1,
        P::StackedDrg64GiBV1_1,
        P::StackedDrg2KiBV1_1_Feat_SyntheticPoRep,
        P::StackedDrg8MiBV1_1_Feat_SyntheticPoRep,
        P::StackedDrg512MiBV1_1_Feat_SyntheticPoRep,
        P::StackedDrg32GiBV1_1_Feat_SyntheticPoRep,
        P::StackedDrg64GiBV1_1_Feat_SyntheticPoRep,
        P::StackedDrg2KiBV1_2_Feat_NonInteractivePoRep,
        P::StackedDrg8MiBV1_2_Feat_NonInteractivePoRep,
        P::StackedDrg512MiBV1_2_Feat_NonInteractivePoRep,
        P::StackedDrg32GiBV1_2_Feat_NonInteractivePoRep,
        P::StackedDrg64GiBV1_2_Feat_NonInteractivePoRep,
    ]
};

const POST_PROOFS: [RegisteredPoStProof; 15] = {
    use RegisteredPoStProof as P;
    [
        P::StackedDrgWinning2KiBV1,
        P::StackedDrgWinning8MiBV1,
        P::StackedDrgWinning512MiBV1,
        P::StackedDrgWinning32GiBV1,
        P::StackedDrgWinning64GiBV1,
        P::StackedDrgWindow2KiBV1,
        P::StackedDrgWindow8MiBV1,
        P::StackedDrgWindow512MiBV1,
        P::StackedDrgWindow32GiBV1,
        P::StackedDrgWindow64GiBV1,
        P::StackedDrgWindow2KiBV1_2,
        P::StackedDrgWindow8MiBV1_2,
        P::StackedDrgWindow512MiBV1_2,
        P::StackedDrgWindow32GiBV1_2,
        P::StackedDrgWindow64GiBV1_2,
    ]
};

const UPDATE_PROOFS: [RegisteredUpdateProof; 5] = {
    use RegisteredUpdateProof as P;
    [
        P::StackedDrg2KiBV1,
        P::StackedDrg8MiBV1,
        P::StackedDrg512MiBV1,
        P::StackedDrg32GiBV1,
        P::StackedDrg64GiBV1,
    ]
};

/// The chain's number of a seal proof.
pub(crate) fn seal_number(proof: RegisteredSealProof) -> u64 {
    let index = SEAL_PROOFS.iter().position(|&known| known == proof);
    index.expect("the table holds every variant") as u64
}

/// The seal proof of a number, whose sector size must be `size`.
pub(crate) fn seal_proof(
    number: u64,
    size: SectorSize,
) -> Result<RegisteredSealProof, WorkloadError> {
    let proof = *lookup(&SEAL_PROOFS, number, "RegisteredSealProof")?;
    same_size(number, &proof, u64::from(proof.sector_size()), size)?;
    Ok(proof)
}

/// Where the groups begin that new proofs are made for.
const SEAL_V1_1: usize = 5;
const WINNING_V1: usize = 0;
const WINDOW_V1_1: usize = 10;
const UPDATE_V1: usize = 0;

/// A registered proof with the chain's number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered<Proof> {
    pub(crate) number: u64,
    pub(crate) proof: Proof,
}

/// The seal proof of new sectors of a size: V1.1.
pub(crate) fn seal_of(size: SectorSize) -> Registered<RegisteredSealProof> {
    of_group(&SEAL_PROOFS, SEAL_V1_1, size)
}

/// The WinningPoSt of a size: V1.
pub(crate) fn winning_post_of(size: SectorSize) -> Registered<RegisteredPoStProof> {
    of_group(&POST_PROOFS, WINNING_V1, size)
}

/// The WindowPoSt of a size: V1.1, which the API calls V1.2.
pub(crate) fn window_post_of(size: SectorSize) -> Registered<RegisteredPoStProof> {
    of_group(&POST_PROOFS, WINDOW_V1_1, size)
}

/// The replica update of a size: V1.
pub(crate) fn update_of(size: SectorSize) -> Registered<RegisteredUpdateProof> {
    of_group(&UPDATE_PROOFS, UPDATE_V1, size)
}

fn of_group<Proof: Copy>(table: &[Proof], first: usize, size: SectorSize) -> Registered<Proof> {
    // Within a group the order is that of `SectorSize::ALL`.
    let index = first + size as usize;
    Registered {
        number: index as u64,
        proof: table[index],
    }
}

/// The PoSt proof of a number, whose kind and sector size must be those given.
pub(crate) fn post_proof(
    number: u64,
    kind: ProofKind,
    size: SectorSize,
) -> Result<RegisteredPoStProof, WorkloadError> {
    let proof = *lookup(&POST_PROOFS, number, "RegisteredPoStProof")?;
    let have = match proof.typ() {
        PoStType::Winning => ProofKind::WinningPost,
        PoStType::Window => ProofKind::WindowPost,
    };
    if have != kind {
        let reason = format!("{number} is {proof:?}, and proof_kind says {kind}");
        return Err(fault("registered_proof", reason));
    }
    same_size(number, &proof, u64::from(proof.sector_size()), size)?;
    Ok(proof)
}

/// Refuses the number of an update proof whose sector size is not `size`.
pub(crate) fn same_update_proof(number: u64, size: SectorSize) -> Result<(), WorkloadError> {
    let proof = lookup(&UPDATE_PROOFS, number, "RegisteredUpdateProof")?;
    same_size(number, proof, u64::from(proof.sector_size()), size)
}

fn lookup<'a, T>(table: &'a [T], number: u64, name: &str) -> Result<&'a T, WorkloadError> {
    let index = usize::try_from(number).unwrap_or(usize::MAX);
    table.get(index).ok_or_else(|| {
        let last = table.len() - 1;
        let reason = format!("no {name} has the number {number}; they go from 0 to {last}");
        fault("registered_proof", reason)
    })
}

fn same_size(
    number: u64,
    proof: &impl std::fmt::Debug,
    have_bytes: u64,
    want: SectorSize,
) -> Result<(), WorkloadError> {
    if have_bytes == want.bytes() {
        return Ok(());
    }
    let bytes = want.bytes();
    let reason = format!("{number} is {proof:?}, and sector_size says {want} ({bytes} bytes)");
    Err(fault("registered_proof", reason))
}
