//! The file of samples: one line that says what they are of, then one line each.
//!
//! A line is written at once and whole, so that of a set that was cut off only the last
//! line can be torn. Whoever goes on drops the round that is not complete: a pair is two
//! runs in one process, one soon after the other.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use cuzk_tests::record::Machine;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What samples are of. Only samples of the same are put together.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Head {
    /// The arguments that say what is measured.
    pub(super) command: String,
    commit: String,
    dirty: bool,
    /// Where there were changes beside the commit, which program it was.
    program: Option<String>,
    /// Names and switches, in their order.
    settings: Vec<(String, BTreeMap<String, String>)>,
    /// Hooks that make the samples no measurement.
    hooks: Vec<String>,
    machine: Value,
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Sample {
    pub(super) setting: String,
    /// The round, from 0.
    pub(super) pair: usize,
    /// True: what was not verified has no sample.
    pub(super) verified: bool,
    pub(super) metrics: BTreeMap<String, f64>,
    pub(super) used: BTreeMap<String, String>,
}

/// A line.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Line {
    Head {
        head: Head,
    },
    Sample(Sample),
    Failed {
        setting: String,
        pair: usize,
        failed: String,
    },
}

/// The file, to be added to.
pub(super) struct Samples {
    path: PathBuf,
    file: File,
    rounds: usize,
}

impl Head {
    pub(super) fn new(
        command: String,
        settings: Vec<(String, BTreeMap<String, String>)>,
        hooks: Vec<String>,
        machine: Machine,
    ) -> Result<Self> {
        let dirty = env!("CUZK_DIRTY") == "true";
        Ok(Self {
            command,
            commit: env!("CUZK_COMMIT").to_owned(),
            dirty,
            program: if dirty { Some(program()?) } else { None },
            settings,
            hooks,
            machine: serde_json::to_value(machine)?,
        })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.iter().map(|(name, _)| name.as_str())
    }

    /// What differs, by its name.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let differences = [
            ("command", self.command != other.command),
            (
                "commit",
                (&self.commit, self.dirty) != (&other.commit, other.dirty),
            ),
            ("program", self.program != other.program),
            ("settings", self.settings != other.settings),
            ("hooks", self.hooks != other.hooks),
            ("machine", self.machine != other.machine),
        ];
        let mut differences = differences.into_iter();
        differences.find_map(|(name, differs)| differs.then_some(name))
    }
}

/// A digest of this program's own file.
fn program() -> Result<String> {
    let bytes = std::fs::read(std::env::current_exe()?)?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

impl Samples {
    /// The file, begun anew or gone on with: what is torn and what is of a round that is
    /// not complete is gone from it.
    ///
    /// # Errors
    /// If its samples are of something else, a run failed, or it cannot be read or written.
    pub(super) fn open(path: &Path, head: &Head) -> Result<Self> {
        let place = || path.display().to_string();
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(place),
        };
        let (rounds, len) = read(&text, head).with_context(place)?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .with_context(place)?;
        file.set_len(len as u64).with_context(place)?;
        file.seek(SeekFrom::End(0)).with_context(place)?;
        let mut samples = Self {
            path: path.to_owned(),
            file,
            rounds,
        };
        if len == 0 {
            samples.write(&Line::Head { head: head.clone() })?;
        }
        Ok(samples)
    }

    /// Rounds that are complete.
    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }

    pub(super) fn push(&mut self, sample: Sample) -> Result<()> {
        self.write(&Line::Sample(sample))
    }

    /// Says that the round's samples are all there, and on the disk.
    pub(super) fn end_round(&mut self) -> Result<()> {
        self.rounds += 1;
        let synced = self.file.sync_data();
        synced.with_context(|| self.path.display().to_string())
    }

    /// Ends the set for good.
    pub(super) fn fail(&mut self, setting: &str, pair: usize, reason: &str) -> Result<()> {
        self.write(&Line::Failed {
            setting: setting.to_owned(),
            pair,
            failed: reason.to_owned(),
        })
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line)? + "\n";
        let written = self.file.write_all(text.as_bytes());
        written.with_context(|| self.path.display().to_string())
    }
}

