//! `cargo xtask record`: reads the measurements under `bench/records`.
//!
//! Records are written by the programs that measure. This prints them, and `tidy`
//! refuses one that does not hold together.

mod compare;
mod file;
mod join;
mod page;
mod plot;
mod table;
#[cfg(test)]
mod tests;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::tidy::SourceFile;
use crate::workspace::Workspace;

pub(crate) use file::{Case, Machine, Peer, Record, Series, Spread, problems};
pub(crate) use page::generated;

/// Where records stand, as `<machine>/<name>.json`.
pub(crate) const FOLDER: &str = "bench/records/";

/// Arguments of `cargo xtask record`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Print a record as a table, or list all.
    Show {
        /// Which one, such as `h200-16c/params`; a path to a file works too.
        #[arg(value_name = "MACHINE/NAME")]
        record: Option<String>,
    },
    /// Print what changed from one record of a measurement to another, case by case.
    Compare {
        /// The older one: `MACHINE/NAME`, or a path to a file.
        before: String,
        /// The newer one.
        after: String,
    },
    /// Draw the ratios of records under bench/plots.
    Plot {
        /// Which, as `MACHINE/NAME`; all without any.
        #[arg(value_name = "MACHINE/NAME")]
        records: Vec<String>,
    },
    /// Write bench/README.md and all plots from the records.
    Page,
    /// Join records of one measurement that was made in several runs of one program on one
    /// machine: all cases, and the command of each run.
    Join {
        /// Files, in the order of their cases.
        #[arg(required = true, num_args = 1.., value_name = "FILE")]
        records: Vec<PathBuf>,
        /// The joined record's name: of a measurement that stands beside another one of its
        /// name, with other settings.
        #[arg(long)]
        name: Option<String>,
        /// Folder of the joined record; one that is there is replaced.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Put cases that were measured again in place of those of an earlier record. What is
    /// left of that keeps its own commit.
    Renew {
        /// The earlier file.
        before: PathBuf,
        /// The later one.
        after: PathBuf,
        /// Folder of the record; one that is there is replaced.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Does what was asked; whether every record that was read is well.
///
/// # Errors
/// If there is no such record, or it is none.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<bool> {
    match &arguments.command {
        Action::Show { record: None } => list(workspace),
        Action::Show { record: Some(name) } => show(workspace, name),
        Action::Compare { before, after } => {
            let (before, after) = (load(workspace, before)?, load(workspace, after)?);
            tell(&compare::table(&parsed(&before)?, &parsed(&after)?))?;
            Ok(true)
        }
        Action::Plot { records } => plot_some(workspace, records),
        Action::Page => write_generated(workspace, |_| true),
        Action::Join { records, name, out } => join::run(records, name.as_deref(), out),
        Action::Renew { before, after, out } => join::run_renew(before, after, out),
    }
}

fn list(workspace: &Workspace) -> anyhow::Result<bool> {
    let mut is_well = true;
    let mut text = String::new();
    for source in records(workspace)? {
        let name = short_name(&source.path);
        match Record::parse(&source.text) {
            Ok(record) => text += &format!("{}\n", table::line(name, &record)),
            Err(error) => {
                is_well = false;
                text += &format!("{name}: {error}\n");
            }
        }
    }
    tell(&text)?;
    Ok(is_well)
}

fn show(workspace: &Workspace, name: &str) -> anyhow::Result<bool> {
    let source = load(workspace, name)?;
    let record = parsed(&source)?;
    tell(&table::whole(short_name(&source.path), &record))?;
    let problems = problems(&source);
    for problem in &problems {
        tell(&format!("error: {}: {problem}\n", source.path))?;
    }
    Ok(problems.is_empty())
}

/// A record of the repository by its short name, or a file.
fn load(workspace: &Workspace, name: &str) -> anyhow::Result<SourceFile> {
    let committed = records(workspace)?;
    let found = committed
        .into_iter()
        .find(|source| short_name(&source.path) == name);
    match found {
        Some(source) => Ok(source),
        None if name.ends_with(".json") => Ok(SourceFile {
            path: name.to_owned(),
            text: std::fs::read_to_string(name).with_context(|| format!("reading {name}"))?,
        }),
        None => bail!("no {FOLDER}{name}.json: `cargo xtask record show` lists what there is"),
    }
}

fn parsed(source: &SourceFile) -> anyhow::Result<Record> {
    Record::parse(&source.text).with_context(|| source.path.clone())
}

fn plot_some(workspace: &Workspace, names: &[String]) -> anyhow::Result<bool> {
    let mut paths = Vec::new();
    for name in names {
        let (machine, record) = name.split_once('/').context("want MACHINE/NAME")?;
        if plot::svg(&parsed(&load(workspace, name)?)?).is_none() {
            bail!("{name} compares nothing");
        }
        paths.push(plot::path(machine, record));
    }
    let is_all = names.is_empty();
    write_generated(workspace, |path| {
        path.ends_with(".svg") && (is_all || paths.iter().any(|wanted| wanted == path))
    })
}

/// Writes what is generated from the records, where it is wanted and not as it should be.
fn write_generated(
    workspace: &Workspace,
    is_wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<bool> {
    let sources = workspace.sources()?;
    for (path, text) in generated(&sources) {
        let is_there = sources
            .iter()
            .any(|file| file.path == path && file.text == text);
        if is_there || !is_wanted(&path) {
            continue;
        }
        let full = workspace.root().join(&path);
        if let Some(folder) = full.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&full, text).with_context(|| full.display().to_string())?;
        println!("{path}");
    }
    Ok(true)
}

fn records(workspace: &Workspace) -> anyhow::Result<Vec<SourceFile>> {
    let sources = workspace.sources()?.into_iter();
    Ok(sources.filter(|source| is_record(&source.path)).collect())
}

/// Writes to standard output, also where whoever reads it has had enough.
///
/// # Errors
/// If it cannot be written to.
pub(crate) fn tell(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("standard output"),
    }
}

/// A name of a file or folder of records: nothing that leads elsewhere, or breaks a table.
///
/// # Errors
/// What is wanted.
pub(crate) fn plain_name(name: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) {
        true if name.chars().all(is_plain) => Ok(name.to_owned()),
        _ => Err(format!(
            "{name:?}: want letters, digits, '-', '_' and '.', a letter or digit first"
        )),
    }
}

/// A record as a table.
pub(crate) fn shown(record: &Record) -> String {
    table::whole(&record.name, record)
}

/// Writes a record into a folder, under its name; one that is there is replaced whole.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(record: &Record, folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let path = folder.join(format!("{}.json", record.name));
    let text = serde_json::to_string_pretty(record)? + "\n";
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Whether a file of the repository has to be a record.
pub(crate) fn is_record(path: &str) -> bool {
    path.starts_with(FOLDER) && path.ends_with(".json")
}

/// `h200-16c/params` for the file of that record.
fn short_name(path: &str) -> &str {
    let path = path.strip_prefix(FOLDER).unwrap_or(path);
    path.strip_suffix(".json").unwrap_or(path)
}
