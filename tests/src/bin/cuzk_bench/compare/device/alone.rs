//! One proof after the other, each backend with the assignment in page-locked memory of its
//! own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use cuzk_tests::mixed::Mixed;

use super::{Place, add};
use crate::bed::{Bed, sizes};
use crate::compare::{Run, Runner, WALL};
use crate::peer::hex;
use crate::placements::device::DeviceMemory;

/// Lets the settings prove.
pub(super) fn with(
    circuit: Mixed,
    keys: &Path,
    places: &[Place],
    drive: impl FnOnce(Runner<'_>) -> Result<()>,
) -> Result<()> {
    let mut laid = Vec::new();
    for place in places {
        laid.push(place.bed.lay(circuit, Some(keys))?);
    }
    let context = cuzk_pinned::cuda::open(0)?;
    let mut expected: Option<String> = None;
    drive(&mut |setting, spoil| {
        let Place { bed, own } = &places[setting];
        let laid = &mut laid[setting];
        let begin = Instant::now();
        let lens = if own.is_allocating {
            work_bytes(bed, circuit)
        } else {
            Vec::new()
        };
        let taken = lens.into_iter().map(|len| DeviceMemory::new(&context, len));
        let taken: Vec<DeviceMemory> = taken.collect::<Result<_>>()?;
        let allocate_ms = ms_since(begin);
        let (mut wall_ms, mut proved) = laid.prove()?;
        let begin = Instant::now();
        drop(taken);
        let mut metrics = BTreeMap::new();
        if own.is_allocating {
            let free_ms = ms_since(begin);
            wall_ms += allocate_ms + free_ms;
            metrics.insert("allocate_ms".to_owned(), allocate_ms);
            metrics.insert("free_ms".to_owned(), free_ms);
        }
        metrics.insert(WALL.to_owned(), wall_ms);
        add(&mut metrics, &proved.phases);
        if spoil {
            proved.proof.c = -proved.proof.c;
        }
        laid.check(&proved)?;
        let bytes = hex(&proved.proof)?;
        let expected = expected.get_or_insert_with(|| bytes.clone());
        ensure!(*expected == bytes, "another setting gave another proof");
        let tier = proved.tier.map(|tier| tier.to_string());
        let tier = tier.unwrap_or_else(|| "none".to_owned());
        let used = BTreeMap::from([("tier".to_owned(), tier)]);
        Ok(Run { metrics, used })
    })
}

/// The least that a proof works in: its columns, and as much for sums as one of them.
fn work_bytes(bed: &Bed, circuit: Mixed) -> Vec<usize> {
    let lens = bed.gpu.column_layout(&sizes(circuit)).lens();
    let scratch = lens.iter().max().copied();
    lens.into_iter()
        .chain(scratch)
        .map(|len| len * 32)
        .collect()
}

fn ms_since(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}
