//! What others say of the proof.

use anyhow::{Context, Result, ensure};
use cuzk_core::{Blinding, CircuitSpec, Workload, keygen};
use cuzk_filecoin::{FilecoinCircuit, PROOF_BYTES};
use cuzk_synth::{Extend, Template};

use super::exponents::Oracle;
use super::some_parts::SomeParts;
use super::{BLINDING_SEED, Options, Phases, judged, workload};
use crate::synth;

/// What others say of the proof: who found it right.
pub(super) fn check(
    options: &Options,
    json: &[u8],
    proof: &[u8],
    phases: &mut Phases,
) -> Result<String> {
    let mut by = vec!["the verifying key of each part".to_owned()];
    let whole = workload(options, json, "")?;
    if whole.is_whole() {
        phases.time("stock verifier", || judged::begin(options, json, proof))?;
        by.push("the stock verifier, as one proof".to_owned());
    }
    if !options.no_oracle {
        phases.time("oracle", || {
            let expected = expected(options, &whole)?;
            ensure!(
                proof.get(..PROOF_BYTES) == Some(&expected[..]),
                "the first proof is not the one that the secrets of its key say"
            );
            Ok(())
        })?;
        by.push("the secrets of the key, part 0".to_owned());
    }
    Ok(by.join("; "))
}

/// The stored rows of the circuit. The first block tells the others where all use the same
/// shared variables; were it not so, the proofs would differ.
pub(super) fn template(circuit: &FilecoinCircuit, with_c: bool) -> Result<Template> {
    let extend = if circuit.is_uniform() {
        Extend::FirstBlock {
            blocks: circuit.segments(),
        }
    } else {
        Extend::Whole
    };
    synth::segments::surveyed(circuit, extend, with_c)
}

/// The first part's proof, from the secrets of the key.
fn expected(options: &Options, workload: &SomeParts) -> Result<Vec<u8>> {
    let path = keygen::sidecar_path(&options.params());
    let sidecar = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let sidecar: keygen::Sidecar = serde_json::from_str(&sidecar)?;
    let vk = cuzk_gpu::key::read_vk(&options.keys.join(options.circuit().vk_file()))?;
    let oracle = Oracle {
        waste: &keygen::ToxicWaste::from_seed(sidecar.seed),
        vk: &vk,
    };
    let template = template(&options.circuit(), true)?;
    let part = workload.part(0)?;
    let public = workload.public_inputs(0)?;
    let blinding = Blinding::Seeded(BLINDING_SEED).scalars(0);
    oracle.proof(
        &template,
        part.as_ref(),
        &public,
        blinding,
        options.threads(),
    )
}
