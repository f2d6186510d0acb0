//! Limits from configuration and from what the machine says of its memory.
//!
//! Everything here is a pure function of file contents;
//! [`MemoryFiles::of_this_machine`] alone reads files.
//! A control group's limit is honoured at every level of the hierarchy, in
//! version 1 and version 2. Sources: Linux `Documentation/filesystems/proc.rst`
//! and `Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`.

use std::str::FromStr;

use crate::byte_count::ByteCount;

/// The automatic limit leaves at least this much of the available memory free.
pub const AUTOMATIC_MARGIN_MIN_BYTES: u64 = 1 << 30;
/// And at least this share of the total.
pub const AUTOMATIC_MARGIN_PERCENT: u64 = 5;

/// How a limit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitRule {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the total memory: that of the machine or of the
    /// tightest control group. At most 100.
    Percent(u8),
    /// What is available now, less a margin: the greater of 1 GiB and 5 % of the
    /// total. A machine that grows its memory while it is touched says too
    /// little: give bytes there.
    Automatic,
}

/// Who else lives on the machine, which decides how much of the limit may be
/// page-locked: locked pages cannot be swapped or given to anybody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoxUse {
    /// Nothing else needs the memory: 95 % may be locked.
    Dedicated,
    /// Others need memory too: 50 % may be locked. The default.
    #[default]
    Shared,
}

/// Why a limit cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A rule that is none of `auto`, `N%` or a size.
    #[error("`{text}` is no memory limit: write `auto`, `80%`, or bytes such as `12GiB`")]
    Rule {
        /// The text as given.
        text: String,
    },
    /// More than the whole.
    #[error("{percent} % of the memory is more than there is")]
    Percent {
        /// As given.
        percent: u8,
    },
    /// A file lacks a field or holds no number there.
    #[error("{file} has no readable `{field}`")]
    Field {
        /// Path of the file.
        file: String,
        /// Name of the field.
        field: &'static str,
    },
    /// Nothing is left after the margin.
    #[error(
        "{} of memory are available and {} are to stay free: give the limit in bytes",
        ByteCount(*available_bytes),
        ByteCount(*margin_bytes)
    )]
    NothingLeft {
        /// Bytes available.
        available_bytes: u64,
        /// Bytes that are to stay free.
        margin_bytes: u64,
    },
}

/// Contents of the files that speak of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFiles {
    /// `/proc/meminfo`.
    pub meminfo: String,
    /// One for each control group from the process's own up to the root, of
    /// those that limit memory.
    pub groups: Vec<GroupFiles>,
}

/// Contents of a control group's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFiles {
    /// Directory, for errors.
    pub directory: String,
    /// `memory.max` or `memory.limit_in_bytes`.
    pub limit: String,
    /// `memory.current` or `memory.usage_in_bytes`.
    pub usage: String,
    /// `memory.stat`; empty if there is none.
    pub stat: String,
}

/// Memory as the machine and the control groups allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReading {
    /// Bytes of the machine, or of the tightest control group if less.
    pub total_bytes: u64,
    /// Bytes that can be had now without pushing anybody out.
    pub available_bytes: u64,
}

impl FromStr for LimitRule {
    type Err = LimitError;

    /// Reads `auto`, `80%`, `123456`, `12GiB` (also KiB, MiB, TiB).
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let refuse = || LimitError::Rule {
            text: text.to_owned(),
        };
        let trimmed = text.trim();
        if trimmed == "auto" {
            return Ok(Self::Automatic);
        }
        if let Some(number) = trimmed.strip_suffix('%') {
            let percent = number.trim().parse().map_err(|_| refuse())?;
            return check_percent(percent).map(Self::Percent);
        }
        const UNITS: [(&str, u64); 4] = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
        ];
        let (number, unit_bytes) = UNITS
            .iter()
            .find_map(|(unit, bytes)| Some((trimmed.strip_suffix(unit)?, *bytes)))
            .unwrap_or((trimmed, 1));
        let count: u64 = number.trim().parse().map_err(|_| refuse())?;
        count
            .checked_mul(unit_bytes)
            .map(Self::Bytes)
            .ok_or_else(refuse)
    }
}

impl LimitRule {
    /// The limit in bytes, on a machine with `reading`.
    ///
    /// # Errors
    /// [`LimitError::Percent`] above 100, [`LimitError::NothingLeft`] if the
    /// automatic margin is all there is.
    pub fn limit_bytes(self, reading: &MemoryReading) -> Result<u64, LimitError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Percent(percent) => {
                check_percent(percent)?;
                Ok(share_of(reading.total_bytes, u64::from(percent)))
            }
            Self::Automatic => {
                let margin_bytes = share_of(reading.total_bytes, AUTOMATIC_MARGIN_PERCENT)
                    .max(AUTOMATIC_MARGIN_MIN_BYTES);
                match reading.available_bytes.checked_sub(margin_bytes) {
                    Some(bytes) if bytes > 0 => Ok(bytes),
                    _ => Err(LimitError::NothingLeft {
                        available_bytes: reading.available_bytes,
                        margin_bytes,
                    }),
                }
            }
        }
    }
}

