//! `cargo xtask cuda sanitize`: small tests on a device under compute-sanitizer.
//!
//! The tests are those of `cuzk-gpu` named `small::…`, which launch every kernel. The
//! tool's answer counts, not the tests' alone: a run in which it checked nothing, and one
//! whose records are not understood, fail too. Two warnings are known and let pass, see
//! docs/decisions/0006-two-warnings-of-racecheck.md.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::ValueEnum;

use super::{Build, archs_of, cargo_arguments, toolkit};
use crate::workspace::Workspace;

/// Tests that run: libtest's filter.
const TESTS: &str = "small::";
const SANITIZER: &str = "compute-sanitizer";

/// Arguments of `cargo xtask cuda sanitize`.
#[derive(clap::Args)]
pub(crate) struct Sanitize {
    /// A tool to run; may be given more than once [default: all].
    #[arg(long = "tool", value_name = "TOOL", value_enum)]
    tools: Vec<Tool>,
    /// A test program that is built already, such as target/debug/deps/cuzk_gpu-…; nothing
    /// is compiled then.
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    #[command(flatten)]
    build: Build,
}

/// A tool of the sanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tool {
    /// Accesses outside of allocations, misaligned ones, and calls that fail.
    Memcheck,
    /// Hazards in shared memory.
    Racecheck,
}

impl Tool {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Memcheck => &["--tool=memcheck"],
            // All of them, so that all are judged: a hundred are shown otherwise.
            Self::Racecheck => &[
                "--tool=racecheck",
                "--racecheck-report=analysis",
                "--print-limit=1000000",
            ],
        }
    }
}

/// Runs the tests under each tool; whether all went well.
///
/// # Errors
/// If there is no sanitizer, or a program cannot be started.
pub(crate) fn run(workspace: &Workspace, arguments: &Sanitize) -> anyhow::Result<bool> {
    let sanitizer = find()?;
    let tools = match arguments.tools.as_slice() {
        [] => Tool::value_variants(),
        tools => tools,
    };
    let mut is_clean = true;
    for &tool in tools {
        let mut command = match &arguments.program {
            Some(program) => {
                let mut command = Command::new(&sanitizer);
                command.args(tool.arguments()).arg(program);
                command
            }
            None => through_cargo(workspace, &sanitizer, tool, &arguments.build)?,
        };
        command.args([TESTS, "--test-threads=1"]);
        command.env("CUZK_REQUIRE_GPU", "1");
        let (text, is_success) = watch(&mut command)?;
        let verdict = judge(tool, &text);
        match (&verdict, is_success) {
            (Ok(passed), true) => println!("{tool:?}: clean, {passed} known warnings"),
            (Err(reason), _) => println!("{tool:?}: FAILED: {reason}"),
            (Ok(_), false) => println!("{tool:?}: FAILED: the tests did not pass"),
        }
        is_clean &= verdict.is_ok() && is_success;
    }
    Ok(is_clean)
}

/// The sanitizer on the path, or in the toolkit that `CUDA_HOME` names.
fn find() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("CUDA_HOME").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(
        home.iter()
            .flat_map(|home| [home.join("bin"), home.join(SANITIZER)]),
    );
    let found = folders
        .map(|folder| folder.join(SANITIZER))
        .find(|path| path.is_file());
    found.with_context(|| {
        format!("no {SANITIZER} on the path, nor in the toolkit that CUDA_HOME names")
    })
}

/// `cargo test` with the sanitizer as what starts the tests.
fn through_cargo(
    workspace: &Workspace,
    sanitizer: &Path,
    tool: Tool,
    build: &Build,
) -> anyhow::Result<Command> {
    let toolkit = toolkit::find_or_install(workspace)?;
    let sanitizer = sanitizer
        .to_str()
        .context("the sanitizer's path is no text")?;
    let words: Vec<String> = [sanitizer]
        .iter()
        .chain(tool.arguments())
        .map(|word| format!("{word:?}"))
        .collect();
    let mut cargo = workspace.cargo();
    cargo
        .arg("test")
        .args(cargo_arguments(build))
        .args(["--lib", "--config"])
        .arg(format!("target.'cfg(all())'.runner=[{}]", words.join(",")))
        .arg("--")
        .env("NVCC", &toolkit.nvcc);
    match archs_of(build).join(",") {
        archs if archs.is_empty() => cargo.env_remove("CUZK_CUDA_ARCHS"),
        archs => cargo.env("CUZK_CUDA_ARCHS", archs),
    };
    Ok(cargo)
}

