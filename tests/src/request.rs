//! Request files as tests read them: on their own, without the code under test.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// A request file.
pub struct RequestFile {
    request: Value,
    verify: Value,
}

impl RequestFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is not one.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        Self::parse(&bytes)
    }

    /// Parses a file's contents.
    ///
    /// # Errors
    /// If they are not those of a request file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut file: Value = serde_json::from_slice(bytes)?;
        Ok(Self {
            request: file["request"].take(),
            verify: file["verify"].take(),
        })
    }

    /// The proof kind, as the wire calls it.
    ///
    /// # Errors
    /// If there is none.
    pub fn kind(&self) -> Result<&str> {
        self.request["proof_kind"].as_str().context("proof_kind")
    }

    /// A number of the request.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn number(&self, name: &str) -> Result<u64> {
        self.request[name].as_u64().with_context(|| name.to_owned())
    }

    /// A field of bytes of the request.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let text = self.request[name]
            .as_str()
            .with_context(|| name.to_owned())?;
        Ok(STANDARD.decode(text)?)
    }

    /// The sector proofs of the request.
    ///
    /// # Errors
    /// If there are none.
    pub fn vanilla_proofs(&self) -> Result<Vec<Vec<u8>>> {
        let list = self.request["vanilla_proofs"]
            .as_array()
            .context("vanilla_proofs")?;
        list.iter()
            .map(|text| Ok(STANDARD.decode(text.as_str().context("base64 text")?)?))
            .collect()
    }

    /// 32 bytes that the stock verifier needs.
    ///
    /// # Errors
    /// If there are none of this name.
    pub fn verifier(&self, name: &str) -> Result<[u8; 32]> {
        hex(&self.verify[name]).with_context(|| name.to_owned())
    }

    /// Commitments of the sectors that the stock verifier needs.
    ///
    /// # Errors
    /// If there are none.
    pub fn sectors(&self) -> Result<BTreeMap<u64, [u8; 32]>> {
        let list = self.verify["sectors"].as_array().context("sectors")?;
        list.iter()
            .map(|sector| {
                Ok((
                    sector["id"].as_u64().context("id")?,
                    hex(&sector["comm_r"])?,
                ))
            })
            .collect()
    }
}

fn hex(value: &Value) -> Result<[u8; 32]> {
    let text = value.as_str().context("hexadecimal text")?;
    if text.len() != 64 {
        bail!("{} digits, want 64", text.len());
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits)?, 16)?;
    }
    Ok(bytes)
}
