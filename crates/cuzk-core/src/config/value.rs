//! Values of configuration keys, and how people write them.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cuzk_budget::LimitRule;

/// A value as a file or the command line gives it.
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
    /// Reads a value from the command line: a number without leading zeros, a boolean,
    /// otherwise text.
    pub fn from_argument(text: &str) -> Self {
        match text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            // A permission mode, not a number.
            _ if text.len() > 1 && text.starts_with('0') => Value::Text(text.to_owned()),
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

    /// A rule for a limit of memory.
    pub(super) fn limit(&self) -> Result<LimitRule, String> {
        let wrong = || {
            format!(
                "want \"auto\", a share (\"80%\") or bytes (\"16GiB\"), have {self}{}",
                self.fraction()
            )
        };
        match self {
            Value::Integer(bytes) => u64::try_from(*bytes)
                .map(LimitRule::Bytes)
                .map_err(|_| wrong()),
            Value::Text(text) => text.parse().map_err(|_| wrong()),
            Value::Bool(_) => Err(wrong()),
        }
    }

    /// A number of bytes.
    pub(super) fn bytes(&self) -> Result<usize, String> {
        let bytes = match self.limit() {
            Ok(LimitRule::Bytes(bytes)) => usize::try_from(bytes).ok(),
            _ => None,
        };
        bytes.ok_or_else(|| format!("want bytes (\"256MiB\"), have {self}{}", self.fraction()))
    }

    /// What is said of a number with a fraction, where a whole one is wanted.
    fn fraction(&self) -> &'static str {
        match self {
            Value::Text(text) if text.contains(['.', ',']) => {
                ": the number must be whole, without decimals; write it in a smaller unit"
            }
            _ => "",
        }
    }

    /// Permission bits; `0660` without quotes would be another number in the file.
    pub(super) fn mode(&self) -> Result<u32, String> {
        let mode = match self {
            Value::Text(text) => u32::from_str_radix(text, 8).ok(),
            _ => None,
        };
        mode.filter(|mode| *mode <= 0o777)
            .ok_or_else(|| format!("want permission bits in quotes (\"0660\"), have {self}"))
    }

    /// A socket address, or none if the text is empty.
    pub(super) fn address(&self) -> Result<Option<SocketAddr>, String> {
        match self {
            Value::Text(text) if text.is_empty() => Ok(None),
            Value::Text(text) => text.parse().map(Some).map_err(|_| ()),
            _ => Err(()),
        }
        .map_err(|()| format!("want an address and a port (\"127.0.0.1:9820\"), have {self}"))
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

/// An address as the file would have it.
pub(super) fn show_address(address: Option<SocketAddr>) -> String {
    let text = address.map(|address| address.to_string());
    format!("{:?}", text.unwrap_or_default())
}

/// Text as the file would have it, quotes and escapes included.
pub(super) fn show_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A limit as the file would have it.
pub(super) fn show_limit(rule: LimitRule) -> String {
    match rule {
        LimitRule::Automatic => "\"auto\"".to_owned(),
        LimitRule::Percent(percent) => format!("\"{percent}%\""),
        LimitRule::Bytes(bytes) => bytes.to_string(),
    }
}

/// More parts than any machine has room for at the same time.
const PARTS_MAX: usize = 4096;

pub(super) fn at_least_one(value: &Value) -> Result<usize, String> {
    match value.count()? {
        0 => Err("want at least 1, have 0".to_owned()),
        count => Ok(count),
    }
}

/// A number of parts, at least one, or none for "auto".
pub(super) fn auto_or_parts(value: &Value) -> Result<Option<usize>, String> {
    match value {
        Value::Text(text) if text == "auto" => Ok(None),
        Value::Integer(_) => match at_least_one(value)? {
            count if count > PARTS_MAX => Err(format!("want at most {PARTS_MAX}, have {count}")),
            count => Ok(Some(count)),
        },
        other => Err(format!("want \"auto\" or a count, have {other}")),
    }
}

pub(super) fn show_auto(count: Option<usize>) -> String {
    count.map_or_else(|| "\"auto\"".to_owned(), |count| count.to_string())
}

pub(super) fn seconds(value: &Value) -> Result<Duration, String> {
    Ok(Duration::from_secs(value.count()? as u64))
}

/// Seconds, or none for 0.
pub(super) fn seconds_max(value: &Value) -> Result<Option<Duration>, String> {
    Ok(Some(seconds(value)?).filter(|max| !max.is_zero()))
}

pub(super) fn show_seconds_max(max: Option<Duration>) -> String {
    max.map_or(0, |max| max.as_secs()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_addresses_and_bytes_are_strict() {
        let value = Value::from_argument;
        assert_eq!(value("0660").mode(), Ok(0o660));
        for wrong in ["660", "0888", "1777", "rw", "true"] {
            assert!(value(wrong).mode().is_err(), "{wrong}");
        }
        let address = value("[::1]:80").address().expect("an address");
        assert_eq!(show_address(address), "\"[::1]:80\"");
        assert_eq!(value("").address(), Ok(None));
        for wrong in ["9820", "localhost", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(value(wrong).address().is_err(), "{wrong}");
        }
        assert_eq!(value("1MiB").bytes(), Ok(1 << 20));
        for wrong in ["auto", "50%", "-1"] {
            assert!(value(wrong).bytes().is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_are_read_and_shown() {
        let parse = |text: &str| Value::from_argument(text).limit();
        for (text, rule, shown) in [
            ("auto", LimitRule::Automatic, "\"auto\""),
            ("80%", LimitRule::Percent(80), "\"80%\""),
            ("1073741824", LimitRule::Bytes(1 << 30), "1073741824"),
            ("2GiB", LimitRule::Bytes(2 << 30), "2147483648"),
        ] {
            assert_eq!(parse(text), Ok(rule));
            assert_eq!(show_limit(rule), shown);
        }
        for wrong in ["14.5MiB", "1,5GiB", "12.5%"] {
            let limit = parse(wrong).expect_err(wrong);
            assert!(limit.contains("without decimals"), "{limit}");
            let bytes = Value::from_argument(wrong).bytes().expect_err(wrong);
            assert!(bytes.contains("without decimals"), "{bytes}");
        }
        for wrong in ["101%", "%", "-5", "true", "lots", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