/// Runs a command, shows what it prints, and gives that and whether it ended well.
fn watch(command: &mut Command) -> anyhow::Result<(String, bool)> {
    println!("{command:?}");
    let _ = std::io::stdout().flush();
    let program = command.get_program().display().to_string();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {program}"))?;
    let output = child.stdout.take().context("the output is piped")?;
    let mut text = String::new();
    for line in BufReader::new(output).lines() {
        let line = line.with_context(|| format!("reading what {program} prints"))?;
        println!("{line}");
        text.push_str(&line);
        text.push('\n');
    }
    let status = child
        .wait()
        .with_context(|| format!("waiting for {program}"))?;
    Ok((text, status.success()))
}

/// The lines of the tool, without its mark. The first may follow the name of a test.
fn lines_of_tool(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.split_once("========="))
        .map(|(_, said)| said.trim())
}

/// How many known warnings a tool had, if it had nothing else.
fn judge(tool: Tool, text: &str) -> anyhow::Result<usize> {
    match tool {
        Tool::Memcheck => {
            let summaries: Vec<&str> = lines_of_tool(text)
                .filter_map(|line| line.strip_prefix("ERROR SUMMARY: "))
                .collect();
            match summaries.as_slice() {
                [] => bail!("it printed no summary"),
                all if all.iter().all(|summary| *summary == "0 errors") => Ok(0),
                all => bail!("{}", all.join(", ")),
            }
        }
        Tool::Racecheck => judge_races(text),
    }
}

/// Two accesses between which nothing orders, as racecheck tells them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Race {
    /// `Warning` within a warp, `Error` between warps.
    severity: String,
    /// Kind and place of each, such as `Read access at f(int)+0x10 in a.cu:5`.
    accesses: Vec<String>,
}

impl Race {
    /// Whether the race is one of the known ones: in the sort, within a warp, a load and
    /// a store that no barrier parts but a shuffle of the whole warp does.
    fn is_known(&self) -> bool {
        let is_read = |access: &String| access.starts_with("Read access at ");
        let is_write = |access: &String| access.starts_with("Write access at ");
        let is_in = |function: &str| {
            let mut accesses = self.accesses.iter();
            accesses.all(|access| function_of(access) == Some(function))
        };
        self.severity == "Warning"
            && self.accesses.len() == 2
            && self.accesses.iter().any(is_read)
            && self.accesses.iter().any(is_write)
            && (is_in("lower_sort") || is_in("sort"))
    }
}

/// The name of the function that an access is in. One that the compiler copied for its
/// caller is told as `[clone caller(…)] name(…)`.
fn function_of(access: &str) -> Option<&str> {
    let (_, place) = access.split_once(" at ")?;
    let place = match place.strip_prefix("[clone ") {
        Some(cloned) => cloned.split_once("] ")?.1,
        None => place,
    };
    let name = place.split(['(', '+']).next()?;
    name.rsplit("::").next()
}

/// The races that racecheck's analysis tells of.
fn races(text: &str) -> Vec<Race> {
    let mut races: Vec<Race> = Vec::new();
    for line in lines_of_tool(text) {
        if let Some((severity, access)) = line.split_once(": Race reported between ") {
            races.push(Race {
                severity: severity.to_owned(),
                accesses: vec![access.to_owned()],
            });
        } else if let Some(access) = line.strip_prefix("and ")
            && let Some(race) = races.last_mut()
        {
            race.accesses.push(access.to_owned());
        }
    }
    races
}

/// How many hazards a summary tells of, such as `2 hazards displayed (0 errors, 2
/// warnings)`. Those that were not displayed count too.
fn hazards(summary: &str) -> anyhow::Result<usize> {
    let unclear = || anyhow::anyhow!("a summary that is not understood: {summary}");
    let (shown, kinds) = summary.split_once(" (").ok_or_else(unclear)?;
    let number = |text: &str| text.split(' ').next()?.parse::<usize>().ok();
    let kinds = kinds.trim_end_matches(')').split(", ");
    let of_kinds = kinds.map(number).sum::<Option<usize>>();
    let (shown, of_kinds) = number(shown).zip(of_kinds).ok_or_else(unclear)?;
    Ok(shown.max(of_kinds))
}

