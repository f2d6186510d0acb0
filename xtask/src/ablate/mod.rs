//! `cargo xtask ablate`: what each switch is worth, on this machine, with an interval.
//!
//! `bench/ablations.toml` says what is switched. `cuzk-bench compare` measures, and this
//! starts it, goes on with sets that were cut off, and says what the samples say.

mod check;
mod definition;
mod judge;
mod samples;
pub(crate) mod stats;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};

pub(crate) use definition::On;
pub(crate) use definition::{FILE, means};
use definition::{Row, read};
pub(crate) use judge::verdict;
pub(crate) use samples::Set;

use crate::record::{self, FOLDER, Record};
use crate::workspace::Workspace;

/// Rounds of a set, and of a quick one.
const PAIRS: usize = 16;
const QUICK_PAIRS: usize = 8;

/// The fewest rounds that say anything: of fewer, all are on one side of 1 by chance more
/// often than one time in twenty.
const PAIRS_MIN: usize = 6;

/// Where samples and keys are kept, in the folder of builds.
const KEPT: &str = "target/ablate";

/// Arguments of `cargo xtask ablate`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Rows to measure; all that can run without any.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print the rows and measure nothing.
    #[arg(long)]
    list: bool,
    /// Where proofs are made.
    #[arg(long, value_enum, default_value_t = On::Cpu)]
    on: On,
    /// Circuits in place of the rows' own (`porep-2k`, `mixed-22-13`).
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    circuit: Vec<String>,
    /// Fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Rounds of each set; an even number gives both orders of two runs the same weight.
    #[arg(long, conflicts_with = "quick", value_parser = rounds)]
    pairs: Option<usize>,
    /// Begin no round that would end later than this after the start; what is missing is
    /// measured when the same is run again.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    limit_s: Option<f64>,
    /// The machine's short name, under which records are kept [default: they stay with the
    /// samples].
    #[arg(long, value_name = "NAME", value_parser = record::plain_name)]
    machine: Option<String>,
    /// What is to be known of the measurement, such as what else the machine did.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// A built `cuzk-bench` [default: it is built].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Folder of the samples and of test keys [default: target/ablate].
    #[arg(long, value_name = "DIR")]
    kept: Option<PathBuf>,
    /// Test the method on this machine: so many sets without a difference, and some that
    /// are slowed by 3 %.
    #[arg(long, value_name = "SETS", num_args = 0..=1, default_missing_value = "20")]
    check: Option<usize>,
}

fn rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse().map_err(|_| "want a number".to_owned())?;
    if rounds < PAIRS_MIN {
        return Err(format!("fewer than {PAIRS_MIN} rounds say nothing"));
    }
    Ok(rounds)
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().map_err(|_| "want a number".to_owned())?;
    // A year: what a duration holds, and no set takes.
    if !(0.0..=31_536_000.0).contains(&seconds) {
        return Err("want seconds, from 0 to those of a year".to_owned());
    }
    Ok(seconds)
}

/// Does what was asked; whether every set is complete and verified, or the method holds.
///
/// # Errors
/// If the definitions or the program are not well, or there is no such row.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<bool> {
    let path = workspace.root().join(FILE);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let rows = read(&text)?;
    if arguments.list {
        record::tell(&listed(&rows))?;
        return Ok(true);
    }
    let kept = arguments.kept.clone();
    let kept = kept.unwrap_or_else(|| workspace.root().join(KEPT));
    std::fs::create_dir_all(&kept).with_context(|| kept.display().to_string())?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => bench(workspace, arguments.on)?,
    };
    if let Some(sets) = arguments.check {
        return check::run(&program, &kept, sets);
    }
    let mut is_well = true;
    let begin = Instant::now();
    for row in chosen(&rows, arguments)? {
        let drive = Drive {
            arguments,
            program: &program,
            kept: &kept,
            begin,
        };
        let record = drive.row(row)?;
        is_well &= record.is_some_and(|record| record.cases.iter().all(|case| case.verified));
    }
    Ok(is_well)
}

