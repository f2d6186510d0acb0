//! The C1 output as it comes: JSON, bare or in the client's wrapper.
//!
//! The types here mirror the serde form of
//! `filecoin_proofs_api::seal::SealCommitPhase1Output`, because the fields of its
//! columns and labels cannot be read once they are in its own types, and code
//! further down indexes into them unasked. Everything is checked on its way from
//! one to the other: counts, paths, scalars, and that labels repeat the columns.

use std::borrow::Cow;

use cuzk_core::WorkloadError;
use filecoin_hashers::poseidon::PoseidonDomain;
use filecoin_hashers::sha256::Sha256Hasher;
use filecoin_proofs::constants::{
    DefaultPieceHasher, SectorShapeBase, SectorShapeSub8, SectorShapeTop2,
};
use filecoin_proofs_api::RegisteredSealProof;
use generic_array::typenum::U2;
use serde::Deserialize;
use serde::de::IgnoredAny;
use storage_proofs_core::drgraph::Graph;
use storage_proofs_core::merkle::MerkleProof;
use storage_proofs_porep::stacked::{
    self, ColumnProof, EncodingProof, LabelingProof, PublicParams, ReplicaColumnProof,
    TOTAL_PARENTS,
};

use crate::error::fault;
use crate::merkle::{TreeProof, scalar, well_formed};
use crate::request::from_base64;
use crate::shape::Shape;

const FIELD: &str = "vanilla_proof";
const INNER_FIELD: &str = "vanilla_proof.Phase1Out";

/// A C1 output and what its wrapper says of it.
pub(crate) struct Opened<'a> {
    json: Cow<'a, [u8]>,
    pub(crate) sector_number: Option<u64>,
    pub(crate) sector_size: Option<u64>,
}

impl Opened<'_> {
    /// Where errors of the C1 output itself belong.
    pub(crate) fn field(&self) -> &'static str {
        match self.json {
            Cow::Borrowed(_) => FIELD,
            Cow::Owned(_) => INNER_FIELD,
        }
    }

    pub(crate) fn parse(&self) -> Result<C1, WorkloadError> {
        serde_json::from_slice(&self.json)
            .map_err(|error| fault(self.field(), json_reason(&self.json, &error)))
    }
}

/// Takes the client's wrapper off, if there is one.
pub(crate) fn open(bytes: &[u8]) -> Result<Opened<'_>, WorkloadError> {
    if bytes.is_empty() {
        return Err(fault(FIELD, "empty; a C1 output as JSON is needed"));
    }
    let envelope: Envelope =
        serde_json::from_slice(bytes).map_err(|error| fault(FIELD, json_reason(bytes, &error)))?;
    let json = match &envelope.phase1_out {
        Some(text) => Cow::Owned(from_base64(INNER_FIELD, text)?),
        None if envelope.vanilla_proofs.is_none() => {
            let reason =
                "neither a C1 output (no `vanilla_proofs`) nor its wrapper (no `Phase1Out`)";
            return Err(fault(FIELD, reason));
        }
        None => Cow::Borrowed(bytes),
    };
    Ok(Opened {
        json,
        sector_number: envelope.sector_number,
        sector_size: envelope.sector_size,
    })
}

/// The registered proof that a C1 output, bare or wrapped, says it is for.
pub(crate) fn registered_proof(bytes: &[u8]) -> Result<RegisteredSealProof, WorkloadError> {
    let opened = open(bytes)?;
    let head: Head = serde_json::from_slice(&opened.json)
        .map_err(|error| fault(opened.field(), json_reason(&opened.json, &error)))?;
    Ok(head.registered_proof)
}

/// Why bytes are not the JSON they should be, with line and column.
pub(crate) fn json_reason(bytes: &[u8], error: &serde_json::Error) -> String {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let what = match (first, error.classify()) {
        (Some(b'<'), _) => "an HTML or XML page where JSON should be",
        (_, serde_json::error::Category::Eof) => "JSON that is cut short",
        (_, serde_json::error::Category::Data) => "JSON of another form",
        _ => "not JSON",
    };
    format!("{what}: {error}")
}

pub(crate) fn base64_reason(error: &base64::DecodeError) -> String {
    format!("not base64: {error}")
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "SectorNum")]
    sector_number: Option<u64>,
    #[serde(rename = "Phase1Out")]
    phase1_out: Option<String>,
    #[serde(rename = "SectorSize")]
    sector_size: Option<u64>,
    vanilla_proofs: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Head {
    registered_proof: RegisteredSealProof,
}

#[derive(Deserialize)]
pub(crate) struct C1 {
    pub(crate) registered_proof: RegisteredSealProof,
    pub(crate) vanilla_proofs: VanillaProofs,
    pub(crate) comm_r: [u8; 32],
    pub(crate) comm_d: [u8; 32],
    pub(crate) replica_id: [u8; 32],
    pub(crate) seed: [u8; 32],
    pub(crate) ticket: [u8; 32],
}

/// Challenge proofs of all partitions, by the tree that the size has.
#[derive(Deserialize)]
pub(crate) enum VanillaProofs {
    #[serde(
        rename = "StackedDrg2KiBV1",
        alias = "StackedDrg8MiBV1",
        alias = "StackedDrg512MiBV1"
    )]
    Base(Vec<Vec<ChallengeProof<SectorShapeBase>>>),
    #[serde(rename = "StackedDrg32GiBV1")]
    Sub8(Vec<Vec<ChallengeProof<SectorShapeSub8>>>),
    #[serde(rename = "StackedDrg64GiBV1")]
    Top2(Vec<Vec<ChallengeProof<SectorShapeTop2>>>),
}

