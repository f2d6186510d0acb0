//! What proofs on a device are measured on: the backend, page-locked memory, and a
//! circuit with its key, synthesised into columns there.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use blstrs::Scalar;
use cuzk_budget::Budget;
use cuzk_core::circuit_shape;
use cuzk_gpu::cuda::CudaBackend;
use cuzk_gpu::{Backend, CircuitShape, Columns, Key, ProveRequest, Proved};
use cuzk_gpu::{DeviceBuffers, DeviceOptions, KeyMemory};
use cuzk_pinned::cuda::{RegisterOptions, RegisteredBacking};
use cuzk_pinned::{PinnedPool, PoolOptions};
use cuzk_synth::{AssignColumns, assign};
use cuzk_tests::mixed::Mixed;
use tempfile::TempDir;

use super::{buffers, key_bytes, key_in, open_key, sizes};

/// Bytes of each of the two buffers through which a key is loaded.
const STAGING_BYTES: usize = 64 << 20;

/// Bytes of device memory that we take: a peer beside us needs some too.
const DEVICE_BYTES: u64 = 48 << 30;

/// Page-locked memory, touched by all threads when it is allocated.
pub(crate) fn pool(device: usize) -> Result<PinnedPool> {
    let context = cuzk_pinned::cuda::open(device)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Ok(PinnedPool::new(
        Budget::new(1 << 40),
        RegisteredBacking::new(context, RegisterOptions::with_threads(threads))?,
        PoolOptions::STANDARD,
    ))
}

/// A backend with its buffers from `pool`; `host_keys` bytes of that may hold keys.
pub(crate) fn start(
    device: usize,
    pool: &PinnedPool,
    host_keys: Option<u64>,
    adjust: impl FnOnce(&mut DeviceOptions),
) -> Result<CudaBackend> {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let mut staging = buffers(pool, &[STAGING_BYTES; 2])?.into_iter();
    let keys = [0; 2].map(|_| staging.next().expect("two buffers"));
    let mut options = DeviceOptions::new(device, threads, 4);
    options.memory_bytes_max = Some(DEVICE_BYTES);
    adjust(&mut options);
    let pool = pool.clone();
    let buffers = DeviceBuffers {
        keys,
        columns: None,
        host_keys: host_keys.map(|bytes_max| KeyMemory {
            bytes_max,
            take: Arc::new(move |lens: &[usize]| buffers(&pool, lens).ok()),
        }),
    };
    Ok(CudaBackend::start(options, buffers)?)
}

/// A device, ready to prove.
pub(crate) struct Bed {
    pub(crate) gpu: CudaBackend,
    pool: PinnedPool,
}

impl Bed {
    pub(crate) fn open(device: usize, adjust: impl FnOnce(&mut DeviceOptions)) -> Result<Self> {
        Self::open_with(device, None, adjust)
    }

    /// With `host_keys` bytes of page-locked memory for keys.
    pub(crate) fn open_with(
        device: usize,
        host_keys: Option<u64>,
        adjust: impl FnOnce(&mut DeviceOptions),
    ) -> Result<Self> {
        let pool = pool(device)?;
        let gpu = start(device, &pool, host_keys, adjust)?;
        Ok(Self { gpu, pool })
    }

    /// Its page-locked memory.
    pub(crate) fn pool(&self) -> &PinnedPool {
        &self.pool
    }

    /// The circuit synthesised, and its key: found under `keys` or made there, or without
    /// `keys` in a folder of its own.
    pub(crate) fn lay(&self, circuit: Mixed, keys: Option<&Path>) -> Result<Laid<'_>> {
        let name = name(circuit);
        let temporary = match keys {
            Some(_) => None,
            None => Some(tempfile::tempdir()?),
        };
        let directory = keys.or(temporary.as_ref().map(TempDir::path));
        let params = key_in(directory.expect("one of the two"), &circuit, &self.gpu)?;
        let key = open_key(&params)?;
        let layout = self.gpu.layout(&sizes(circuit));
        let begin = Instant::now();
        let bytes: Vec<usize> = layout.lens().iter().map(|len| len * 32).collect();
        let mut columns = Columns::from_buffers(buffers(&self.pool, &bytes)?, &layout);
        let assigned = assign(
            AssignColumns {
                a: columns.a.scalars_mut(),
                b: columns.b.scalars_mut(),
                // Where the backend takes it, and does not compute it.
                c: columns.c.as_mut().map(|c| c.scalars_mut()),
                aux: columns.aux.scalars_mut(),
            },
            |pass| bellpepper_core::Circuit::synthesize(circuit, pass),
        )?;
        println!(
            "{name}: synthesised in {:.2} s",
            begin.elapsed().as_secs_f64()
        );
        let shape = Arc::new(circuit_shape(&assigned.sizes, &assigned.densities));
        key.check_shape(&shape)?;
        Ok(Laid {
            gpu: &self.gpu,
            params,
            column_bytes: bytes.iter().map(|bytes| *bytes as u64).sum(),
            inputs: assigned.inputs,
            shape,
            key,
            columns: Some(columns),
            _temporary: temporary,
        })
    }
}

/// A circuit as cases name it.
pub(crate) fn name(circuit: Mixed) -> String {
    let share = f64::from(circuit.full_per_mille) / 10.0;
    format!("2^{}, {share} % full scalars", circuit.log_size)
}

/// A circuit whose columns are synthesised and whose key is a file.
pub(crate) struct Laid<'a> {
    gpu: &'a CudaBackend,
    pub(crate) params: PathBuf,
    /// Bytes that an upload brings to the device, and that lie in page-locked memory.
    pub(crate) column_bytes: u64,
    inputs: Vec<Scalar>,
    shape: Arc<CircuitShape>,
    key: Arc<Key>,
    columns: Option<Columns>,
    _temporary: Option<TempDir>,
}

impl Laid<'_> {
    /// Bytes of the points that a device loads.
    pub(crate) fn key_bytes(&self) -> u64 {
        key_bytes(&self.key)
    }

    /// Opens the key's file anew, in place of the key that was used until now.
    pub(crate) fn open_key(&mut self) -> Result<()> {
        self.key = open_key(&self.params)?;
        Ok(())
    }

    /// One proof, and the milliseconds from its submission to its end.
    pub(crate) fn prove(&mut self) -> Result<(f64, Proved)> {
        let request = ProveRequest {
            columns: self.columns.take().context("the columns came back")?,
            inputs: self.inputs.clone(),
            shape: Arc::clone(&self.shape),
            key: Arc::clone(&self.key),
            r: Scalar::from(7),
            s: Scalar::from(9),
            watch: None,
        };
        let begin = Instant::now();
        let mut pending = self.gpu.submit(request);
        self.columns = pending.columns_read();
        let proved = pending.done()?;
        Ok((begin.elapsed().as_secs_f64() * 1e3, proved))
    }

    /// Whether the proof is one of this circuit.
    pub(crate) fn check(&self, proved: &Proved) -> Result<()> {
        ensure!(
            self.key.verifier().verify(&proved.proof, &self.inputs[1..]),
            "the proof does not verify"
        );
        Ok(())
    }
}
