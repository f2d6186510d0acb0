//! Where the parts are proved, and the host beside it.

use std::num::NonZeroUsize;
use std::ops::Sub;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use cuzk_budget::Budget;
use cuzk_core::CircuitSpec;
use cuzk_gpu::Backend;
use cuzk_gpu::cpu::{CpuBackend, CpuOptions};
#[cfg(feature = "cuda")]
use cuzk_gpu::cuda::CudaBackend;
use cuzk_gpu::fixed_base::{Multiplier, OnCpu};
use cuzk_pinned::PinnedPool;
use cuzk_tests::mixed::Mixed;

use super::prepared::Prepared;
use super::{On, Tier};
use crate::bed;

/// Proofs of the processor that may wait.
const CPU_QUEUE_MAX: usize = 16;

/// Memory of the host, for everything that is measured.
pub(crate) struct Host {
    on: On,
    #[cfg(feature = "cuda")]
    device: usize,
    pool: PinnedPool,
}

/// What proves, for one case.
pub(crate) struct Place {
    kind: Kind,
    pool: PinnedPool,
}

enum Kind {
    Cpu(CpuBackend),
    #[cfg(feature = "cuda")]
    Cuda(CudaBackend),
}

/// Allocations since the start.
#[derive(Clone, Copy)]
pub(crate) struct Allocations {
    pub(super) device: u64,
    pub(super) page_locked: u64,
}

impl Sub for Allocations {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            device: self.device - before.device,
            page_locked: self.page_locked - before.page_locked,
        }
    }
}

impl Allocations {
    pub(super) fn sum(self) -> u64 {
        self.device + self.page_locked
    }
}

fn threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

impl Host {
    pub(crate) fn open(on: On, device: usize) -> Result<Self> {
        let pool = match on {
            On::Cpu => PinnedPool::heap(Budget::new(1 << 40)),
            #[cfg(feature = "cuda")]
            On::Cuda => bed::pool(device)?,
        };
        #[cfg(not(feature = "cuda"))]
        let _ = device;
        Ok(Self {
            on,
            #[cfg(feature = "cuda")]
            device,
            pool,
        })
    }

    /// What columns are taken from.
    pub(crate) fn pool(&self) -> &PinnedPool {
        &self.pool
    }

    /// The key of a circuit, made if it is not there, and `count` assignments.
    pub(super) fn prepare(
        &self,
        circuit: Mixed,
        count: usize,
        keys: Option<&Path>,
    ) -> Result<Prepared> {
        let temporary = match keys {
            Some(_) => None,
            None => Some(tempfile::tempdir()?),
        };
        let directory = keys.or(temporary.as_ref().map(|made| made.path()));
        let directory = directory.expect("one of the two");
        // One slot: nothing is proved here.
        let place = self.start(Tier::Resident, [1; 2], 0, None)?;
        let params = bed::key_in(directory, &circuit, place.multiplier())?;
        let key = bed::open_key(&params)?;
        let begin = Instant::now();
        let backend = place.backend();
        let witnesses = Box::new(circuit);
        let prepared = Prepared::new(&self.pool, witnesses, backend, key, temporary, count)?;
        let seconds = begin.elapsed().as_secs_f64();
        println!("{}: {count} witnesses in {seconds:.1} s", circuit.id());
        Ok(prepared)
    }

    /// Starts what proves with keys in a tier, in so many slots and so many in a pass of a
    /// key. Nothing that started before may be left.
    pub(crate) fn start(
        &self,
        tier: Tier,
        [slots, batch]: [usize; 2],
        key_bytes: u64,
        device_gib: Option<u64>,
    ) -> Result<Place> {
        let kind = match self.on {
            On::Cpu => {
                let _ = (tier, slots, batch, key_bytes, device_gib);
                Kind::Cpu(CpuBackend::new(CpuOptions::new(threads(), CPU_QUEUE_MAX))?)
            }
            #[cfg(feature = "cuda")]
            On::Cuda => {
                let host_keys = (tier == Tier::Pinned).then_some(key_bytes);
                let adjust = |options: &mut cuzk_gpu::DeviceOptions| {
                    options.memory_bytes_max = device_gib.map(|gib| gib << 30);
                    options.queue_len_max = slots + 1;
                    options.slots = slots;
                    options.key_batch = batch;
                    options.is_key_resident = tier == Tier::Resident;
                };
                Kind::Cuda(bed::start(self.device, &self.pool, host_keys, adjust)?)
            }
        };
        Ok(Place {
            kind,
            pool: self.pool.clone(),
        })
    }
}

impl Place {
    pub(crate) fn backend(&self) -> &dyn Backend {
        match &self.kind {
            Kind::Cpu(cpu) => cpu,
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => gpu,
        }
    }

    fn multiplier(&self) -> &dyn Multiplier {
        match &self.kind {
            Kind::Cpu(_) => &OnCpu,
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => gpu,
        }
    }

    pub(super) fn device_name(&self) -> Option<String> {
        self.backend().device().map(|device| device.name)
    }

    /// As lanes name it.
    pub(super) fn owner(&self) -> String {
        match self.backend().device() {
            Some(device) => format!("device {}", device.ordinal),
            None => "cpu".to_owned(),
        }
    }

    /// Bytes of the device that are in use.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.backend()
            .device()
            .map_or(0, |device| device.held_bytes)
    }

    pub(crate) fn allocations(&self) -> Allocations {
        let pool = self.pool.stats().allocations;
        let [device, host] = match &self.kind {
            Kind::Cpu(_) => [0, 0],
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => [gpu.device_allocations(), gpu.page_locked_allocations()],
        };
        Allocations {
            device,
            page_locked: pool + host,
        }
    }
}
