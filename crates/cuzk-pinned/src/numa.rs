//! The memory nodes of a host on which new memory is to lie.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

/// Nodes that Linux can number: no kernel is built for more.
pub(crate) const NODES_MAX: u32 = 1024;

/// Where the kernel says which nodes have memory.
const WITH_MEMORY: &str = "/sys/devices/system/node/has_memory";

/// Nodes of a host's memory; none leaves the choice to the kernel.
///
/// Memory that is to lie on one node lies there while it has room, and elsewhere after
/// that; on several nodes it lies by turns, page by page.
///
/// ```
/// use cuzk_pinned::NumaNodes;
///
/// let nodes: NumaNodes = [1, 0, 1].into_iter().collect();
/// assert_eq!(nodes.to_string(), "0,1");
/// assert!(NumaNodes::none().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNodes(BTreeSet<u32>);

impl NumaNodes {
    /// No node.
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Those nodes of devices that have memory. None where the host shows fewer than two
    /// with memory, since all of it lies on one then anyway.
    pub fn near(devices: impl IntoIterator<Item = u32>) -> Self {
        Self::near_on(Path::new(WITH_MEMORY), devices)
    }

    /// The same on a host that shows its nodes in this file.
    fn near_on(with_memory: &Path, devices: impl IntoIterator<Item = u32>) -> Self {
        let text = fs::read_to_string(with_memory).ok();
        let host = text.and_then(|text| read_list(&text)).unwrap_or_default();
        if host.len() < 2 {
            return Self::none();
        }
        devices
            .into_iter()
            .filter(|node| host.contains(node))
            .collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The nodes, in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<u32> for NumaNodes {
    fn from_iter<I: IntoIterator<Item = u32>>(nodes: I) -> Self {
        Self(nodes.into_iter().collect())
    }
}

impl fmt::Display for NumaNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, node) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{node}")?;
        }
        Ok(())
    }
}

/// Numbers below [`NODES_MAX`] as the kernel lists them (`0-1,3`); `None` for anything
/// else.
fn read_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut nodes = BTreeSet::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last >= NODES_MAX {
            return None;
        }
        nodes.extend(first..=last);
    }
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes near devices, on a host whose file says this.
    fn near(host: &str, devices: &[u32]) -> Vec<u32> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("has_memory");
        fs::write(&path, host).expect("writable");
        let nodes = NumaNodes::near_on(&path, devices.iter().copied());
        nodes.iter().collect()
    }

    #[test]
    fn lists_are_those_of_the_kernel() {
        let read = |text| read_list(text).map(Vec::from_iter);
        assert_eq!(read("0\n"), Some(vec![0]));
        assert_eq!(read("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(read("1023"), Some(vec![1023]));
        for wrong in [
            "",
            "\n",
            "a",
            "-1",
            "0-",
            "2-1",
            "0,",
            "0-1024",
            "0-4294967295",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_host_of_one_node_has_no_choice() {
        assert_eq!(near("0-1\n", &[1]), [1]);
        assert_eq!(near("0-1\n", &[1, 0, 1]), [0, 1]);
        assert_eq!(near("0-1\n", &[]), []);
        assert_eq!(near("0\n", &[0]), []);
        assert_eq!(near("1\n", &[0, 1]), []);
        assert_eq!(near("nodes\n", &[0, 1]), []);
        // A node with processors and without memory.
        assert_eq!(near("0,2\n", &[1, 2]), [2]);
        let missing = Path::new("/nonexistent/has_memory");
        assert_eq!(NumaNodes::near_on(missing, [0, 1]), NumaNodes::none());
    }
}
