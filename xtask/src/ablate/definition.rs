//! What `bench/ablations.toml` says.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde::Deserialize;
use toml::Value;

use crate::record;

/// The file, in the repository.
pub(crate) const FILE: &str = "bench/ablations.toml";

/// The setting that is the off one once more: what differs there is the machine.
pub(crate) const CONTROL: &str = "control";

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Definitions {
    /// What a value that is worked out comes to, by key and value.
    #[serde(default)]
    means: Means,
    #[serde(default)]
    row: Vec<Row>,
}

/// Values by key and the value that stands for them.
pub(crate) type Means = BTreeMap<String, BTreeMap<String, String>>;

/// What values that are worked out come to, where proofs are made on a device.
///
/// # Errors
/// If the file is not well, as [`read`] says.
pub(crate) fn means(text: &str) -> anyhow::Result<Means> {
    Ok(definitions(text)?.means)
}

/// One switch, or several that are tested together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// Its record is `ablate-<name>`.
    pub(crate) name: String,
    /// What it switches.
    pub(crate) what: String,
    /// One sentence that the numbers test.
    pub(crate) claim: String,
    /// Why it cannot be measured yet; it is listed and not run.
    pub(crate) missing: Option<String>,
    /// The workload of `cuzk-bench compare`.
    #[serde(default)]
    pub(crate) workload: String,
    /// Circuits by where proofs are made, which is one place.
    #[serde(default)]
    pub(crate) circuits: BTreeMap<On, Vec<String>>,
    /// Parts of a job.
    #[serde(default = "one")]
    pub(crate) parts: usize,
    /// What is compared.
    #[serde(default = "wall")]
    pub(crate) metric: String,
    /// The direction that is a win.
    #[serde(default)]
    pub(crate) better: Better,
    /// What is told beside it.
    #[serde(default)]
    pub(crate) also: Vec<String>,
    /// What all settings have.
    #[serde(default)]
    pub(crate) always: BTreeMap<String, Value>,
    /// The setting that others are compared with, by its name.
    #[serde(default)]
    pub(crate) off: BTreeMap<String, BTreeMap<String, Value>>,
    /// The settings that are tested.
    #[serde(default)]
    pub(crate) on: BTreeMap<String, BTreeMap<String, Value>>,
}

/// Where proofs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum On {
    Cpu,
    Gpu,
}

impl On {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }
}

/// The direction that is a win.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    #[default]
    Less,
    More,
}

fn one() -> usize {
    1
}

fn wall() -> String {
    "wall_ms".to_owned()
}

/// Reads the rows.
///
/// # Errors
/// What is wrong with which row.
pub(crate) fn read(text: &str) -> anyhow::Result<Vec<Row>> {
    Ok(definitions(text)?.row)
}

fn definitions(text: &str) -> anyhow::Result<Definitions> {
    let definitions = toml::from_str::<Definitions>(text).context(FILE)?;
    let rows = &definitions.row;
    for (at, row) in rows.iter().enumerate() {
        row.check()
            .with_context(|| format!("{FILE}: row {}", row.name))?;
        ensure!(
            rows[..at].iter().all(|before| before.name != row.name),
            "{FILE}: two rows are named {}",
            row.name
        );
    }
    Ok(definitions)
}

impl Row {
    fn check(&self) -> anyhow::Result<()> {
        record::plain_name(&self.name).map_err(anyhow::Error::msg)?;
        ensure!(!self.claim.trim().is_empty(), "no claim");
        if self.missing.is_some() {
            return Ok(());
        }
        ensure!(!self.workload.is_empty(), "no workload");
        ensure!(
            self.circuits.values().any(|ids| !ids.is_empty()),
            "no circuits"
        );
        ensure!(
            self.circuits.len() == 1,
            "circuits of two places, whose records would have one name"
        );
        for ids in self.circuits.values() {
            let mut seen = std::collections::BTreeSet::new();
            let twice = ids.iter().find(|id| !seen.insert(*id));
            ensure!(twice.is_none(), "a circuit twice: {}", ids.join(", "));
        }
        ensure!(
            self.circuits.contains_key(&On::Gpu) || !self.name.ends_with("-device"),
            "the name of a device's row, measured on the processor"
        );
        ensure!(self.parts > 0, "jobs of no part");
        ensure!(
            self.off.len() == 1,
            "want one setting off, have {}",
            self.off.len()
        );
        ensure!(!self.on.is_empty(), "no setting on");
        for name in self.on.keys() {
            ensure!(
                !self.off.contains_key(name) && name != CONTROL,
                "a setting on is named {name}"
            );
        }
        let (off, switches) = self.off.first_key_value().context("one setting off")?;
        let same = self.on.iter().find(|(_, on)| *on == switches);
        ensure!(same.is_none(), "a setting on is {off} by another name");
        for (name, switches) in self.off.iter().chain(&self.on) {
            for (key, value) in self.always.iter().chain(switches) {
                ensure!(key.contains('.'), "{name}: {key} is no key with a section");
                ensure!(
                    !(value.is_table() || value.is_array()),
                    "{name}: {key} has no plain value"
                );
            }
        }
        Ok(())
    }

