//! Requests: the fields that a client sends, and the JSON file form of them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cuzk_core::WorkloadError;
use cuzk_core::schedule::Priority;
use serde::Deserialize;

use crate::c1;
use crate::error::{fault, item};
use crate::registered::seal_number;
use crate::sizes::{ProofKind, SectorSize};
use crate::workload::FilecoinWorkload;
use crate::{porep, post, priority, snap};

/// A request for one proof, as clients send it. Integers and bytes are as they
/// came; [`workload`](Self::workload) checks them.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The client's own name of the request. It may repeat.
    pub request_id: String,
    /// What to prove.
    pub proof_kind: ProofKind,
    /// Sector size in bytes.
    pub sector_size: u64,
    /// The chain's number of the registered proof; kinds count on their own.
    pub registered_proof: u64,
    /// How urgent it is.
    pub priority: Priority,
    /// PoRep: the C1 output as JSON, bare or in the client's wrapper.
    pub vanilla_proof: Vec<u8>,
    /// PoSt: one sector proof each. SnapDeals: one partition proof each. Bincode.
    pub vanilla_proofs: Vec<Vec<u8>>,
    /// PoRep and SnapDeals: the sector.
    pub sector_number: u64,
    /// The miner's actor id (1000 for `f01000`).
    pub miner_id: u64,
    /// PoSt: 32 bytes from the chain.
    pub randomness: Vec<u8>,
    /// WindowPoSt: which partition of the deadline.
    pub partition_index: u32,
    /// SnapDeals: commitment of the replica before, 32 bytes.
    pub comm_r_old: Vec<u8>,
    /// SnapDeals: commitment of the replica after, 32 bytes.
    pub comm_r_new: Vec<u8>,
    /// SnapDeals: commitment of the data after, 32 bytes.
    pub comm_d_new: Vec<u8>,
}

/// Names the request and not its proofs, which are witness data and large.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("request_id", &self.request_id)
            .field("proof_kind", &self.proof_kind)
            .field("sector_size", &self.sector_size)
            .field("registered_proof", &self.registered_proof)
            .field("miner_id", &self.miner_id)
            .field("sector_number", &self.sector_number)
            .field("partition_index", &self.partition_index)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// Reads a request file: an object with `request` (the fields of a request,
    /// bytes in base64) and optionally `verify`, which is skipped; or the inner
    /// object alone. Unknown fields are refused.
    ///
    /// # Errors
    /// With the field and list index, or the line and column of the JSON.
    pub fn from_json(bytes: &[u8]) -> Result<Self, WorkloadError> {
        let json = |error: serde_json::Error| fault("request file", c1::json_reason(bytes, &error));
        // One skipping pass tells the two forms apart, so that errors of the
        // second keep their line and column.
        let probe: Probe = serde_json::from_slice(bytes).map_err(json)?;
        let fields = if probe.request.is_some() {
            serde_json::from_slice::<File>(bytes).map_err(json)?.request
        } else {
            serde_json::from_slice(bytes).map_err(json)?
        };
        fields.decode()
    }

    /// A PoRep request from a C1 output, bare or wrapped, of a miner's sector.
    /// Sector size and registered proof are the output's own.
    ///
    /// # Errors
    /// With the line and column if the output is not JSON of the right form.
    pub fn from_c1(
        c1_bytes: &[u8],
        miner_id: u64,
        sector_number: u64,
    ) -> Result<Self, WorkloadError> {
        let proof = c1::registered_proof(c1_bytes)?;
        Ok(Self {
            request_id: format!("porep-{miner_id}-{sector_number}"),
            proof_kind: ProofKind::PoRep,
            sector_size: u64::from(proof.sector_size()),
            registered_proof: seal_number(proof),
            priority: ProofKind::PoRep.default_priority(),
            vanilla_proof: c1_bytes.to_vec(),
            vanilla_proofs: Vec::new(),
            sector_number,
            miner_id,
            randomness: Vec::new(),
            partition_index: 0,
            comm_r_old: Vec::new(),
            comm_r_new: Vec::new(),
            comm_d_new: Vec::new(),
        })
    }

    /// Parses the vanilla proofs and checks all that can be checked without
    /// hashing them; [`FilecoinWorkload::check_vanilla`] does the rest.
    ///
    /// # Errors
    /// With the field, and the index within it, that is at fault.
    pub fn workload(&self) -> Result<FilecoinWorkload, WorkloadError> {
        let size = SectorSize::from_bytes(self.sector_size).ok_or_else(|| {
            let have = self.sector_size;
            let known = SectorSize::ALL.map(|size| size.to_string()).join(", ");
            fault(
                "sector_size",
                format!("{have} bytes; the chain has {known}"),
            )
        })?;
        match self.proof_kind {
            ProofKind::PoRep => porep::workload(self, size),
            ProofKind::WindowPost | ProofKind::WinningPost => post::workload(self, size),
            ProofKind::SnapDeals => snap::workload(self, size),
        }
    }

    /// Refuses one proof where a list is due, with an item for each `unit`.
    pub(crate) fn sends_a_list(&self, unit: &str) -> Result<(), WorkloadError> {
        if self.vanilla_proof.is_empty() {
            return Ok(());
        }
        let kind = self.proof_kind;
        let reason = format!("{kind} takes its proofs in vanilla_proofs, one a {unit}");
        Err(fault("vanilla_proof", reason))
    }

    /// For labels: whose sector a PoRep or a replica update is of.
    pub(crate) fn sector(&self) -> String {
        format!("sector {} of miner {}", self.sector_number, self.miner_id)
    }
}

