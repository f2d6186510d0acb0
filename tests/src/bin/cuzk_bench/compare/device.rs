//! The prover's stage on a device: a backend a setting, each with the assignment in
//! page-locked memory of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use cuzk_core::Config;
use cuzk_gpu::cpu::h::{CSource, Transforms};
use cuzk_gpu::{DeviceOptions, Proved};

use super::{Options, Run, Runner, WALL, job};
use crate::bed::Bed;
use crate::peer::hex;

/// Bytes of the device's memory that all backends take together.
const DEVICE_BYTES: u64 = 120 << 30;

/// Switches that only this workload has: whether zeros and ones are taken out before a
/// multiplication, and whether a key stays on the device.
const OWN: [&str; 2] = ["split", "resident"];

/// Starts a backend for each setting and lets them prove.
pub(super) fn with(options: &Options, drive: impl FnOnce(Runner<'_>) -> Result<()>) -> Result<()> {
    let circuit = job::mixed(&options.circuit)?.context("want mixed-LOG_SIZE-PER_MILLE")?;
    let temporary = tempfile::tempdir()?;
    let keys: PathBuf = match &options.keys {
        Some(keys) => keys.clone(),
        None => temporary.path().to_owned(),
    };
    std::fs::create_dir_all(&keys)?;
    let bytes = DEVICE_BYTES / options.settings.len() as u64;
    let mut beds = Vec::new();
    for switches in options.switches()? {
        let config = switches.apply(Config::new(keys.clone()), &OWN)?;
        let mut is_split = true;
        let mut is_resident = true;
        for (name, value) in [("split", &mut is_split), ("resident", &mut is_resident)] {
            if let Some(word) = switches.own(name) {
                *value = word.parse().with_context(|| format!("bench.{name}"))?;
            }
        }
        let adjust = |device: &mut DeviceOptions| {
            device.memory_bytes_max = Some(bytes);
            device.is_split = is_split;
            device.is_key_resident = is_resident;
            set(device, &config);
        };
        beds.push(Bed::open(0, adjust)?);
    }
    let mut laid = Vec::new();
    for bed in &beds {
        laid.push(bed.lay(circuit, Some(&keys))?);
    }
    let mut expected: Option<String> = None;
    drive(&mut |setting, spoil| {
        let laid = &mut laid[setting];
        let (wall_ms, mut proved) = laid.prove()?;
        if spoil {
            proved.proof.c = -proved.proof.c;
        }
        laid.check(&proved)?;
        let bytes = hex(&proved.proof)?;
        let expected = expected.get_or_insert_with(|| bytes.clone());
        ensure!(*expected == bytes, "another setting gave another proof");
        Ok(told(wall_ms, &proved))
    })
}

/// What an engine would set.
fn set(device: &mut DeviceOptions, config: &Config) {
    device.slots = config.device_slots;
    (device.c_source, device.transforms) = if config.tuning.c_from_ab {
        (CSource::Product, Transforms::Six)
    } else {
        (CSource::Synthesised, Transforms::Seven)
    };
    device.key_batch = config.tuning.key_batch;
    device.is_early = config.tuning.early_start;
    device.window_bits = config.tuning.window_bits;
    device.is_split_on_host = config.tuning.split_on_cpu;
    device.is_b_g2_on_host = config.tuning.b_g2_on_cpu;
}

fn told(wall_ms: f64, proved: &Proved) -> Run {
    let mut metrics = BTreeMap::from([(WALL.to_owned(), wall_ms)]);
    for phase in &proved.phases {
        let entry = metrics.entry(format!("{}_ms", phase.name));
        *entry.or_default() += phase.length_ms();
        if let Some(bytes) = phase.bytes {
            *metrics.entry(format!("{}_bytes", phase.name)).or_default() += bytes as f64;
        }
    }
    let tier = proved
        .tier
        .map_or("none".to_owned(), |tier| tier.to_string());
    let used = BTreeMap::from([("tier".to_owned(), tier)]);
    Run { metrics, used }
}