/// How many rounds a file has, and how many bytes of it they and its head take.
fn read(text: &[u8], head: &Head) -> Result<(usize, usize)> {
    let count = head.names().count();
    let mut at = 0;
    let mut complete = 0;
    let mut samples = Vec::new();
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.last() != Some(&b'\n') {
            break;
        }
        let number = index + 1;
        let line_read: Line =
            serde_json::from_slice(line).with_context(|| format!("line {number} is no sample"))?;
        at += line.len();
        match line_read {
            Line::Head { head: have } if index == 0 => {
                if let Some(what) = have.difference(head) {
                    bail!("its samples are of another {what}: name another file, or delete it");
                }
                complete = at;
            }
            Line::Failed {
                setting, failed, ..
            } => bail!(
                "line {number}: a run of {setting} failed, which ends the set: {failed}; delete \
                 the file to begin anew"
            ),
            Line::Sample(sample) if index > 0 => {
                ensure!(
                    sample.verified,
                    "line {number}: a sample that is not verified"
                );
                let pair = samples.len() / count;
                ensure!(
                    sample.pair == pair,
                    "line {number}: pair {}, want {pair}",
                    sample.pair
                );
                let round = &samples[pair * count..];
                ensure!(
                    head.names().any(|name| name == sample.setting)
                        && !round.contains(&sample.setting),
                    "line {number}: setting {} is out of place",
                    sample.setting
                );
                samples.push(sample.setting);
                if samples.len().is_multiple_of(count) {
                    complete = at;
                }
            }
            _ => bail!("line {number}: the first line, and no other, says what samples are of"),
        }
    }
    Ok((samples.len() / count, complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(command: &str) -> Head {
        let settings = ["on", "off"].map(|name| (name.to_owned(), BTreeMap::new()));
        Head {
            command: command.to_owned(),
            commit: "c0ffee".to_owned(),
            dirty: false,
            program: None,
            settings: settings.into(),
            hooks: Vec::new(),
            machine: Value::Null,
        }
    }

    fn sample(setting: &str, pair: usize) -> Sample {
        Sample {
            setting: setting.to_owned(),
            pair,
            verified: true,
            metrics: BTreeMap::from([("wall_ms".to_owned(), 1.5)]),
            used: BTreeMap::new(),
        }
    }

    /// A file with a round and a half.
    fn begun(path: &Path) -> usize {
        let mut samples = Samples::open(path, &head("prove")).expect("a new file");
        for (setting, pair) in [("on", 0), ("off", 0)] {
            samples.push(sample(setting, pair)).expect("written");
        }
        samples.end_round().expect("on the disk");
        let complete = std::fs::metadata(path).expect("a file").len();
        samples.push(sample("off", 1)).expect("written");
        complete as usize
    }

    #[test]
    fn a_set_goes_on_after_its_last_complete_round_wherever_it_was_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        let complete = begun(&path);
        let whole = std::fs::read(&path).expect("a file");
        for len in complete..whole.len() {
            std::fs::write(&path, &whole[..len]).expect("cut off");
            let samples = Samples::open(&path, &head("prove")).expect("goes on");
            assert_eq!(samples.rounds(), 1, "{len}");
            let left = std::fs::read(&path).expect("a file");
            assert!(left == whole[..complete], "{len}");
        }
        for len in 0..complete {
            std::fs::write(&path, &whole[..len]).expect("cut off");
            let samples = Samples::open(&path, &head("prove")).expect("goes on");
            assert_eq!(samples.rounds(), 0, "{len}");
        }
    }

    #[test]
    fn samples_of_something_else_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        begun(&path);
        let mut other = head("prove");
        other.commit = "decaf".to_owned();
        let mut renamed = head("prove");
        renamed.settings[0].0 = "on2".to_owned();
        for (head, what) in [
            (head("synth"), "command"),
            (other, "commit"),
            (renamed, "settings"),
        ] {
            let error = Samples::open(&path, &head).map(|_| ()).expect_err(what);
            let told = format!("{error:#}");
            assert!(told.contains(&format!("another {what}")), "{told}");
        }
        let other = folder.path().join("other");
        std::fs::write(&other, "a text\n").expect("written");
        let error = Samples::open(&other, &head("prove")).map(|_| ());
        assert!(error.is_err());
        assert_eq!(std::fs::read(&other).expect("as it was"), b"a text\n");
    }

    #[test]
    fn a_run_that_failed_ends_the_set() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        begun(&path);
        let mut samples = Samples::open(&path, &head("prove")).expect("goes on");
        samples
            .fail("on", 1, "the proof does not verify")
            .expect("written");
        let error = Samples::open(&path, &head("prove")).map(|_| ());
        let told = format!("{:#}", error.expect_err("it failed"));
        assert!(told.contains("the proof does not verify"), "{told}");
    }
}