/// A line a row.
fn listed(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let places: Vec<&str> = row.circuits.keys().map(|on| on.name()).collect();
        let places = match &row.missing {
            Some(why) => format!("not yet: {why}"),
            None => places.join(", "),
        };
        text += &format!("{:<width$}  {} ({places})\n", row.name, row.what);
    }
    text
}

/// The rows that were named, or all that can run where they are to.
fn chosen<'a>(rows: &'a [Row], arguments: &Arguments) -> anyhow::Result<Vec<&'a Row>> {
    if arguments.names.is_empty() {
        let can_run = |row: &&Row| row.missing.is_none() && !row.circuits(arguments.on).is_empty();
        return Ok(rows.iter().filter(can_run).collect());
    }
    let mut chosen = Vec::new();
    for name in &arguments.names {
        let row = rows.iter().find(|row| row.name == *name);
        let row = row.with_context(|| format!("no row {name}: --list has them"))?;
        if let Some(why) = &row.missing {
            bail!("{name} cannot be measured yet: {why}");
        }
        ensure!(
            !row.circuits(arguments.on).is_empty(),
            "{name} cannot be measured on the {}: `--on` says where",
            arguments.on.name()
        );
        chosen.push(row);
    }
    Ok(chosen)
}

/// Builds `cuzk-bench`, with the feature `cuda` for a device.
pub(crate) fn bench(workspace: &Workspace, on: On) -> anyhow::Result<PathBuf> {
    let package = ["-p", "cuzk-tests", "--bin", "cuzk-bench"];
    let status = match on {
        On::Cpu => workspace.cargo().arg("build").args(package).status(),
        // With the toolkit's place and the architectures of the devices here.
        On::Gpu => Command::new(std::env::current_exe()?)
            .args(["cuda", "build", "--"])
            .args(package)
            .status(),
    };
    ensure!(status?.success(), "cuzk-bench does not build");
    Ok(workspace.root().join("target/debug/cuzk-bench"))
}

/// What measures.
struct Drive<'a> {
    arguments: &'a Arguments,
    program: &'a Path,
    kept: &'a Path,
    begin: Instant,
}