#[derive(Deserialize)]
#[serde(bound = "")]
pub(crate) struct ChallengeProof<Tree: Shape> {
    comm_d_proofs: MerkleProof<Sha256Hasher, U2>,
    comm_r_last_proof: TreeProof<Tree>,
    replica_column_proofs: Columns<Tree>,
    labeling_proofs: Vec<Label>,
    encoding_proof: Label,
}

#[derive(Deserialize)]
#[serde(bound = "")]
struct Columns<Tree: Shape> {
    c_x: ColumnOpening<Tree>,
    drg_parents: Vec<ColumnOpening<Tree>>,
    exp_parents: Vec<ColumnOpening<Tree>>,
}

#[derive(Deserialize)]
#[serde(bound = "")]
struct ColumnOpening<Tree: Shape> {
    column: Column,
    inclusion_proof: TreeProof<Tree>,
}

/// Labels of one node, one a layer.
#[derive(Deserialize)]
struct Column {
    index: u32,
    rows: Vec<PoseidonDomain>,
}

#[derive(Deserialize, PartialEq, Eq)]
struct Label {
    parents: Vec<PoseidonDomain>,
    layer_index: u32,
    node: u64,
}

impl<Tree: Shape> ChallengeProof<Tree> {
    /// The circuit crates' own type, if this is of the circuit's shape.
    pub(crate) fn check(
        self,
        params: &PublicParams<Tree>,
    ) -> Result<stacked::Proof<Tree, DefaultPieceHasher>, String> {
        let leaf_count = params.graph.size();
        let within = |name: &str| {
            let name = name.to_owned();
            move |reason: String| format!("{name}: {reason}")
        };
        self.check_labels(params)?;
        let Columns {
            c_x,
            drg_parents,
            exp_parents,
        } = self.replica_column_proofs;
        let open_all = |columns: Vec<ColumnOpening<Tree>>, name: &str| {
            let open = |(index, column): (usize, ColumnOpening<Tree>)| {
                column
                    .check(leaf_count)
                    .map_err(|reason| format!("{name}[{index}]: {reason}"))
            };
            columns
                .into_iter()
                .enumerate()
                .map(open)
                .collect::<Result<Vec<_>, _>>()
        };
        let last = self.encoding_proof;
        Ok(stacked::Proof {
            comm_d_proofs: well_formed(&self.comm_d_proofs, leaf_count)
                .map_err(within("comm_d_proofs"))?,
            comm_r_last_proof: well_formed(&self.comm_r_last_proof, leaf_count)
                .map_err(within("comm_r_last_proof"))?,
            replica_column_proofs: ReplicaColumnProof {
                c_x: c_x.check(leaf_count).map_err(within("c_x"))?,
                drg_parents: open_all(drg_parents, "drg_parents")?,
                exp_parents: open_all(exp_parents, "exp_parents")?,
            },
            labeling_proofs: self
                .labeling_proofs
                .into_iter()
                .map(|label| LabelingProof::new(label.layer_index, label.node, label.parents))
                .collect(),
            encoding_proof: EncodingProof::new(last.layer_index, last.node, last.parents),
        })
    }

    /// Counts of columns, rows and labels, and that each label's parents are the
    /// rows of the parents' columns: the circuit takes them from there.
    fn check_labels(&self, params: &PublicParams<Tree>) -> Result<(), String> {
        let layer_count = params.num_layers;
        let Columns {
            c_x,
            drg_parents,
            exp_parents,
        } = &self.replica_column_proofs;
        let counts = [
            (
                "drg_parents",
                drg_parents.len(),
                params.graph.base_graph().degree(),
            ),
            (
                "exp_parents",
                exp_parents.len(),
                params.graph.expansion_degree(),
            ),
            ("labeling_proofs", self.labeling_proofs.len(), layer_count),
        ];
        for (name, have, want) in counts {
            if have != want {
                return Err(format!("{have} {name}, must be {want}"));
            }
        }
        for column in drg_parents.iter().chain(exp_parents).chain([c_x]) {
            let have = column.column.rows.len();
            if have != layer_count {
                return Err(format!("a column of {have} rows, must be {layer_count}"));
            }
        }
        for (layer, label) in self.labeling_proofs.iter().enumerate() {
            let drg_rows = drg_parents.iter().map(|parent| parent.column.rows[layer]);
            // The first layer has no expander parents; the others take theirs
            // from the layer before.
            let exp_rows = exp_parents
                .iter()
                .filter_map(|parent| Some(parent.column.rows[layer.checked_sub(1)?]));
            let repeated = drg_rows.chain(exp_rows).cycle().take(TOTAL_PARENTS);
            let belongs = label.layer_index as usize == layer + 1
                && label.node == u64::from(c_x.column.index)
                && label.parents.iter().copied().eq(repeated);
            if !belongs {
                return Err(format!(
                    "labeling_proofs[{layer}] is not of these columns' labels"
                ));
            }
        }
        if self.labeling_proofs.last() != Some(&self.encoding_proof) {
            return Err("encoding_proof is not the last labeling proof's".into());
        }
        Ok(())
    }
}

impl<Tree: Shape> ColumnOpening<Tree> {
    fn check(self, leaf_count: usize) -> Result<ColumnProof<TreeProof<Tree>>, String> {
        for (layer, row) in self.column.rows.iter().enumerate() {
            scalar(&format!("row {layer} of the column"), row.as_ref())?;
        }
        let inclusion = well_formed(&self.inclusion_proof, leaf_count)?;
        Ok(ColumnProof::new(
            self.column.index,
            self.column.rows,
            inclusion,
        ))
    }
}
