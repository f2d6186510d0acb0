//! Numbers of arguments, within what can be measured.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use cuzk_gpu::DEVICE_SLOTS_MAX;

/// Reads the logarithm of a domain: from a circuit with one variable up to the largest
/// domain of the field that a device transforms.
pub(crate) fn log_size(text: &str) -> Result<u32, String> {
    within(text, 2..=28)
}

/// Reads a share in a thousand.
#[cfg(any(feature = "cuda", test))]
pub(crate) fn per_mille(text: &str) -> Result<u32, String> {
    within(text, 0..=1000)
}

/// Reads a share in percent.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    within(text, 0.0..=100.0)
}

/// Reads a number of proofs that a device has at the same time.
pub(crate) fn slots(text: &str) -> Result<usize, String> {
    within(text, 1..=DEVICE_SLOTS_MAX)
}

/// Reads a number of proofs that share a pass: twice as many have a slot.
pub(crate) fn batch(text: &str) -> Result<usize, String> {
    within(text, 1..=DEVICE_SLOTS_MAX / 2)
}

fn within<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let number = text.parse().ok().filter(|number| range.contains(number));
    let (from, to) = range.into_inner();
    number.ok_or_else(|| format!("want a number from {from} to {to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert_eq!(log_size("2"), Ok(2));
        assert_eq!(log_size("28"), Ok(28));
        for text in ["0", "1", "29", "63", "-1", "x"] {
            let error = "want a number from 2 to 28".to_owned();
            assert_eq!(log_size(text), Err(error), "{text}");
        }
        assert_eq!(percent("1.3"), Ok(1.3));
        for text in ["5000", "-0.1", "NaN", "inf"] {
            percent(text).expect_err(text);
        }
        assert_eq!(per_mille("1000"), Ok(1000));
        per_mille("1001").expect_err("more than all");
        assert_eq!((slots("8"), batch("4")), (Ok(8), Ok(4)));
        for text in ["0", "9", "1000000000"] {
            slots(text).expect_err(text);
            batch(text).expect_err(text);
        }
    }
}