impl Drive<'_> {
    /// Measures a row, prints what it says and keeps it; none while a set is not complete.
    fn row(&self, row: &Row) -> anyhow::Result<Option<Record>> {
        let mut record: Option<Record> = None;
        let circuits = match self.arguments.circuit.as_slice() {
            [] => row.circuits(self.arguments.on),
            given => given,
        };
        for circuit in circuits {
            let set = self.set(row, circuit)?;
            let wanted = self.pairs();
            if set.failed.is_none() && set.rounds() < wanted {
                println!(
                    "{}, {circuit}: {} of {wanted} rounds; the same again goes on",
                    row.name,
                    set.rounds()
                );
                return Ok(None);
            }
            let cases = judge::cases(row, circuit, &set)?;
            let record = record.get_or_insert_with(|| self.record(row, &set));
            record.cases.extend(cases);
        }
        let record = record.context("no circuits")?;
        print!("{}", record::shown(&record));
        let folder = match &self.arguments.machine {
            Some(machine) => Path::new(FOLDER).join(machine),
            None => self.kept.to_owned(),
        };
        println!("{}\n", record::write(&record, &folder)?.display());
        Ok(Some(record))
    }

    fn pairs(&self) -> usize {
        let usual = if self.arguments.quick {
            QUICK_PAIRS
        } else {
            PAIRS
        };
        self.arguments.pairs.unwrap_or(usual)
    }

    /// The samples of a row with one circuit, measured as far as there is time.
    fn set(&self, row: &Row, circuit: &str) -> anyhow::Result<Set> {
        let on = self.arguments.on;
        let path = self
            .kept
            .join(format!("{}-{}-{circuit}.jsonl", row.name, on.name()));
        let read = || -> anyhow::Result<Option<Set>> {
            if !path.exists() {
                return Ok(None);
            }
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| path.display().to_string())?;
            Set::parse(&text)
                .map(Some)
                .with_context(|| path.display().to_string())
        };
        let left = self
            .arguments
            .limit_s
            .map(|limit| limit - self.begin.elapsed().as_secs_f64());
        let begun = read()?;
        let is_failed = begun.as_ref().is_some_and(|set| set.failed.is_some());
        if !is_failed && left.is_none_or(|left| left > 0.0) {
            eprintln!("{}, {circuit}", row.name);
            let mut command = Command::new(self.program);
            command
                .args([
                    "compare",
                    &row.workload,
                    "--circuit",
                    circuit,
                    "--on",
                    on.name(),
                ])
                .args(["--parts", &row.parts.to_string()])
                .args(["--pairs", &self.pairs().to_string()]);
            for switch in row.always() {
                command.args(["--set", &switch]);
            }
            for setting in row.settings() {
                command.args(["--setting", &setting]);
            }
            if let Some(left) = left {
                command.args(["--limit-s", &left.to_string()]);
            }
            command.arg("--keys").arg(self.kept.join("keys"));
            command.arg("--samples").arg(&path).stdout(Stdio::null());
            let status = command.status();
            let status = status.with_context(|| self.program.display().to_string())?;
            let ended = read()?;
            // A run that failed is a case without figures; anything else is an error.
            let is_told = ended.as_ref().is_some_and(|set| set.failed.is_some());
            ensure!(
                status.success() || is_told,
                "{} on {circuit}: {status}",
                row.name
            );
        }
        let set = read()?;
        let set = set.with_context(|| format!("{} on {circuit}: no time left", row.name))?;
        ensure!(
            set.head.hooks.is_empty(),
            "{}: its runs were tampered with",
            path.display()
        );
        Ok(set)
    }

    fn record(&self, row: &Row, set: &Set) -> Record {
        let on = self.arguments.on.name();
        let mut command = format!("cargo xtask ablate {} --on {on}", row.name);
        if !self.arguments.circuit.is_empty() {
            command += &format!(" --circuit {}", self.arguments.circuit.join(","));
        }
        if let Some(machine) = &self.arguments.machine {
            command += &format!(" --machine {machine}");
        }
        command += &format!(" --pairs {}", self.pairs());
        Record {
            name: format!("ablate-{}", row.name),
            claim: row.claim.clone(),
            commit: set.head.commit.clone(),
            dirty: set.head.dirty,
            date: today(),
            command,
            machine: set.head.machine.clone(),
            tuning: judge::tuning(set),
            note: self.arguments.note.clone(),
            cases: Vec::new(),
        }
    }
}

/// The day, in UTC.
fn today() -> String {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    date(since.map_or(0, |since| since.as_secs() / 86_400))
}

/// The date of a number of days since 1970-01-01 (Hinnant, "days from civil", inverted).
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_786, "2026-11-29"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn what_says_nothing_is_refused() {
        for (rounds_given, seconds_given, name) in [
            ("5", "-1", ""),
            ("0", "inf", "../x"),
            ("x", "nan", "a b"),
            ("", "1e20", ".x"),
        ] {
            rounds(rounds_given).expect_err(rounds_given);
            seconds(seconds_given).expect_err(seconds_given);
            record::plain_name(name).expect_err(name);
        }
        assert_eq!(rounds("6"), Ok(PAIRS_MIN));
        assert_eq!(seconds("0"), Ok(0.0));
        assert_eq!(record::plain_name("h200-16c").as_deref(), Ok("h200-16c"));
    }

    #[test]
    fn the_definitions_are_well_and_each_is_listed() {
        let workspace = Workspace::find().expect("the workspace");
        let text = std::fs::read_to_string(workspace.root().join(FILE)).expect("the rows");
        let rows = read(&text).expect("they are well");
        insta::assert_snapshot!(listed(&rows));
    }
}
