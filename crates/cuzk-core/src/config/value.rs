//! Values of configuration keys, and how people write them.

use std::fmt;
use std::path::PathBuf;

/// A value as a file, the command line or the environment gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text in quotes, or a bare word on the command line.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// `true` or `false`.
    Bool(bool),
}

impl Value {
    /// Reads a value from the command line: a number, a boolean, otherwise text.
    pub fn from_argument(text: &str) -> Self {
        match text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => text
                .parse()
                .map_or_else(|_| Value::Text(text.to_owned()), Value::Integer),
        }
    }

    pub(super) fn bool(&self) -> Result<bool, String> {
        match self {
            Value::Bool(value) => Ok(*value),
            other => Err(format!("want true or false, have {other}")),
        }
    }

    pub(super) fn count(&self) -> Result<usize, String> {
        match self {
            Value::Integer(value) => {
                usize::try_from(*value).map_err(|_| format!("want a count, have {value}"))
            }
            other => Err(format!("want a count, have {other}")),
        }
    }

    pub(super) fn path(&self) -> Result<PathBuf, String> {
        match self {
            Value::Text(text) if !text.is_empty() => Ok(PathBuf::from(text)),
            other => Err(format!("want a path, have {other}")),
        }
    }

    pub(super) fn word(&self) -> Result<&str, String> {
        match self {
            Value::Text(text) => Ok(text),
            other => Err(format!("want a word, have {other}")),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// How much memory the engine may count in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// What the machine and its control groups allow, less a margin.
    Auto,
    /// A share of the machine's memory, 1 to 100.
    Percent(u8),
    /// A number of bytes.
    Bytes(u64),
}

impl MemoryLimit {
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        let wrong =
            || format!("want \"auto\", a share (\"80%\") or bytes (\"16GiB\"), have {value}");
        match value {
            Value::Integer(bytes) => u64::try_from(*bytes).map(Self::Bytes).map_err(|_| wrong()),
            Value::Text(text) if text == "auto" => Ok(Self::Auto),
            Value::Text(text) => match text.strip_suffix('%') {
                Some(share) => match share.trim().parse() {
                    Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                    _ => Err(wrong()),
                },
                None => parse_bytes(text).map(Self::Bytes).ok_or_else(wrong),
            },
            Value::Bool(_) => Err(wrong()),
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("\"auto\""),
            Self::Percent(percent) => write!(f, "\"{percent}%\""),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// Bytes as people write them: `4096`, `512MiB`, `16 GiB`, `1.5GiB`; `None` if it
/// is not a size or does not fit.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let fraction: f64 = number.parse().ok()?;
    let bytes = fraction * (1u64 << shift) as f64;
    // Past 2^53 a fraction of a unit is not exact any more, nor meant.
    (shift > 0 && bytes < (1u64 << 53) as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("16 GiB"), Some(16 << 30));
        assert_eq!(parse_bytes("1.5GiB"), Some(3 << 29));
        for wrong in [
            "",
            "GiB",
            "1.5",
            "-1",
            "12 GB",
            "1..5GiB",
            "99999999TiB",
            "0x10",
        ] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn limits() {
        let parse = |text: &str| MemoryLimit::parse(&Value::from_argument(text));
        assert_eq!(parse("auto"), Ok(MemoryLimit::Auto));
        assert_eq!(parse("80%"), Ok(MemoryLimit::Percent(80)));
        assert_eq!(parse("1073741824"), Ok(MemoryLimit::Bytes(1 << 30)));
        for wrong in ["0%", "101%", "%", "-5", "true", "lots"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
