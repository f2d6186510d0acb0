//! What proofs are measured on: keys, page-locked memory, a device.

#[cfg(feature = "cuda")]
mod device;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use cuzk_budget::{Consumer, Priority, Wait};
use cuzk_core::CircuitSpec;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate_with};
use cuzk_gpu::fixed_base::Multiplier;
use cuzk_gpu::{CircuitSizes, Key, KeyChecks, PointCheck, Section};
use cuzk_pinned::{AcquireRequest, PinnedBacking, PinnedPool};
use cuzk_tests::mixed::Mixed;

#[cfg(feature = "cuda")]
pub(crate) use device::{Bed, Laid, name, pool, start};

/// Buffers of a pool that has room for them.
pub(crate) fn buffers(pool: &PinnedPool, bytes: &[usize]) -> Result<Vec<PinnedBacking>> {
    let request = AcquireRequest {
        buffers: bytes,
        bytes: 0,
        consumer: Consumer("measurement"),
        wait: Wait::with_priority(Priority::NORMAL),
    };
    Ok(pool.try_acquire(&request)?.buffers.into_iter().collect())
}

/// The key of a circuit in a folder, made there if it is not there yet.
pub(crate) fn key_in(
    directory: &Path,
    circuit: &dyn CircuitSpec,
    multiplier: &dyn Multiplier,
) -> Result<PathBuf> {
    let params = directory.join(circuit.params_file());
    if !params.exists() {
        let output = KeyOutput {
            directory,
            refused: &[],
            seed: 1,
        };
        let begin = Instant::now();
        let waste = ToxicWaste::from_seed(1);
        let stages = Stages::default();
        let progress = |stage, done, total| stages.progress(stage, done, total);
        generate_with(multiplier, circuit, &waste, &output, &progress)?;
        stages.end();
        let seconds = begin.elapsed().as_secs_f64();
        println!("{}: made in {seconds:.1} s", circuit.id());
    }
    Ok(params)
}

/// Tells the seconds of each stage of a key as it ends.
#[derive(Default)]
struct Stages(Mutex<Option<(String, Instant)>>);

impl Stages {
    fn progress(&self, stage: &str, done: u64, total: u64) {
        if done > 0 {
            return;
        }
        let name = match total {
            1 => stage.to_owned(),
            _ => format!("{stage} of {total}"),
        };
        self.next(Some(name));
    }

    fn end(&self) {
        self.next(None);
    }

    fn next(&self, name: Option<String>) {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((ended, begin)) = stage.take() {
            println!("{:10} {ended}: {:.2} s", "", begin.elapsed().as_secs_f64());
        }
        *stage = name.map(|name| (name, Instant::now()));
    }
}

/// Sizes of a circuit, told without a pass over it.
pub(crate) fn sizes(circuit: Mixed) -> CircuitSizes {
    CircuitSizes {
        inputs: 2,
        aux: (1 << circuit.log_size) - 3,
        constraints: 1 << circuit.log_size,
    }
}

/// Bytes of a key's points, as a device has them.
pub(crate) fn key_bytes(key: &Key) -> u64 {
    let count = |section| key.count(section) as u64;
    let g1 = [Section::H, Section::L, Section::A, Section::BG1];
    g1.map(|section| count(section) * 96).iter().sum::<u64>() + count(Section::BG2) * 192
}

/// A key file that was made here. Where a device brings its points, it checks them.
pub(crate) fn open_key(path: &Path) -> Result<Arc<Key>> {
    let checks = KeyChecks {
        points: PointCheck::None,
        digest: None,
    };
    Ok(Arc::new(Key::open(path, &checks)?))
}
