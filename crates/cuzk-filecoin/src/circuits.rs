//! Which circuits there are: their ids, key file names and blank form.

use std::str::FromStr;

use bellpepper_core::{Circuit, SynthesisError};
use cuzk_core::schedule::Priority;
use cuzk_core::{BlankCircuit, CircuitId, CircuitSpec};
use cuzk_synth::{Cut, Pass};
use filecoin_proofs::constants::DefaultPieceHasher;
use filecoin_proofs::parameters::{
    public_params, setup_params, window_post_public_params, winning_post_public_params,
    winning_post_setup_params,
};
use filecoin_proofs::{PoRepConfig, PoStConfig};
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_core::parameter_cache::{
    CacheableParameters, get_parameter_data, get_verifying_key_data, parameter_id, verifying_key_id,
};
use storage_proofs_porep::stacked::{StackedCompound, StackedDrg};
use storage_proofs_post::fallback::{FallbackPoSt, FallbackPoStCompound, PublicParams};
use storage_proofs_update::{EmptySectorUpdate, EmptySectorUpdateCompound};

use crate::error::UnknownName;
use crate::registered::{seal_of, window_post_of, winning_post_of};
use crate::shape::{Shape, with_tree};
use crate::sizes::{ProofKind, SectorSize};
use crate::snap::APART;

/// One circuit: a proof kind at a sector size.
///
/// Its id is `<kind>-<size>` (`porep-32g`), its key files have the names that the
/// stock software looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilecoinCircuit {
    /// The proof kind.
    pub kind: ProofKind,
    /// The sector size.
    pub sector_size: SectorSize,
}

impl FilecoinCircuit {
    /// The circuit of a kind at a size.
    pub const fn new(kind: ProofKind, sector_size: SectorSize) -> Self {
        Self { kind, sector_size }
    }

    /// Every circuit: all kinds at all sizes.
    pub fn all() -> impl Iterator<Item = Self> {
        ProofKind::ALL
            .into_iter()
            .flat_map(|kind| SectorSize::ALL.map(|size| Self::new(kind, size)))
    }

    /// What key file names are made of: a prefix with the tree's shape and a hash
    /// of the public parameters.
    fn cache_identifier(&self) -> String {
        let Self { kind, sector_size } = *self;
        with_tree!(sector_size, cache_identifier(kind, sector_size))
    }
}

/// Reads an id: `porep-32g`.
impl FromStr for FilecoinCircuit {
    type Err = UnknownName;

    fn from_str(id: &str) -> Result<Self, UnknownName> {
        Self::all()
            .find(|circuit| circuit.id().as_str() == id)
            .ok_or_else(|| UnknownName {
                what: "circuit",
                have: id.into(),
                known: "porep|snap|wpost|winning, a dash, 2k|8m|512m|32g|64g (porep-32g)",
            })
    }
}

impl CircuitSpec for FilecoinCircuit {
    fn id(&self) -> CircuitId {
        let id = format!(
            "{}-{}",
            self.kind.short_name(),
            self.sector_size.short_name()
        );
        CircuitId::from(id.as_str())
    }

    fn params_file(&self) -> String {
        parameter_id(&self.cache_identifier())
    }

    fn vk_file(&self) -> String {
        verifying_key_id(&self.cache_identifier())
    }

    fn params_digest(&self) -> Option<String> {
        get_parameter_data(&self.cache_identifier()).map(|data| data.digest.clone())
    }

    fn vk_digest(&self) -> Option<String> {
        get_verifying_key_data(&self.cache_identifier()).map(|data| data.digest.clone())
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        let Self { kind, sector_size } = *self;
        with_tree!(sector_size, synthesize_blank(kind, sector_size, pass))
    }

    fn is_urgent(&self) -> bool {
        self.kind.default_priority() == Priority::Critical
    }

    fn cut(&self) -> Option<Cut> {
        let (depth, name) = match self.kind {
            ProofKind::PoRep => (0, "challenge_"),
            // What a challenge begins with, after all of them are drawn.
            ProofKind::SnapDeals => (0, "get_challenge_high_bits"),
            ProofKind::WindowPost | ProofKind::WinningPost => (1, "sector_"),
        };
        let apart = (self.kind == ProofKind::SnapDeals).then_some(APART);
        Some(Cut { depth, name, apart })
    }

    /// Each challenge of an update uses its own of those that are drawn before.
    fn is_uniform(&self) -> bool {
        self.kind != ProofKind::SnapDeals
    }

