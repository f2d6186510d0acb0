//! Records: measured results with their context, one JSON file each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::stats::{Interval, interval};

/// A measured result.
#[derive(Debug, Serialize)]
pub struct Record {
    /// Name of the measurement (`cpu-prove`).
    pub name: String,
    /// One sentence that the numbers test.
    pub claim: &'static str,
    /// Commit of the program that measured.
    pub commit: &'static str,
    /// Whether there were changes beside that commit.
    pub dirty: bool,
    /// Day, in UTC.
    pub date: String,
    /// What to run to get this again.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// Switches that differ from, or are tested against, the default.
    pub tuning: BTreeMap<&'static str, String>,
    /// One entry a case.
    pub cases: Vec<Case>,
}

/// The machine that measured.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that the program could use.
    pub cores: usize,
    /// Memory.
    pub ram_gib: u64,
    /// Model of the device, where one was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Version of its driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Version of the toolkit that compiled the device code, where any ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toolkit: Option<String>,
    /// The architectures that it was compiled for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<String>,
}

/// One case. A case that failed or did not verify has no figures.
#[derive(Debug, Serialize)]
pub struct Case {
    /// What was measured.
    pub case: String,
    /// Whether the results were checked and right.
    pub verified: bool,
    /// Our samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<Series>,
    /// The samples of what is measured beside ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    /// How many times as fast as the peer, pair by pair: peer / ours for times,
    /// ours / peer for rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Spread>,
    /// Milliseconds by phase, of our median run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub phases_ms: BTreeMap<String, f64>,
    /// Most bytes at one moment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub peak: BTreeMap<&'static str, u64>,
    /// Bytes that crossed the bus, in our median run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_bytes: Option<u64>,
    /// What an ablation says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What only this measurement has (`busy`, `wall_s`), and words: why a case has no
    /// figures, or fewer.
    #[serde(flatten)]
    pub more: BTreeMap<&'static str, Value>,
}

/// What a switch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// On is faster.
    #[serde(rename = "win")]
    Win,
    /// Off is faster.
    #[serde(rename = "loss")]
    Loss,
    /// The interval of the ratio holds 1.
    #[serde(rename = "no effect")]
    NoEffect,
}

impl Verdict {
    /// Of how many times as fast as off a switch makes it.
    pub fn of(ratio: Spread) -> Self {
        match ratio {
            Spread { low, .. } if low > 1.0 => Self::Win,
            Spread { high, .. } if high < 1.0 => Self::Loss,
            _ => Self::NoEffect,
        }
    }
}

/// A median with its interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// Lower end of the 95 % bootstrap interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Samples with their median.
#[derive(Debug, Serialize)]
pub struct Series {
    /// Median and interval.
    #[serde(flatten)]
    pub spread: Spread,
    /// Unit of all.
    pub unit: &'static str,
    /// The samples, in the order they were taken.
    pub samples: Vec<f64>,
}

/// Samples of other software.
#[derive(Debug, Serialize)]
pub struct Peer {
    /// Which software.
    pub name: &'static str,
    /// Its samples.
    #[serde(flatten)]
    pub series: Series,
}

impl From<Interval> for Spread {
    fn from(Interval { median, low, high }: Interval) -> Self {
        Self {
            median: rounded(median),
            low: rounded(low),
            high: rounded(high),
        }
    }
}

impl Series {
    /// Samples of a unit.
    pub fn new(samples: Vec<f64>, unit: &'static str) -> Self {
        let samples: Vec<f64> = samples.into_iter().map(rounded).collect();
        Self {
            spread: interval(&samples).into(),
            unit,
            samples,
        }
    }
}

impl Case {
    /// A case of paired samples in milliseconds, whose results were right.
    pub fn paired(case: String, peer: &'static str, pairs: &[(f64, f64)]) -> Self {
        let ratios: Vec<f64> = pairs.iter().map(|(ours, theirs)| theirs / ours).collect();
        let ours = pairs.iter().map(|(ours, _)| *ours).collect();
        let theirs = pairs.iter().map(|(_, theirs)| *theirs).collect();
        Self {
            case,
            verified: true,
            ours: Some(Series::new(ours, "ms")),
            peer: Some(Peer {
                name: peer,
                series: Series::new(theirs, "ms"),
            }),
            ratio: Some(interval(&ratios).into()),
            ..Self::failed(String::new())
        }
    }

    /// A case of paired samples in milliseconds with a switch on and off.
    pub fn ablation(case: String, pairs: &[(f64, f64)]) -> Self {
        let case = Self::paired(case, "off", pairs);
        Self {
            verdict: case.ratio.map(Verdict::of),
            ..case
        }
    }