/// Bytes that must be exactly 32.
pub(crate) fn bytes32(field: &str, bytes: &[u8]) -> Result<[u8; 32], WorkloadError> {
    bytes
        .try_into()
        .map_err(|_| fault(field, format!("{} bytes, must be 32", bytes.len())))
}

/// The prover id that the chain derives from a miner's actor id: the payload of
/// its ID address (unsigned LEB128), padded with zeros.
pub fn prover_id(miner_id: u64) -> [u8; 32] {
    let mut id = [0; 32];
    let mut rest = miner_id;
    for byte in &mut id {
        *byte = (rest & 0x7f) as u8;
        rest >>= 7;
        if rest == 0 {
            break;
        }
        *byte |= 0x80;
    }
    id
}

#[derive(Deserialize)]
struct Probe {
    request: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    request: Fields,
    #[serde(default, rename = "verify")]
    _verify: serde::de::IgnoredAny,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fields {
    request_id: String,
    proof_kind: Option<String>,
    sector_size: u64,
    registered_proof: u64,
    priority: Option<String>,
    vanilla_proof: String,
    vanilla_proofs: Vec<String>,
    sector_number: u64,
    miner_id: u64,
    randomness: String,
    partition_index: u32,
    comm_r_old: String,
    comm_r_new: String,
    comm_d_new: String,
}

impl Fields {
    fn decode(self) -> Result<Request, WorkloadError> {
        let proof_kind: ProofKind = match self.proof_kind.as_deref() {
            None | Some("PROOF_KIND_UNSPECIFIED") => {
                return Err(fault("proof_kind", "missing"));
            }
            Some(name) => name
                .parse()
                .map_err(|unknown| fault("proof_kind", unknown))?,
        };
        let priority = match self.priority.as_deref() {
            None | Some("PRIORITY_UNSPECIFIED") => proof_kind.default_priority(),
            Some(name) => priority::from_wire_name(name).ok_or_else(|| {
                let reason = format!("`{name}` is none of LOW, NORMAL, HIGH, CRITICAL");
                fault("priority", reason)
            })?,
        };
        let vanilla_proofs = self
            .vanilla_proofs
            .iter()
            .enumerate()
            .map(|(index, text)| from_base64(&item("vanilla_proofs", index), text))
            .collect::<Result<_, _>>()?;
        Ok(Request {
            request_id: self.request_id,
            proof_kind,
            sector_size: self.sector_size,
            registered_proof: self.registered_proof,
            priority,
            vanilla_proof: from_base64("vanilla_proof", &self.vanilla_proof)?,
            vanilla_proofs,
            sector_number: self.sector_number,
            miner_id: self.miner_id,
            randomness: from_base64("randomness", &self.randomness)?,
            partition_index: self.partition_index,
            comm_r_old: from_base64("comm_r_old", &self.comm_r_old)?,
            comm_r_new: from_base64("comm_r_new", &self.comm_r_new)?,
            comm_d_new: from_base64("comm_d_new", &self.comm_d_new)?,
        })
    }
}

pub(crate) fn from_base64(field: &str, text: &str) -> Result<Vec<u8>, WorkloadError> {
    STANDARD
        .decode(text)
        .map_err(|error| fault(field, c1::base64_reason(&error)))
}
