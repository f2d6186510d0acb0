//! Bytes as people read them in an error.

use std::fmt;

/// Bytes, printed as `14.37 MiB (15070144 bytes)`, or as the number alone where that is
/// small enough to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteCount(pub u64);

/// From here on the unit is what is read, and the number is for those who compute.
const UNIT_FROM_BYTES: u64 = 1 << 20;

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["MiB", "GiB", "TiB", "PiB", "EiB"];
        let bytes = self.0;
        if bytes < UNIT_FROM_BYTES {
            return write!(f, "{bytes} bytes");
        }
        let mut value = bytes as f64 / UNIT_FROM_BYTES as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.2} {} ({bytes} bytes)", UNITS[unit])
    }
}
