//! From the devices that a configuration names to backends on them.

use std::num::NonZeroUsize;
use std::sync::Arc;

use cuzk_budget::{Budget, LimitRule, MemoryReading};
use cuzk_gpu::{
    Backend, BackendError, DeviceBuffers, DeviceOptions, DeviceReport, devices, open_device,
};
use cuzk_pinned::{NumaNodes, Pages, StagingOptions, page_locked_memory};

use super::{BACKEND_QUEUE_MAX, Proving, StartError, page_locked_limit, quotient, threads};
use crate::config::{Config, DevicePolicy, HugePages, Numa};
use crate::placement::ColumnMemory;

/// Bytes of each of the two buffers through which keys go to a device.
const KEY_BUFFER_BYTES: usize = 64 << 20;

/// Why proofs are not made on devices.
pub(super) enum NoDevice {
    /// There is none that can be used.
    Absent(String),
    /// There is one, and the configuration does not fit it.
    Wrong(StartError),
}

/// A backend for each device that the configuration names, with page-locked memory for
/// all of them. Where devices are preferred and not required, those that cannot be used
/// are told and left out, unless that leaves none.
pub(super) fn open(config: &Config, budget: &Budget) -> Result<Proving, NoDevice> {
    let shown = devices().map_err(NoDevice::Absent)?;
    let is_required = config.device_policy == DevicePolicy::RequireGpu;
    let mut left_out = LeftOut {
        is_required,
        reasons: Vec::new(),
    };
    let mut chosen = Vec::new();
    for found in config.devices.find(&shown) {
        match found {
            Ok(device) => chosen.push(device),
            Err(reason) => left_out.add(reason)?,
        }
    }
    let threads = threads(config.threads);
    let mut page_locked = None;
    while let (None, Some(device)) = (&page_locked, chosen.first()) {
        let nodes = NumaNodes::near(nodes_of(config.numa, &chosen));
        let pages = page_locked_pages(config);
        match page_locked_memory(device.ordinal, threads, pages, nodes.clone()) {
            Ok(memory) => {
                page_locked = Some(memory);
                if !nodes.is_empty() {
                    tracing::info!(%nodes, "page-locked memory is to lie on the devices' NUMA nodes");
                }
            }
            Err(reason) => {
                left_out.add(format!("device {}: {reason}", device.ordinal))?;
                chosen.remove(0);
            }
        }
    }
    let Some(page_locked) = page_locked else {
        return Err(left_out.none());
    };
    let limit = page_locked_limit(config, budget.limit_bytes())
        .map_err(|error| NoDevice::Wrong(error.into()))?;
    let ordinary = ColumnMemory::on_pages(budget.clone(), config.tuning.huge_pages, threads);
    let mut memory = ordinary.with_page_locked(limit, page_locked.backing, page_locked.locker);
    // With one device out of service the others get its parts too.
    let queue_len_max = BACKEND_QUEUE_MAX * chosen.len();
    let mut backends = Vec::new();
    for device in chosen {
        let fixed_bytes = memory.fixed_bytes();
        match open_one(config, device, &mut memory, threads, queue_len_max) {
            Ok(backend) => backends.push(backend),
            Err(NoDevice::Absent(reason)) => {
                left_out.add(format!("device {}: {reason}", device.ordinal))?;
                // Its buffers went back to the pool.
                memory.set_fixed_bytes(fixed_bytes);
            }
            Err(wrong) => return Err(wrong),
        }
    }
    if backends.is_empty() {
        return Err(left_out.none());
    }
    for reason in &left_out.reasons {
        tracing::warn!(reason, "proofs are made on the other devices");
    }
    Ok((backends, memory))
}

/// The pages that page-locked memory is asked on.
fn page_locked_pages(config: &Config) -> Pages {
    match config.tuning.huge_pages {
        HugePages::Auto | HugePages::Always => Pages::Huge,
        HugePages::Never => Pages::Ordinary,
    }
}

/// NUMA nodes of the devices, where page-locked memory is to lie on them.
fn nodes_of(rule: Numa, devices: &[&DeviceReport]) -> impl Iterator<Item = u32> {
    let is_asked = match rule {
        Numa::Auto => true,
        Numa::Off => false,
    };
    devices
        .iter()
        .filter(move |_| is_asked)
        .filter_map(|device| device.numa_node)
}