    /// A case of paired rates in GB/s (10^9 bytes), whose results were right. The
    /// ratio is ours / peer, so that above 1 is faster here too.
    pub fn rates(case: String, peer: &'static str, pairs: &[(f64, f64)]) -> Self {
        let ratios: Vec<f64> = pairs.iter().map(|(ours, theirs)| ours / theirs).collect();
        let ours = pairs.iter().map(|(ours, _)| *ours).collect();
        let theirs = pairs.iter().map(|(_, theirs)| *theirs).collect();
        Self {
            peer: Some(Peer {
                name: peer,
                series: Series::new(theirs, "GB/s"),
            }),
            ratio: Some(interval(&ratios).into()),
            ..Self::alone(case, Series::new(ours, "GB/s"))
        }
    }

    /// A case with nothing beside it, whose results were right.
    pub fn alone(case: String, ours: Series) -> Self {
        Self {
            verified: true,
            ours: Some(ours),
            ..Self::failed(case)
        }
    }

    /// A case whose result was wrong: no figures.
    pub fn failed(case: String) -> Self {
        Self {
            case,
            verified: false,
            ours: None,
            peer: None,
            ratio: None,
            phases_ms: BTreeMap::new(),
            peak: BTreeMap::new(),
            pcie_bytes: None,
            verdict: None,
            more: BTreeMap::new(),
        }
    }
}

impl Record {
    /// A record of this program, machine and day, with the command that runs now.
    pub fn new(name: impl Into<String>, claim: &'static str, command: String) -> Self {
        Self {
            name: name.into(),
            claim,
            commit: env!("CUZK_COMMIT"),
            dirty: env!("CUZK_DIRTY") == "true",
            date: today(),
            command,
            machine: Machine::this(),
            tuning: BTreeMap::new(),
            cases: Vec::new(),
        }
    }

    /// Writes the record into a folder, as `<name>.json`. One that is there is replaced
    /// whole, so that a measurement that is cut off leaves what it wrote last.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let path = folder.join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(self)? + "\n";
        let beside = folder.join(format!(".{}.json.part", self.name));
        std::fs::write(&beside, text).with_context(|| beside.display().to_string())?;
        std::fs::rename(&beside, &path).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

impl Machine {
    /// The machine this runs on.
    pub fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kib = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.trim_end_matches("kB").trim().parse::<u64>().ok());
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get()),
            // A machine sold as 24 GiB shows a little less.
            ram_gib: kib.unwrap_or(0).div_ceil(1 << 20),
            gpu: None,
            driver: None,
            toolkit: None,
            archs: Vec::new(),
        }
    }
}

/// Four digits are more than any of these measurements are worth.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn today() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut rest) = (1970, days);
    while rest >= 365 + u64::from(leap(year)) {
        rest -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while rest >= lengths[month] {
        rest -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(59), (1970, 3, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_786), (2026, 11, 29));
    }

    #[test]
    fn rates_above_the_peers_have_a_ratio_above_one() {
        let case = Case::rates("two".to_owned(), "plain", &[(60.0, 50.0), (30.0, 25.0)]);
        let ratio = case.ratio.expect("paired");
        assert_eq!((ratio.low, ratio.median, ratio.high), (1.2, 1.2, 1.2));
        let ours = case.ours.expect("paired");
        assert_eq!((ours.unit, ours.spread.median), ("GB/s", 45.0));
    }

    #[test]
    fn a_verdict_needs_an_interval_beside_one() {
        let verdict = |low, high| {
            Verdict::of(Spread {
                median: 1.0,
                low,
                high,
            })
        };
        assert_eq!(verdict(1.01, 1.2), Verdict::Win);
        assert_eq!(verdict(0.9, 0.99), Verdict::Loss);
        assert_eq!(verdict(0.99, 1.2), Verdict::NoEffect);
        assert_eq!(verdict(1.0, 1.2), Verdict::NoEffect);
    }

    #[test]
    fn a_record_is_replaced_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut record = Record::new("test", "records are replaced", "nothing".to_owned());
        record.write(folder.path()).expect("written");
        record.cases = vec![Case::failed("late".to_owned())];
        let path = record.write(folder.path()).expect("written");
        let text = std::fs::read_to_string(&path).expect("a record");
        assert!(text.contains("late"));
        let files = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(files, 1, "nothing is left beside it");
    }

    #[test]
    fn a_record_reads_as_people_expect() {
        let mut record = Record::new("test", "records are written", "nothing".to_owned());
        record.commit = "c0ffee";
        record.dirty = false;
        record.date = "2026-11-29".to_owned();
        record.machine = Machine {
            cpu: "none".to_owned(),
            cores: 1,
            ram_gib: 1,
            gpu: None,
            driver: None,
            toolkit: None,
            archs: Vec::new(),
        };
        let pairs = [(10.0, 25.0), (10.0, 30.0), (10.0, 35.0)];
        record.cases = vec![
            Case::paired("three pairs".to_owned(), "peer 1.0", &pairs),
            Case::failed("did not verify".to_owned()),
            Case {
                pcie_bytes: Some(1 << 20),
                more: BTreeMap::from([("wall_s", Value::from(1.5))]),
                ..Case::ablation("a switch".to_owned(), &pairs)
            },
        ];
        insta::assert_snapshot!(serde_json::to_string_pretty(&record).expect("JSON"));
    }
}