fn judge_races(text: &str) -> anyhow::Result<usize> {
    let summaries: Vec<&str> = lines_of_tool(text)
        .filter_map(|line| line.strip_prefix("RACECHECK SUMMARY: "))
        .collect();
    if summaries.is_empty() {
        bail!("it printed no summary");
    }
    let told = summaries
        .iter()
        .map(|summary| hazards(summary))
        .sum::<anyhow::Result<usize>>()?;
    let races = races(text);
    if races.len() != told {
        bail!("{told} hazards, of which {} are understood", races.len());
    }
    let unknown: Vec<&Race> = races.iter().filter(|race| !race.is_known()).collect();
    if !unknown.is_empty() {
        bail!("{} hazards: {unknown:#?}", unknown.len());
    }
    Ok(races.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "\
========= COMPUTE-SANITIZER
running 3 tests
test small::proofs ... ========= Warning: Race reported between Read access at [clone sort(vec2d_t<uint2, unsigned int>, unsigned int)] lower_sort(unsigned int *, const uint2 *, unsigned int)+0x2920
=========     and Write access at [clone sort(vec2d_t<uint2, unsigned int>, unsigned int)] lower_sort(unsigned int *, const uint2 *, unsigned int)+0x3000 [1920 hazards]
=========
========= Warning: Race reported between Write access at sort(vec2d_t<uint2, unsigned int>, unsigned int)+0x1450
=========     and Read access at sort(vec2d_t<uint2, unsigned int>, unsigned int)+0x15b0 [7936 hazards]
=========
ok
test result: ok. 3 passed
========= RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)
";

    fn judged(tool: Tool, text: &str) -> Result<usize, String> {
        judge(tool, text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_known_warnings_pass_and_are_counted() {
        assert_eq!(judged(Tool::Racecheck, KNOWN), Ok(2));
        let clean = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n";
        assert_eq!(judged(Tool::Racecheck, clean), Ok(0));
    }

    #[test]
    fn every_other_hazard_fails() {
        for (from, to) in [
            ("Warning: Race", "Error: Race"),
            ("] lower_sort", "] scatter"),
            ("] lower_sort", "] not_lower_sort"),
            ("] lower_sort", "] sort"),
            ("Write access at sort(", "Write access at other("),
            ("Read access at sort(", "Read access at lower_sort("),
            ("and Write access", "and Read access"),
            ("and Read access", "and Write access"),
        ] {
            let changed = KNOWN.replacen(from, to, 1);
            assert_ne!(changed, KNOWN, "{from}");
            let judged = judged(Tool::Racecheck, &changed);
            assert!(
                judged.as_ref().is_err_and(|e| e.starts_with("1 hazards")),
                "{to}: {judged:?}"
            );
        }
    }

    #[test]
    fn a_record_that_is_not_understood_fails() {
        for (from, to, said) in [
            (
                "Race reported between",
                "Hazard between",
                "2 hazards, of which 0 are understood",
            ),
            (
                "(0 errors, 2 warnings)",
                "(0 errors, 5 warnings)",
                "5 hazards, of which 2 are understood",
            ),
            (
                "(0 errors, 2 warnings)",
                "(none)",
                "a summary that is not understood: 2 hazards displayed (none)",
            ),
        ] {
            let judged = judged(Tool::Racecheck, &KNOWN.replace(from, to));
            assert_eq!(judged, Err(said.to_owned()));
        }
    }

    #[test]
    fn a_run_without_a_summary_fails() {
        for tool in [Tool::Memcheck, Tool::Racecheck] {
            let said = judged(tool, "test result: ok. 3 passed\n");
            assert_eq!(said, Err("it printed no summary".to_owned()), "{tool:?}");
        }
    }

    #[test]
    fn one_error_of_memory_fails() {
        let summary = |count: &str| format!("========= ERROR SUMMARY: {count}\n");
        assert_eq!(judged(Tool::Memcheck, &summary("0 errors")), Ok(0));
        let said = judged(Tool::Memcheck, &summary("1 error"));
        assert_eq!(said, Err("1 error".to_owned()));
        let two = summary("0 errors") + &summary("3 errors");
        assert!(judged(Tool::Memcheck, &two).is_err());
    }
}
