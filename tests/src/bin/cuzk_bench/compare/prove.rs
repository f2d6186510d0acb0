//! A job through the engine: an engine a setting, all of them there at the same time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bellperson::groth16::Proof;
use cuzk_budget::LimitRule;
use cuzk_core::config::{DevicePolicy, PointCheck};
use cuzk_core::timeline::{Lane, Timeline};
use cuzk_core::{Blinding, Config, Engine, JobOptions, ProofReply, Workload};
use cuzk_filecoin::PROOF_BYTES;
use cuzk_gpu::fixed_base::OnCpu;

use super::trim::{Trim, resident_bytes};
use super::{On, Options, Run, Runner, Timer, job, pages};
use crate::bed::{key_in, open_key};

/// The same for every setting, so that all give the same bytes.
const BLINDING: Blinding = Blinding::Seeded(5);

/// Switches that only this workload has: when freed memory goes back to the system.
const OWN: [&str; 1] = ["trim"];

/// Of a device's memory, what all engines take together, in percent.
const DEVICE_PERCENT: u64 = 90;

/// Starts an engine for each setting and lets them run.
pub(super) fn with(options: &Options, drive: impl FnOnce(Runner<'_>) -> Result<()>) -> Result<()> {
    let workload = job::of(&options.circuit, options.parts)?;
    let temporary = tempfile::tempdir()?;
    let keys = options.keys.as_deref().unwrap_or(temporary.path());
    let params = make_key(options, workload.as_ref(), keys)?;
    let mut engines = Vec::new();
    for (setting, switches) in options.settings.iter().zip(options.switches()?) {
        let place = || format!("setting {}", setting.name);
        let config = config(options, keys);
        let engine = switches
            .apply(config, &OWN)
            .and_then(|config| Ok(Engine::from_config(&config)?))
            .with_context(place)?;
        let trim = switches.own("trim").map(str::parse::<Trim>);
        engines.push((engine, trim.transpose().with_context(place)?));
    }
    let key = open_key(&params)?;
    let mut expected: Option<Vec<u8>> = None;
    drive(&mut |setting, spoil| {
        let (engine, trim) = &engines[setting];
        let job = || -> Result<ProofReply> {
            let options = JobOptions {
                blinding: BLINDING,
                ..JobOptions::default()
            };
            Ok(engine.submit(Arc::clone(&workload), options)?.wait()?)
        };
        let timed = |on_path: &mut dyn FnMut()| {
            let timer = Timer::start();
            let reply = job()?;
            on_path();
            Ok((reply, timer.told()))
        };
        let (reply, times) = match trim {
            None => timed(&mut || {})?,
            Some(trim) => {
                let untimed = || job().map(|_| ());
                let ((reply, mut times), took) = trim.around(untimed, timed)?;
                if let Some(took) = took {
                    times.insert("trim_ms".to_owned(), took.as_secs_f64() * 1e3);
                }
                if let Some(bytes) = resident_bytes() {
                    times.insert("resident_bytes".to_owned(), bytes as f64);
                }
                (reply, times)
            }
        };
        let mut bytes = reply.proof.clone();
        if spoil {
            // The sign of C: another point of the curve.
            bytes[PROOF_BYTES - 48] ^= 0x20;
        }
        let proofs: Result<Vec<_>, _> = bytes.chunks(PROOF_BYTES).map(Proof::read).collect();
        ensure!(
            workload.verify(key.verifier(), &proofs?)?,
            "the proof does not verify"
        );
        ensure!(reply.retries() == 0, "it was tried again");
        let expected = expected.get_or_insert_with(|| bytes.clone());
        ensure!(*expected == bytes, "another setting gave another proof");
        Ok(told(times, &reply))
    })
}

fn config(options: &Options, keys: &Path) -> Config {
    let mut config = Config::new(keys.to_owned());
    config.allow_test_params = true;
    // Made here, and its proofs are verified.
    config.params_check = PointCheck::Counts;
    match options.on {
        On::Cpu => config.device_policy = DevicePolicy::Cpu,
        On::Gpu => {
            config.device_policy = DevicePolicy::RequireGpu;
            let share = DEVICE_PERCENT / options.settings.len() as u64;
            config.device_memory_limit = LimitRule::Percent(u8::try_from(share).unwrap_or(1));
        }
    }
    config
}

/// The circuit's key, made on the device where proofs are.
fn make_key(options: &Options, workload: &dyn Workload, keys: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(keys).with_context(|| keys.display().to_string())?;
    let circuit = workload.circuit();
    #[cfg(feature = "cuda")]
    if options.on == On::Gpu {
        let bed = crate::bed::Bed::open(0, |_| {})?;
        return key_in(keys, circuit.as_ref(), &bed.gpu);
    }
    let _ = options;
    key_in(keys, circuit.as_ref(), &OnCpu)
}

fn told(times: BTreeMap<String, f64>, reply: &ProofReply) -> Run {
    let mut metrics = phases(&reply.timeline);
    metrics.extend(times);
    let used = BTreeMap::from([
        ("backend".to_owned(), reply.backend.to_owned()),
        ("tier".to_owned(), reply.tier.clone()),
        ("placement".to_owned(), reply.placement().to_owned()),
        ("synthesis".to_owned(), reply.synthesis()),
        ("huge_pages".to_owned(), pages::offered()),
    ]);
    Run { metrics, used }
}

/// Milliseconds by span, and bytes of copies, of all parts together.
fn phases(timeline: &Timeline) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::<String, f64>::new();
    // The spans of single threads lie within the part's synthesis.
    let spans = timeline.spans().into_iter();
    for span in spans.filter(|span| !matches!(span.lane, Lane::Core(_))) {
        *metrics.entry(format!("{}_ms", span.name)).or_default() += span.length_ms();
        if let Some(bytes) = span.bytes {
            *metrics.entry(format!("{}_bytes", span.name)).or_default() += bytes as f64;
        }
    }
    metrics
}
