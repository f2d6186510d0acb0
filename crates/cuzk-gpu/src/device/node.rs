//! To which node of the host's memory a device is connected.

use std::fmt;
use std::fs;
use std::path::Path;

/// Place of a device on the host's PCI buses, as the driver tells it: without the function,
/// which is taken for 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PciAddress {
    pub(crate) domain: u32,
    pub(crate) bus: u32,
    pub(crate) device: u32,
}

impl fmt::Display for PciAddress {
    /// As the kernel names its folder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.0")
    }
}

/// The node, from the folder of PCI devices. `None` where the host does not show it: it
/// writes -1 where it knows of none.
pub(crate) fn numa_node(devices: &Path, address: PciAddress) -> Option<u32> {
    let path = devices.join(address.to_string()).join("numa_node");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_what_the_folder_of_the_address_says() {
        let devices = tempfile::tempdir().expect("a temporary directory");
        let folder = devices.path().join("0000:3b:0a.0");
        fs::create_dir(&folder).expect("writable");
        let node = |bus| {
            let address = PciAddress {
                domain: 0,
                bus,
                device: 10,
            };
            numa_node(devices.path(), address)
        };
        assert_eq!(node(0x3b), None, "a folder without the file");
        for (text, want) in [
            ("1\n", Some(1)),
            ("0\n", Some(0)),
            ("-1\n", None),
            ("", None),
            ("node 1\n", None),
        ] {
            fs::write(folder.join("numa_node"), text).expect("writable");
            assert_eq!(node(0x3b), want, "{text:?}");
        }
        assert_eq!(node(0x3c), None, "no such device");
        let address = PciAddress {
            domain: 0x10000,
            bus: 2,
            device: 0,
        };
        assert_eq!(address.to_string(), "10000:02:00.0");
    }
}
