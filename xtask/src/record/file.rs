//! What a record is, and what has to be true of one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::FOLDER;
use crate::tidy::SourceFile;

/// How far a median may lie from that of the samples: they are rounded when written.
const ROUNDING: f64 = 0.002;

/// A measurement with its context.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) claim: String,
    pub(crate) commit: String,
    pub(crate) dirty: bool,
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    #[serde(default)]
    pub(crate) tuning: BTreeMap<String, Value>,
    /// Why there is less than the name promises, where there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    pub(crate) cases: Vec<Case>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: u64,
    pub(crate) ram_gib: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) toolkit: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) archs: Vec<String>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Case {
    pub(crate) case: String,
    pub(crate) verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ours: Option<Series>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<Peer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<Spread>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) phases_ms: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) peak: BTreeMap<String, u64>,
    /// What only some measurements have: a verdict, bytes over the bus, parts.
    #[serde(flatten)]
    pub(crate) more: BTreeMap<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Series {
    #[serde(flatten)]
    pub(crate) spread: Spread,
    pub(crate) unit: String,
    pub(crate) samples: Vec<f64>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Peer {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) series: Series,
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub(crate) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// What is wrong with a record, with the place of each.
pub(crate) fn problems(source: &SourceFile) -> Vec<String> {
    let record = match Record::parse(&source.text) {
        Ok(record) => record,
        Err(error) => return vec![error.to_string()],
    };
    let mut problems = Vec::new();
    if let Some(place) = source.path.strip_prefix(FOLDER) {
        let expected = format!("{}.json", record.name);
        if place
            .split_once('/')
            .is_none_or(|(_, file)| file != expected)
        {
            problems.push(format!(
                "name: {:?} stands in MACHINE/{expected}",
                record.name
            ));
        }
    }
    for (field, text) in [
        ("claim", &record.claim),
        ("commit", &record.commit),
        ("command", &record.command),
    ] {
        if text.trim().is_empty() {
            problems.push(format!("{field}: empty"));
        }
    }
    if !is_date(&record.date) {
        problems.push(format!("date: {:?} is no YYYY-MM-DD", record.date));
    }
    if record.cases.is_empty() {
        problems.push("cases: none".to_owned());
    }
    for (index, case) in record.cases.iter().enumerate() {
        let place = |problem| format!("cases[{index}] ({}): {problem}", case.case);
        problems.extend(case.problems().into_iter().map(place));
    }
    problems
}

impl Case {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let figures = self.figures();
        if !self.verified && !figures.is_empty() {
            problems.push(format!("not verified, yet it has {}", figures.join(", ")));
        }
        if self.verified && figures.is_empty() {
            problems.push("verified, yet it has no figure".to_owned());
        }
        if let Some(series) = &self.ours {
            problems.extend(series.problems("ours"));
        }
        if let Some(peer) = &self.peer {
            problems.extend(peer.series.problems("peer"));
            if self
                .ours
                .as_ref()
                .is_some_and(|ours| ours.unit != peer.series.unit)
            {
                problems.push("ours and peer differ in unit".to_owned());
            }
        }
        if let Some(ratio) = self.ratio {
            problems.extend(ratio.problems("ratio"));
            if self.ours.is_none() || self.peer.is_none() {
                problems.push("ratio: of ours and peer, and one is not there".to_owned());
            }
        }
        problems
    }

    /// Names of everything that is a result.
    fn figures(&self) -> Vec<&str> {
        let known = [
            (self.ours.is_some(), "ours"),
            (self.peer.is_some(), "peer"),
            (self.ratio.is_some(), "ratio"),
            (!self.phases_ms.is_empty(), "phases_ms"),
            (!self.peak.is_empty(), "peak"),
        ];
        let known = known.into_iter().filter(|(is_there, _)| *is_there);
        let mut figures: Vec<&str> = known.map(|(_, name)| name).collect();
        // Words are no figures: they may say why there are none. A verdict is one.
        let more = self.more.iter().filter(|(name, value)| {
            !(value.is_string() || value.is_null()) || name.as_str() == "verdict"
        });
        figures.extend(more.map(|(name, _)| name.as_str()));
        figures
    }
}

impl Series {
    fn problems(&self, field: &str) -> Vec<String> {
        let mut problems: Vec<String> = self.spread.problems(field).into_iter().collect();
        match median(&self.samples) {
            None => problems.push(format!("{field}.samples: none")),
            Some(median) => {
                let off = (median - self.spread.median).abs();
                if off > ROUNDING.max(median.abs() * 1e-6) {
                    problems.push(format!(
                        "{field}.median: {}, but that of the samples is {median}",
                        self.spread.median
                    ));
                }
            }
        }
        problems
    }
}

impl Spread {
    fn problems(self, field: &str) -> Option<String> {
        let Self { median, low, high } = self;
        let is_ordered = low <= median && median <= high;
        (!is_ordered).then(|| format!("{field}: {median} is not within [{low}, {high}]"))
    }
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

fn is_date(text: &str) -> bool {
    let lens: Vec<usize> = text.split('-').map(str::len).collect();
    let is_digit = |c: char| c.is_ascii_digit() || c == '-';
    lens == [4, 2, 2] && text.chars().all(is_digit)
}