/// How much of `host_limit_bytes` may be page-locked.
pub fn page_locked_limit(box_use: BoxUse, host_limit_bytes: u64) -> u64 {
    match box_use {
        BoxUse::Dedicated => share_of(host_limit_bytes, 95),
        BoxUse::Shared => share_of(host_limit_bytes, 50),
    }
}

impl MemoryFiles {
    /// Reads the files of the machine this runs on.
    ///
    /// # Errors
    /// [`LimitError::Field`] if `/proc/meminfo` cannot be read.
    pub fn of_this_machine() -> Result<Self, LimitError> {
        Self::gather(|path| std::fs::read_to_string(path).ok())
    }

    /// Gathers the files through `read`, which gives a file's contents if there
    /// is such a file.
    ///
    /// # Errors
    /// [`LimitError::Field`] if there is no `/proc/meminfo`.
    pub fn gather(read: impl Fn(&str) -> Option<String>) -> Result<Self, LimitError> {
        let meminfo = read(MEMINFO).ok_or_else(|| field_error(MEMINFO, "MemTotal"))?;
        let mut groups = Vec::new();
        let membership = read("/proc/self/cgroup").unwrap_or_default();
        for line in membership.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            // Version 2 names no controllers; version 1 lists them.
            let (root, names) = if controllers.is_empty() {
                ("/sys/fs/cgroup", ["memory.max", "memory.current"])
            } else if controllers.split(',').any(|name| name == "memory") {
                (
                    "/sys/fs/cgroup/memory",
                    ["memory.limit_in_bytes", "memory.usage_in_bytes"],
                )
            } else {
                continue;
            };
            for directory in ancestors(root, path) {
                let file = |name: &str| read(&format!("{directory}/{name}"));
                if let (Some(limit), Some(usage)) = (file(names[0]), file(names[1])) {
                    let stat = file("memory.stat").unwrap_or_default();
                    groups.push(GroupFiles {
                        directory,
                        limit,
                        usage,
                        stat,
                    });
                }
            }
        }
        Ok(Self { meminfo, groups })
    }

    /// What the files say together: the tightest of them counts.
    ///
    /// # Errors
    /// [`LimitError::Field`] where a number is missing or unreadable.
    pub fn reading(&self) -> Result<MemoryReading, LimitError> {
        let mut reading = MemoryReading {
            total_bytes: meminfo_bytes(&self.meminfo, "MemTotal")?,
            available_bytes: meminfo_bytes(&self.meminfo, "MemAvailable")?,
        };
        for group in &self.groups {
            let limit = group.limit.trim();
            if limit == "max" {
                continue;
            }
            let limit_bytes: u64 = limit
                .parse()
                .map_err(|_| field_error(&group.directory, "memory limit"))?;
            let usage_bytes: u64 = group
                .usage
                .trim()
                .parse()
                .map_err(|_| field_error(&group.directory, "memory usage"))?;
            // Cached file pages count as used, and the kernel drops those that
            // are inactive before it refuses anybody.
            let cache_bytes = stat_bytes(&group.stat).unwrap_or(0);
            let held_bytes = usage_bytes.saturating_sub(cache_bytes);
            reading.total_bytes = reading.total_bytes.min(limit_bytes);
            reading.available_bytes = reading
                .available_bytes
                .min(limit_bytes.saturating_sub(held_bytes));
        }
        Ok(reading)
    }
}

const MEMINFO: &str = "/proc/meminfo";

fn field_error(file: &str, field: &'static str) -> LimitError {
    LimitError::Field {
        file: file.to_owned(),
        field,
    }
}

fn check_percent(percent: u8) -> Result<u8, LimitError> {
    if percent > 100 {
        return Err(LimitError::Percent { percent });
    }
    Ok(percent)
}

/// So many hundredths, rounded down, without overflow.
fn share_of(bytes: u64, percent: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(percent.min(100)) / 100;
    u64::try_from(share).expect("at most the whole")
}

/// `root` with `path` below it, then with its parent, down to `root` itself.
fn ancestors(root: &str, path: &str) -> Vec<String> {
    let mut rest = path.trim_end_matches('/');
    let mut directories = Vec::new();
    while !rest.is_empty() {
        directories.push(format!("{root}{rest}"));
        rest = rest.rfind('/').map_or("", |at| &rest[..at]);
    }
    directories.push(root.to_owned());
    directories
}

fn meminfo_bytes(meminfo: &str, field: &'static str) -> Result<u64, LimitError> {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .and_then(|kibibytes| kibibytes.checked_mul(1024))
        .ok_or_else(|| field_error(MEMINFO, field))
}

/// Inactive file pages: of the whole subtree where version 1 says so.
fn stat_bytes(stat: &str) -> Option<u64> {
    let value = |field: &str| {
        stat.lines()
            .find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
    };
    value("total_inactive_file ").or_else(|| value("inactive_file "))
}
