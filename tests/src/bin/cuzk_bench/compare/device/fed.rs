//! Backends that are fed with several proofs of a key, as fast as they take them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cuzk_gpu::Backend;
use cuzk_tests::mixed::Mixed;

use super::{Place, add};
use crate::bed::{key_in, open_key};
use crate::compare::{Run, Runner, WALL};
use crate::replay::feed::feed;
use crate::replay::prepared::Prepared;

/// Distinct assignments: as many as are waiting for their upload or on it.
const ASSIGNMENTS: usize = 4;

/// Lets the settings prove `parts` proofs a run.
pub(super) fn with(
    circuit: Mixed,
    keys: &Path,
    places: &[Place],
    parts: usize,
    drive: impl FnOnce(Runner<'_>) -> Result<()>,
) -> Result<()> {
    let first = places.first().context("no settings")?;
    ensure!(
        places.iter().all(|place| !place.own.is_allocating),
        "bench.device_buffers is for one proof at a time: want --parts 1, have {parts}"
    );
    let gpu = &first.bed.gpu;
    let layout = gpu.column_layout(&crate::bed::sizes(circuit));
    let key = open_key(&key_in(keys, &circuit, gpu)?)?;
    // The same assignments for all, so that all give the same proofs.
    let mut prepared = Prepared::new(
        first.bed.pool(),
        Box::new(circuit),
        gpu,
        key,
        None,
        ASSIGNMENTS,
    )?;
    for place in places {
        let other = place.bed.gpu.column_layout(&crate::bed::sizes(circuit));
        ensure!(other == layout, "settings with other columns");
        // Its key is where it stays after this.
        prepared.expect_alone(&place.bed.gpu)?;
    }
    drive(&mut |setting, spoil| {
        let Place { bed, own } = &places[setting];
        let gpu = &bed.gpu;
        if spoil {
            prepared.spoil();
        }
        let before = gpu.key_bytes_brought();
        let begin = Instant::now();
        let made = feed(gpu, &mut prepared, parts, gpu.slots() + 1)?;
        let wall_ms = begin.elapsed().as_secs_f64() * 1e3;
        let key_bytes = gpu.key_bytes_brought() - before;
        let per_proof = 1.0 / parts as f64;
        let mut metrics = BTreeMap::new();
        for made in &made {
            add(&mut metrics, &made.phases);
        }
        for sum in metrics.values_mut() {
            *sum *= per_proof;
        }
        metrics.insert(WALL.to_owned(), wall_ms);
        metrics.insert("proof_ms".to_owned(), wall_ms * per_proof);
        metrics.insert("key_bytes".to_owned(), key_bytes as f64 * per_proof);
        let wanted = own.tier.of_proof();
        let tiers: BTreeSet<String> = made
            .iter()
            .filter_map(|made| made.tier)
            .map(|tier| tier.to_string())
            .collect();
        ensure!(
            tiers.iter().eq([&wanted.to_string()]),
            "proved with the key {tiers:?}, want {wanted}"
        );
        let used = BTreeMap::from([("tier".to_owned(), wanted.to_string())]);
        Ok(Run { metrics, used })
    })
}
