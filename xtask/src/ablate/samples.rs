//! Samples as `cuzk-bench compare` writes them.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::stats::Pair;
use crate::record::Machine;

/// What samples are of.
#[derive(Debug, Deserialize)]
pub(crate) struct Head {
    pub(crate) commit: String,
    pub(crate) dirty: bool,
    /// Names and switches.
    pub(crate) settings: Vec<(String, BTreeMap<String, String>)>,
    /// What was done to them, which makes them no measurement.
    pub(crate) hooks: Vec<String>,
    pub(crate) machine: Machine,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Sample {
    pub(crate) setting: String,
    pub(crate) pair: usize,
    pub(crate) verified: bool,
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) used: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Head { head: Head },
    Sample(Sample),
    Failed { setting: String, failed: String },
}

/// A set of samples.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) head: Head,
    /// Of whole rounds, in the order in which they were taken.
    pub(crate) samples: Vec<Sample>,
    /// The run that failed, and why.
    pub(crate) failed: Option<String>,
}

impl Set {
    /// Reads a set; a line that is torn is left out, and so is a round that is not whole.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let mut head = None;
        let mut samples: Vec<Sample> = Vec::new();
        let mut failed = None;
        for (index, line) in lines.enumerate() {
            let place = || format!("line {} is no sample", index + 1);
            match serde_json::from_str(line).with_context(place)? {
                Line::Head { head: found } if index == 0 => head = Some(found),
                Line::Head { .. } => bail!("line {}: samples of something else", index + 1),
                Line::Sample(sample) => {
                    ensure!(sample.verified, "line {}: not verified", index + 1);
                    samples.push(sample);
                }
                Line::Failed {
                    setting,
                    failed: why,
                } => failed = Some(format!("{setting}: {why}")),
            }
        }
        let head = head.context("nothing says what the samples are of: delete it to begin anew")?;
        let settings = head.settings.len().max(1);
        samples.truncate(samples.len() / settings * settings);
        Ok(Self {
            head,
            samples,
            failed,
        })
    }

    /// Rounds that are whole.
    pub(crate) fn rounds(&self) -> usize {
        self.samples.len() / self.head.settings.len().max(1)
    }

    /// A setting's values of a metric, by round.
    ///
    /// # Errors
    /// If a sample has none.
    pub(crate) fn values(&self, setting: &str, metric: &str) -> anyhow::Result<Vec<f64>> {
        let of_setting = self.of(setting);
        of_setting
            .map(|sample| {
                let value = sample.metrics.get(metric).copied();
                let value = value.with_context(|| {
                    let known: Vec<&str> = sample.metrics.keys().map(String::as_str).collect();
                    format!(
                        "setting {setting} has no {metric}, but {}",
                        known.join(", ")
                    )
                })?;
                // Ratios are made of them.
                ensure!(
                    value.is_finite() && value > 0.0,
                    "setting {setting}, round {}: {metric} is {value}",
                    sample.pair
                );
                Ok(value)
            })
            .collect()
    }

    /// The samples of a setting.
    pub(crate) fn of<'a>(&'a self, setting: &'a str) -> impl Iterator<Item = &'a Sample> {
        let samples = self.samples.iter();
        samples.filter(move |sample| sample.setting == setting)
    }

    /// Two settings, round by round.
    ///
    /// # Errors
    /// If a sample lacks the metric, or there is no sample of either.
    pub(crate) fn pairs(&self, on: &str, off: &str, metric: &str) -> anyhow::Result<Vec<Pair>> {
        let place = |setting: &str, pair: usize| {
            let mut samples = self.samples.iter();
            samples.position(|sample| sample.setting == setting && sample.pair == pair)
        };
        let values = self.values(on, metric)?.into_iter();
        let values = values.zip(self.values(off, metric)?).enumerate();
        let pairs: Vec<Pair> = values
            .map(|(pair, (on_value, off_value))| Pair {
                on: on_value,
                off: off_value,
                is_on_first: place(on, pair) < place(off, pair),
            })
            .collect();
        ensure!(!pairs.is_empty(), "no samples of {on} and {off}");
        Ok(pairs)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A set of two settings and a control, `on` as many times as fast as `off`.
    pub(in crate::ablate) fn set(rounds: usize, times: f64) -> String {
        let mut text = concat!(
            r#"{"head":{"command":"synth --circuit porep-2k --on cpu","commit":"c0ffee","#,
            r#""dirty":false,"program":null,"hooks":[],"settings":[["growing","#,
            r#"{"tuning.sizing":"growing"}],["exact",{"tuning.sizing":"exact"}],["control","#,
            r#"{"tuning.sizing":"growing"}]],"machine":{"cpu":"a processor","cores":2,"#,
            r#""ram_gib":24}}}"#,
        )
        .to_owned()
            + "\n";
        for pair in 0..rounds {
            let mut settings = ["growing", "exact", "control"];
            if pair % 2 == 1 {
                settings.reverse();
            }
            for setting in settings {
                // A little noise that is the same for all.
                let noise = 1.0 + 0.01 * (pair % 3) as f64;
                let wall = if setting == "exact" {
                    100.0 / times
                } else {
                    100.0
                };
                text += &format!(
                    "{{\"setting\":\"{setting}\",\"pair\":{pair},\"verified\":true,\"metrics\":\
                     {{\"wall_ms\":{},\"peak_bytes\":1000,\"segments_ms\":3}},\"used\":\
                     {{\"threads\":\"1\"}}}}\n",
                    wall * noise
                );
            }
        }
        text
    }

    #[test]
    fn a_set_is_rounds_and_pairs_in_their_order() {
        let whole = set(4, 2.0);
        let read = Set::parse(&whole).expect("a set");
        assert_eq!((read.rounds(), &read.failed), (4, &None));
        let pairs = read.pairs("exact", "growing", "wall_ms").expect("pairs");
        assert_eq!(pairs[0].off / pairs[0].on, 2.0);
        let first: Vec<bool> = pairs.iter().map(|pair| pair.is_on_first).collect();
        assert_eq!(first, [false, true, false, true]);
        for wrong in ["0", "-5", "1e999"] {
            let wrong = whole.replacen("\"wall_ms\":100,", &format!("\"wall_ms\":{wrong},"), 1);
            let pairs = Set::parse(&wrong).and_then(|set| set.pairs("exact", "growing", "wall_ms"));
            pairs.expect_err("no time");
        }
        let error = read
            .values("exact", "other_ms")
            .expect_err("no such metric");
        assert!(error.to_string().contains("but peak_bytes"), "{error}");

        let torn = &whole[..whole.len() - 5];
        assert_eq!(Set::parse(torn).expect("a set").rounds(), 3);
        let failed = whole + r#"{"setting":"exact","pair":4,"failed":"no proof"}"# + "\n";
        let failed = Set::parse(&failed).expect("a set").failed;
        assert_eq!(failed.as_deref(), Some("exact: no proof"));
    }

    #[test]
    fn what_is_not_verified_is_no_sample() {
        let text = set(2, 1.0).replacen("\"verified\":true", "\"verified\":false", 1);
        let error = Set::parse(&text).expect_err("not verified").to_string();
        assert_eq!(error, "line 2: not verified");
    }
}