/// Devices that are named and cannot be used.
struct LeftOut {
    is_required: bool,
    reasons: Vec<String>,
}

impl LeftOut {
    /// Of devices that are required none is left out.
    fn add(&mut self, reason: String) -> Result<(), NoDevice> {
        if self.is_required {
            return Err(NoDevice::Absent(reason));
        }
        self.reasons.push(reason);
        Ok(())
    }

    fn none(&self) -> NoDevice {
        NoDevice::Absent(self.reasons.join("; "))
    }
}

fn open_one(
    config: &Config,
    device: &DeviceReport,
    memory: &mut ColumnMemory,
    threads: NonZeroUsize,
    queue_len_max: usize,
) -> Result<Arc<dyn Backend>, NoDevice> {
    let mut options = DeviceOptions::new(device.ordinal, threads, queue_len_max);
    options.memory_bytes_max = memory_limit(config, device)?;
    options.slots = config.device_slots;
    (options.c_source, options.transforms) = quotient(&config.tuning);
    options.key_batch = config.tuning.key_batch;
    options.is_early = config.tuning.early_start;
    options.window_bits = config.tuning.window_bits;
    options.is_split_on_host = config.tuning.split_on_cpu;
    options.is_b_g2_on_host = config.tuning.b_g2_on_cpu;
    let keys = memory
        .key_buffers(KEY_BUFFER_BYTES)
        .map_err(|reason| NoDevice::Wrong(StartError::KeyBuffers(reason)))?;
    let staging = StagingOptions::with_threads(threads);
    let columns = memory
        .staging_ring_for(&config.tuning, staging)
        .map_err(|error| NoDevice::Wrong(error.into()))?;
    let host_keys = match config.device_host_keys_bytes {
        0 => Ok(None),
        bytes => memory.key_memory(bytes).map(Some),
    };
    let host_keys = host_keys.map_err(|reason| NoDevice::Wrong(StartError::HostKeys(reason)))?;
    let buffers = DeviceBuffers {
        keys,
        columns,
        host_keys,
    };
    open_device(options, buffers).map_err(|error| match error {
        // What was asked for in so many bytes is not quietly left out.
        BackendError::DeviceMemory { .. } if options.memory_bytes_max.is_some() => {
            NoDevice::Wrong(error.into())
        }
        error => NoDevice::Absent(error.to_string()),
    })
}

/// Bytes of a device's memory that may be held, if a limit is set.
fn memory_limit(config: &Config, device: &DeviceReport) -> Result<Option<u64>, NoDevice> {
    let whole = MemoryReading {
        total_bytes: device.memory_bytes,
        available_bytes: device.memory_bytes,
    };
    match config.device_memory_limit {
        LimitRule::Automatic => Ok(None),
        LimitRule::Bytes(bytes) => Ok(Some(bytes)),
        rule => rule
            .limit_bytes(&whole)
            .map(Some)
            .map_err(|error| NoDevice::Wrong(StartError::DeviceLimit(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_to_lie_near_the_devices_that_prove() {
        let device = |ordinal, numa_node| DeviceReport {
            ordinal,
            name: "Card".to_owned(),
            uuid: format!("GPU-{ordinal}"),
            capability: (9, 0),
            memory_bytes: 1 << 30,
            numa_node,
            unusable: None,
        };
        let devices = [device(0, Some(1)), device(1, None), device(2, Some(0))];
        let nodes = |rule, chosen: &[usize]| -> Vec<u32> {
            let chosen: Vec<_> = chosen.iter().map(|&at| &devices[at]).collect();
            nodes_of(rule, &chosen).collect()
        };
        assert_eq!(nodes(Numa::Auto, &[0, 1, 2]), [1, 0]);
        assert_eq!(nodes(Numa::Auto, &[2]), [0]);
        assert!(nodes(Numa::Auto, &[1]).is_empty());
        assert!(nodes(Numa::Off, &[0, 1, 2]).is_empty());
    }
}
