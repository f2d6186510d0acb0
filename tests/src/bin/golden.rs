//! Writes the golden proof of the real 2 KiB PoRep: bellperson's bytes, with the
//! test key of seed 3 and blinding seed 11.
//!
//! `cargo run -p cuzk-tests --bin golden -- KEY_DIR`, where KEY_DIR is new or holds
//! that key.

use std::path::Path;

use anyhow::{Context, Result};
use bellperson::groth16::Parameters;
use blstrs::Bls12;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate};
use cuzk_core::{Blinding, CircuitSpec};
use cuzk_filecoin::{FilecoinCircuit, ProofKind, SectorSize};
use cuzk_tests::oracle;
use cuzk_tests::request::RequestFile;

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).context("want KEY_DIR")?;
    let directory = Path::new(&directory);
    let circuit = FilecoinCircuit::new(ProofKind::PoRep, SectorSize::KiB2);
    let params = directory.join(circuit.params_file());
    if !params.exists() {
        let output = KeyOutput {
            directory,
            refused: &[],
            seed: 3,
        };
        generate(&circuit, &ToxicWaste::from_seed(3), &output, &|_, _, _| {})?;
    }
    let params = std::io::BufReader::new(std::fs::File::open(params)?);
    let params = Parameters::<Bls12>::read(params, false)?;
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let request = package.join("../crates/cuzk-filecoin/tests/data/porep-2k.json");
    let file = RequestFile::read(&request)?;
    let proof = oracle::prove(&file, &params, Blinding::Seeded(11).scalars(0))?;
    let text: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(package.join("golden/porep-2k.txt"), text + "\n")?;
    Ok(())
}