    /// A PoSt is a loop over its sectors.
    fn shortened(&self, blocks: usize) -> Option<BlankCircuit<'_>> {
        let Self { kind, sector_size } = *self;
        matches!(kind, ProofKind::WindowPost | ProofKind::WinningPost).then(
            || -> BlankCircuit<'_> {
                Box::new(move |pass| {
                    with_tree!(sector_size, shortened_post(kind, sector_size, blocks, pass))
                })
            },
        )
    }

    fn segments(&self) -> usize {
        let size = self.sector_size;
        match self.kind {
            ProofKind::PoRep => setup_params(&porep_config(size))
                .expect(KNOWN)
                .challenges
                .num_challenges_per_partition(),
            ProofKind::SnapDeals => {
                storage_proofs_update::PublicParams::from_sector_size(size.bytes()).challenge_count
            }
            ProofKind::WindowPost => window_config(size).sector_count,
            ProofKind::WinningPost => {
                let setup = winning_post_setup_params(&winning_config(size));
                setup.expect(KNOWN).sector_count
            }
        }
    }
}

/// Settings of a PoRep circuit. All versions of the seal proofs share one circuit;
/// the current one stands for them.
fn porep_config(size: SectorSize) -> PoRepConfig {
    seal_of(size).proof.as_v1_config()
}

fn winning_config(size: SectorSize) -> PoStConfig {
    winning_post_of(size).proof.as_v1_config()
}

fn window_config(size: SectorSize) -> PoStConfig {
    window_post_of(size).proof.as_v1_config()
}

/// Why the parameters of a circuit in the tables can always be made.
const KNOWN: &str = "the circuit crates know the sizes of the chain";

fn cache_identifier<Tree: Shape>(kind: ProofKind, size: SectorSize) -> String {
    match kind {
        ProofKind::PoRep => porep_config(size)
            .get_cache_identifier::<Tree>()
            .expect(KNOWN),
        ProofKind::WindowPost => window_config(size)
            .get_cache_identifier::<Tree>()
            .expect(KNOWN),
        ProofKind::WinningPost => winning_config(size)
            .get_cache_identifier::<Tree>()
            .expect(KNOWN),
        ProofKind::SnapDeals => {
            let params = storage_proofs_update::PublicParams::from_sector_size(size.bytes());
            EmptySectorUpdateCompound::<Tree>::cache_identifier(&params)
        }
    }
}

fn synthesize_blank<Tree: Shape>(
    kind: ProofKind,
    size: SectorSize,
    pass: &mut Pass<'_>,
) -> Result<(), SynthesisError> {
    match kind {
        ProofKind::PoRep => {
            let params = public_params::<Tree>(&porep_config(size)).expect(KNOWN);
            <StackedCompound<Tree, DefaultPieceHasher> as CompoundProof<
                '_,
                StackedDrg<'_, Tree, DefaultPieceHasher>,
                _,
            >>::blank_circuit(&params)
            .synthesize(pass)
        }
        ProofKind::WindowPost | ProofKind::WinningPost => {
            blank_post::<Tree>(&post_params::<Tree>(kind, size), pass)
        }
        ProofKind::SnapDeals => {
            let params = storage_proofs_update::PublicParams::from_sector_size(size.bytes());
            <EmptySectorUpdateCompound<Tree> as CompoundProof<
                '_,
                EmptySectorUpdate<Tree>,
                _,
            >>::blank_circuit(&params)
            .synthesize(pass)
        }
    }
}

fn post_params<Tree: Shape>(kind: ProofKind, size: SectorSize) -> PublicParams {
    match kind {
        ProofKind::WinningPost => winning_post_public_params::<Tree>(&winning_config(size)),
        _ => window_post_public_params::<Tree>(&window_config(size)),
    }
    .expect(KNOWN)
}

fn shortened_post<Tree: Shape>(
    kind: ProofKind,
    size: SectorSize,
    sector_count: usize,
    pass: &mut Pass<'_>,
) -> Result<(), SynthesisError> {
    let params = PublicParams {
        sector_count,
        ..post_params::<Tree>(kind, size)
    };
    blank_post::<Tree>(&params, pass)
}

fn blank_post<Tree: Shape>(
    params: &PublicParams,
    pass: &mut Pass<'_>,
) -> Result<(), SynthesisError> {
    <FallbackPoStCompound<Tree> as CompoundProof<'_, FallbackPoSt<'_, Tree>, _>>::blank_circuit(
        params,
    )
    .synthesize(pass)
}
