//! `cpu-prove`: a real 2 KiB request, from vanilla proofs to a verified proof, beside
//! bellperson's native prover on the stock circuit with the same key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use bellperson::groth16::Parameters;
use blstrs::Bls12;
use clap::Args;
use cuzk_core::config::DevicePolicy;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate};
use cuzk_core::timeline::Lane;
use cuzk_core::{Blinding, CircuitSpec, Config, Engine, JobOptions, ProofReply};
use cuzk_filecoin::{FilecoinCircuit, ProofKind, Request, SectorSize};
use cuzk_tests::oracle;
use cuzk_tests::record::{Case, Record};
use cuzk_tests::request::RequestFile;

use crate::{Common, interleave, one_proof};

const BLINDING: Blinding = Blinding::Seeded(5);
const KEY_SEED: u64 = 3;

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Kinds to measure: porep, wpost, winning.
    #[arg(long, value_delimiter = ',', default_value = "porep,wpost,winning")]
    kinds: Vec<ProofKind>,
    /// Directory of the test keys; made where missing.
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let kinds: Vec<&str> = options.kinds.iter().map(|kind| kind.short_name()).collect();
    let Common { out, pairs, cold } = &options.common;
    let mut record = Record::new(
        "cpu-prove",
        "a 2 KiB proof on the CPU, synthesis and verification included, is made in at most \
         1/1.5 of the time of bellperson's native prover with its key in memory",
        format!(
            "cuzk-bench cpu-prove --kinds {} --pairs {pairs} --keys DIR --out DIR",
            kinds.join(",")
        ),
    );
    let tier = Config::new(options.keys.clone()).tuning.key_tier;
    record.tuning.insert("tuning.key_tier", tier.to_string());
    for &kind in &options.kinds {
        make_key(kind, &options.keys)?;
        let case = measure(kind, &options.keys, *pairs, !cold)
            .with_context(|| kind.short_name().to_owned())?;
        println!("{}", serde_json::to_string_pretty(&case)?);
        record.cases.push(case);
    }
    println!("{}", record.write(out)?.display());
    Ok(())
}

fn circuit(kind: ProofKind) -> FilecoinCircuit {
    FilecoinCircuit::new(kind, SectorSize::KiB2)
}

fn make_key(kind: ProofKind, keys: &Path) -> Result<()> {
    let circuit = circuit(kind);
    if !keys.join(circuit.params_file()).exists() {
        let output = KeyOutput {
            directory: keys,
            refused: &[],
            seed: KEY_SEED,
        };
        generate(
            &circuit,
            &ToxicWaste::from_seed(KEY_SEED),
            &output,
            &|_, _, _| {},
        )?;
    }
    Ok(())
}

fn engine(keys: &Path) -> Result<Engine> {
    let mut config = Config::new(keys.to_owned());
    config.allow_test_params = true;
    config.device_policy = DevicePolicy::Cpu;
    Ok(Engine::from_config(&config)?)
}

fn prove(engine: &Engine, kind: ProofKind) -> Result<ProofReply> {
    let request = Request::from_json(&std::fs::read(one_proof::real_request(kind))?)?;
    let workload = Arc::new(request.workload()?);
    let options = JobOptions {
        blinding: BLINDING,
        ..JobOptions::default()
    };
    Ok(engine.submit(workload, options)?.wait()?)
}

fn measure(kind: ProofKind, keys: &Path, pairs: usize, warm: bool) -> Result<Case> {
    let name = format!("{} 2 KiB", kind.wire_name());
    let engine = engine(keys)?;
    let params = std::fs::File::open(keys.join(circuit(kind).params_file()))?;
    let params = Parameters::<Bls12>::read(std::io::BufReader::new(params), false)?;
    let file = RequestFile::read(&one_proof::real_request(kind))?;

    let mut replies = Vec::new();
    let mut proofs = Vec::new();
    let mut ours = || {
        let from = Instant::now();
        let reply = prove(&engine, kind)?;
        let ms = from.elapsed().as_secs_f64() * 1000.0;
        replies.push((ms, reply));
        Ok(ms)
    };
    let mut theirs = || {
        let from = Instant::now();
        proofs.push(oracle::prove(&file, &params, BLINDING.scalars(0))?);
        Ok(from.elapsed().as_secs_f64() * 1000.0)
    };
    if warm {
        interleave(1, &mut ours, &mut theirs)?;
    }
    let measured = interleave(pairs, &mut ours, &mut theirs)?;
    let want = &proofs[0];
    let equal = replies.iter().all(|(_, reply)| reply.proof == *want);
    if !(equal && proofs.iter().all(|proof| proof == want)) {
        return Ok(Case::failed(name));
    }
    drop(params);
    let mut case = Case::paired(name, "bellperson 0.27.0 native", &measured);
    replies.sort_by(|(left, _), (right, _)| left.total_cmp(right));
    let (_, middle) = &replies[replies.len() / 2];
    // The spans of single threads lie within the part's synthesis.
    let spans = middle.timeline.spans().into_iter();
    for span in spans.filter(|span| !matches!(span.lane, Lane::Core(_))) {
        *case.phases_ms.entry(span.name.to_string()).or_default() += span.length_ms();
    }
    case.peak = one_proof::peak(kind, keys)?;
    Ok(case)
}