    /// Name and switches of the setting off.
    pub(crate) fn off(&self) -> (&str, BTreeMap<String, String>) {
        let (name, switches) = self.off.first_key_value().expect("checked when read");
        (name, plain(switches))
    }

    /// Name and switches of each setting on.
    pub(crate) fn on(&self) -> impl Iterator<Item = (&str, BTreeMap<String, String>)> {
        let on = self.on.iter();
        on.map(|(name, switches)| (name.as_str(), plain(switches)))
    }

    /// Off, those on, and the control, each as `cuzk-bench` takes it.
    pub(crate) fn settings(&self) -> Vec<String> {
        let (off, switches) = self.off();
        let mut settings = vec![setting(off, &switches)];
        settings.extend(self.on().map(|(name, switches)| setting(name, &switches)));
        settings.push(setting(CONTROL, &switches));
        settings
    }

    /// What all settings have, as `cuzk-bench` takes it.
    pub(crate) fn always(&self) -> Vec<String> {
        let always = plain(&self.always);
        always
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect()
    }

    /// The circuits of a place.
    pub(crate) fn circuits(&self, on: On) -> &[String] {
        self.circuits.get(&on).map_or(&[], Vec::as_slice)
    }
}

fn setting(name: &str, switches: &BTreeMap<String, String>) -> String {
    let switches: Vec<String> = switches
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!("{name}: {}", switches.join(", "))
}

fn plain(switches: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let switches = switches.iter();
    switches
        .map(|(key, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            (key.clone(), text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"
[[row]]
name = "sizing"
what = "how columns get their length"
claim = "exact sizes cost nothing"
workload = "synth"
circuits.cpu = ["porep-2k"]
also = ["peak_bytes"]
always."engine.threads" = 1
off.growing."tuning.sizing" = "growing"
on.exact."tuning.sizing" = "exact"
"#;

    #[test]
    fn a_row_is_settings_and_a_control() {
        let rows = read(ROW).expect("a row");
        assert_eq!(
            rows[0].settings(),
            [
                "growing: tuning.sizing=growing",
                "exact: tuning.sizing=exact",
                "control: tuning.sizing=growing"
            ]
        );
        assert_eq!(rows[0].always(), ["engine.threads=1"]);
        assert_eq!(rows[0].circuits(On::Cpu), ["porep-2k"]);
        assert!(rows[0].circuits(On::Gpu).is_empty());
        assert_eq!(
            (rows[0].metric.as_str(), rows[0].better),
            ("wall_ms", Better::Less)
        );
    }

    #[test]
    fn broken_rows_are_caught_with_their_name() {
        for (from, to, expected) in [
            (
                "claim = \"exact sizes cost nothing\"",
                "claim = \" \"",
                "no claim",
            ),
            ("workload = \"synth\"", "", "no workload"),
            ("circuits.cpu = [\"porep-2k\"]", "", "no circuits"),
            (
                "circuits.cpu = ",
                "circuits.gpu = [\"porep-2k\"]\ncircuits.cpu = ",
                "circuits of two places",
            ),
            ("also =", "parts = 0\nalso =", "jobs of no part"),
            (
                "[\"porep-2k\"]",
                "[\"porep-2k\", \"porep-2k\"]",
                "a circuit twice",
            ),
            (
                "\"sizing\"",
                "\"sizing-device\"",
                "measured on the processor",
            ),
            ("\"sizing\"", "\"../sizing\"", "want letters"),
            ("= \"exact\"", "= \"growing\"", "by another name"),
            ("on.exact", "off.exact", "want one setting off, have 2"),
            ("on.exact", "on.control", "a setting on is named control"),
            ("\"engine.threads\"", "\"threads\"", "no key with a section"),
            ("= \"exact\"", "= [\"exact\"]", "has no plain value"),
            ("what =", "whats =", "unknown field `whats`"),
        ] {
            assert!(ROW.contains(from), "{from}");
            let error = read(&ROW.replacen(from, to, 1)).expect_err(expected);
            let told = format!("{error:#}");
            assert!(told.contains(expected), "{told}");
        }
        let twice = read(&format!("{ROW}{ROW}")).expect_err("two of a name");
        assert!(twice.to_string().contains("two rows are named sizing"));
    }
}
