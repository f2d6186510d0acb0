//! Which devices there are, and whether this program has code for them.

use std::path::Path;

use cudarc::driver::{DriverError, result, sys};
use cuzk_pinned::cuda::{DRIVER_VERSION_MIN, driver_version};

use crate::accelerator::DeviceReport;
use crate::device::node::{PciAddress, numa_node};

/// Where the kernel has a folder for each PCI device, by its address.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// The devices that the driver shows.
pub(crate) fn devices() -> Result<Vec<DeviceReport>, String> {
    let version = driver_version().map_err(|error| error.to_string())?;
    if version < DRIVER_VERSION_MIN {
        return Err(format!(
            "the CUDA driver supports CUDA {}.{}, {}.{} or newer is needed",
            version / 1000,
            version % 1000 / 10,
            DRIVER_VERSION_MIN / 1000,
            DRIVER_VERSION_MIN % 1000 / 10
        ));
    }
    let words = |error: DriverError| format!("the CUDA driver: error {}", error.0 as u32);
    result::init().map_err(words)?;
    let count = result::device::get_count().map_err(words)?;
    (0..usize::try_from(count).unwrap_or(0))
        .map(|ordinal| report(ordinal).map_err(words))
        .collect()
}

fn report(ordinal: usize) -> Result<DeviceReport, DriverError> {
    let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
    let device = result::device::get(number)?;
    let attribute = |attribute| {
        // SAFETY: the device was given by the driver just now.
        let value = unsafe { result::device::get_attribute(device, attribute) };
        value.map(|value| u32::try_from(value).unwrap_or(0))
    };
    let capability = (
        attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let cooperative = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)?;
    let address = PciAddress {
        domain: attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        bus: attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        device: attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
    };
    // SAFETY: as above.
    let memory_bytes = unsafe { result::device::total_mem(device) }? as u64;
    Ok(DeviceReport {
        ordinal,
        name: result::device::get_name(device)?,
        uuid: uuid(&result::device::get_uuid(device)?),
        capability,
        memory_bytes,
        numa_node: numa_node(Path::new(PCI_DEVICES), address),
        unusable: unusable(
            crate::CUDA_ARCHS.unwrap_or_default(),
            capability,
            cooperative != 0,
        ),
    })
}

/// Why a device of this capability cannot run code of these architectures. Machine
/// code runs on its own minor version and later ones of the same major version.
fn unusable(compiled: &str, (major, minor): (u32, u32), cooperative: bool) -> Option<String> {
    let runs = |arch: u32| arch / 10 == major && arch % 10 <= minor;
    let numbers = || {
        compiled
            .split_whitespace()
            .map(|arch| arch.trim_start_matches("sm_"))
    };
    if numbers().next().is_none() {
        return Some("this program was built without device code".to_owned());
    }
    if !numbers().filter_map(|arch| arch.parse().ok()).any(runs) {
        return Some(format!(
            "this program has code for {compiled}, the device is sm_{major}{minor}"
        ));
    }
    (!cooperative).then(|| "it cannot launch cooperative kernels".to_owned())
}

/// The form in which `nvidia-smi` shows an identity.
fn uuid(uuid: &sys::CUuuid) -> String {
    let hex: String = uuid
        .bytes
        .iter()
        .map(|byte| format!("{:02x}", *byte as u8))
        .collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    format!("GPU-{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_on_its_own_and_later_minor_versions() {
        let says = |compiled, capability| unusable(compiled, capability, true);
        assert_eq!(says("sm_80 sm_90", (9, 0)), None);
        assert_eq!(says("sm_80", (8, 9)), None);
        assert_eq!(says("sm_100 sm_120", (12, 1)), None);
        assert_eq!(
            says("sm_86 sm_90", (8, 0)).as_deref(),
            Some("this program has code for sm_86 sm_90, the device is sm_80")
        );
        assert!(says("", (9, 0)).is_some());
        assert!(unusable("sm_90", (9, 0), false).is_some());
    }
}
