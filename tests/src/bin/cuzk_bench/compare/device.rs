//! The prover's stage on a device: a backend a setting, which proves one assignment at a
//! time, or is fed with several.

mod alone;
mod fed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use cuzk_core::Config;
use cuzk_gpu::cpu::h::{CSource, Transforms};
use cuzk_gpu::{DeviceOptions, Phase};
use cuzk_tests::mixed::Mixed;

use super::settings::Switches;
use super::{Options, Runner, job};
use crate::bed::{Bed, key_bytes, key_in, open_key};
use crate::replay::Tier;

/// Bytes of the device's memory that all backends take together.
const DEVICE_BYTES: u64 = 120 << 30;

/// Switches that only this workload has.
const OWN: [&str; 3] = ["split", "tier", "device_buffers"];

/// What the workload's own switches say.
#[derive(Clone, Copy)]
struct Own {
    /// Whether zeros and ones are taken out before a multiplication.
    is_split: bool,
    /// Where the key is.
    tier: Tier,
    /// Whether as much as a proof works in is allocated and freed beside each.
    is_allocating: bool,
}

/// When device memory is taken.
#[derive(Clone, Copy, ValueEnum)]
enum Taken {
    /// Once, at the start.
    Kept,
    /// For each proof.
    PerProof,
}

impl Own {
    fn of(switches: &Switches) -> Result<Self> {
        let split = switches.own("split").map(bool::from_str);
        let tier = word::<Tier>(switches, "tier")?.unwrap_or(Tier::Resident);
        let taken = word::<Taken>(switches, "device_buffers")?;
        Ok(Self {
            is_split: split.transpose().context("bench.split")?.unwrap_or(true),
            tier,
            is_allocating: matches!(taken, Some(Taken::PerProof)),
        })
    }
}

/// A switch that is one of several words.
fn word<T: ValueEnum>(switches: &Switches, name: &str) -> Result<Option<T>> {
    let word = switches.own(name).map(|word| T::from_str(word, false));
    word.transpose()
        .map_err(|error| anyhow!("bench.{name}: {error}"))
}

/// A backend and what its setting says.
struct Place {
    bed: Bed,
    own: Own,
}

/// Starts a backend for each setting and lets them prove.
pub(super) fn with(options: &Options, drive: impl FnOnce(Runner<'_>) -> Result<()>) -> Result<()> {
    let circuit = job::mixed(&options.circuit)?.context("want mixed-LOG_SIZE-PER_MILLE")?;
    let temporary = tempfile::tempdir()?;
    let keys: PathBuf = match &options.keys {
        Some(keys) => keys.clone(),
        None => temporary.path().to_owned(),
    };
    std::fs::create_dir_all(&keys)?;
    let places = open(options, circuit, &keys)?;
    match options.parts {
        1 => alone::with(circuit, &keys, &places, drive),
        parts => fed::with(circuit, &keys, &places, parts, drive),
    }
}

fn open(options: &Options, circuit: Mixed, keys: &Path) -> Result<Vec<Place>> {
    // Made before the settings share the device's memory, and its size is known.
    let params = key_in(keys, &circuit, &Bed::open(0, |_| {})?.gpu)?;
    let host_bytes = key_bytes(&*open_key(&params)?);
    let bytes = DEVICE_BYTES / options.settings.len() as u64;
    let mut places = Vec::new();
    for (setting, switches) in options.settings.iter().zip(options.switches()?) {
        let place = || format!("setting {}", setting.name);
        let config = switches.apply(Config::new(keys.to_owned()), &OWN);
        let config = config.with_context(place)?;
        let own = Own::of(&switches).with_context(place)?;
        let host_keys = (own.tier == Tier::Pinned).then_some(host_bytes);
        let adjust = |device: &mut DeviceOptions| {
            device.memory_bytes_max = Some(bytes);
            device.is_split = own.is_split;
            device.is_key_resident = own.tier == Tier::Resident;
            set(device, &config);
            device.queue_len_max = device.slots + 1;
        };
        let bed = Bed::open_with(0, host_keys, adjust).with_context(place)?;
        places.push(Place { bed, own });
    }
    Ok(places)
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

/// Adds the milliseconds of phases, and the bytes of copies.
fn add(metrics: &mut BTreeMap<String, f64>, phases: &[Phase]) {
    for phase in phases {
        let entry = metrics.entry(format!("{}_ms", phase.name));
        *entry.or_default() += phase.length_ms();
        if let Some(bytes) = phase.bytes {
            *metrics.entry(format!("{}_bytes", phase.name)).or_default() += bytes as f64;
        }
    }
}
