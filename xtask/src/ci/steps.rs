//! The steps of the gate: what each runs, and when it counts as passed.
//!
//! All of them build the dev profile, so that dependencies are compiled once for
//! running and once for checking; only the sanitizer has a build of its own.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::cuda::toolkit;
use crate::tidy::{self, Member, Tree};
use crate::workspace::Workspace;

/// The feature under which a crate swaps its locks for loom's.
const LOOM: &str = "loom";
/// The feature under which a crate drives devices.
const CUDA: &str = "cuda";
/// The architecture that the gate compiles for; one is enough to find what is wrong.
const CUDA_ARCH: &str = "sm_90";
/// Crates whose tests run under the address sanitizer: those that own memory.
const SANITIZED: [&str; 2] = ["cuzk-budget", "cuzk-pinned"];
/// Targets that the sanitizer step knows how to build for.
const SANITIZER_TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
/// Looking for leaks needs ptrace, which containers often refuse. An allocation that
/// cannot be served is refused with null, as any allocator does: tests ask for such.
const SANITIZER_OPTIONS: &str = "detect_leaks=0:allocator_may_return_null=1";

/// A step of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// Formatting, without changing it.
    Fmt,
    /// The rules of the house that no compiler checks.
    Tidy,
    /// Lints over every target, warnings refused.
    Clippy,
    /// Documentation of every crate, warnings refused.
    Docs,
    /// Examples and benches, compiled.
    Targets,
    /// The feature `cuda`: lints and documentation without device code, then device
    /// code for one architecture, linked into the tests that need no device.
    Cuda,
    /// Every interleaving of the concurrency models.
    Loom,
    /// Tests of the memory crates under the address sanitizer.
    Asan,
    /// Licences, banned versions and sources of the dependencies.
    Deny,
}

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The machine lacks something that is not the project's to demand.
    Skipped(String),
    Failed(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::Failed(reason) => write!(f, "FAILED: {reason}"),
        }
    }
}

impl Step {
    /// All steps, cheapest first.
    pub(crate) const ALL: [Self; 9] = [
        Self::Fmt,
        Self::Tidy,
        Self::Clippy,
        Self::Docs,
        Self::Targets,
        Self::Cuda,
        Self::Loom,
        Self::Asan,
        Self::Deny,
    ];

    /// Runs the step.
    ///
    /// # Errors
    /// If a program cannot be started, or sources cannot be read.
    pub(crate) fn run(self, workspace: &Workspace) -> anyhow::Result<Outcome> {
        let mut cargo = workspace.cargo();
        match self {
            Self::Fmt => succeed(cargo.args(["fmt", "--all", "--check"])),
            Self::Tidy => Ok(if tidy::run(workspace)? {
                Outcome::Passed
            } else {
                Outcome::Failed("a rule is broken".to_owned())
            }),
            Self::Clippy => succeed(
                cargo
                    .args(["clippy", "--locked", "--workspace", "--all-targets"])
                    .args(["--", "-D", "warnings"]),
            ),
            Self::Docs => succeed(
                cargo
                    .args(["doc", "--locked", "--workspace", "--no-deps"])
                    .env("RUSTDOCFLAGS", "-D warnings"),
            ),
            Self::Targets => succeed(
                cargo
                    .args(["test", "--locked", "--workspace", "--no-run"])
                    .args(["--examples", "--benches"]),
            ),
            Self::Cuda => cuda(workspace),
            Self::Loom => loom(workspace),
            Self::Asan => asan(workspace),
            Self::Deny => deny(workspace),
        }
    }
}

/// Lints and documents every member with the feature; compiles the device code and
/// links it. It fetches the toolkit from the package index the first time.
fn cuda(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let members = members_with(workspace, CUDA)?;
    let features: Vec<String> = members
        .iter()
        .map(|name| format!("{name}/{CUDA}"))
        .collect();
    let features = features.join(",");
    let without_kernels = |verb: &str| {
        let mut cargo = workspace.cargo();
        cargo
            .args([verb, "--locked", "--workspace", "--features", &features])
            .env("CUZK_CUDA_SKIP", "1");
        cargo
    };
    let mut clippy = without_kernels("clippy");
    clippy.args(["--all-targets", "--", "-D", "warnings"]);
    let mut docs = without_kernels("doc");
    docs.arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings");
    for command in [&mut clippy, &mut docs] {
        if let Outcome::Failed(reason) = succeed(command)? {
            return Ok(Outcome::Failed(reason));
        }
    }
    let toolkit = toolkit::find_or_install(workspace)?;
    println!("    {}, {}", toolkit.origin, toolkit.release()?);
    // Both at once: the features of what they use are then compiled once.
    run_tests(
        workspace
            .cargo()
            .args(["test", "--locked", "-p", "cuzk-pinned", "-p", "cuzk-gpu"])
            .args(["--features", "cuzk-pinned/cuda,cuzk-gpu/cuda"])
            .args(["--lib", "--test", "device", CUDA])
            .env("NVCC", &toolkit.nvcc)
            .env("CUZK_CUDA_ARCHS", CUDA_ARCH)
            .env_remove("CUZK_CUDA_SKIP"),
    )
}

/// Runs the models of every member that has some. No models at all is a failure:
/// the wake-up protocol is modelled, and a renamed feature must not hide it.
fn loom(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let modelled = members_with(workspace, LOOM)?;
    let modelled: Vec<&str> = modelled.iter().map(String::as_str).collect();
    if modelled.is_empty() {
        return Ok(Outcome::Failed(format!(
            "no crate has a feature `{LOOM}` with models"
        )));
    }
    test_each(&modelled, |name| {
        let mut cargo = workspace.cargo();
        cargo
            .args(["test", "--locked", "-p", name, "--features", LOOM])
            .args(["--lib", LOOM]);
        cargo
    })
}

/// Names of the members that have a feature.
fn members_with(workspace: &Workspace, feature: &str) -> anyhow::Result<Vec<String>> {
    let (tree, _) = Tree::new(workspace.sources()?);
    let has_it = |member: &&Member| {
        let features = member.manifest.get("features");
        features.is_some_and(|features| features.get(feature).is_some())
    };
    let members = tree.members.iter().filter(has_it);
    Ok(members.map(|member| member.name.clone()).collect())
}

/// Runs the tests of the memory crates with an instrumented build of them and all
/// they link. It stands in a target directory of its own, since the flags differ.
fn asan(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let host = rustc_says(workspace, &["-vV"])?;
    let host = host
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc names no host")?;
    if !SANITIZER_TARGETS.contains(&host) {
        return Ok(Outcome::Skipped(format!("no sanitizer build for {host}")));
    }
    let libraries = rustc_says(workspace, &["--print", "target-libdir"])?;
    let runtime = Path::new(libraries.trim()).join("librustc-stable_rt.asan.a");
    if !runtime.is_file() {
        return Ok(Outcome::Skipped(
            "the toolchain has no sanitizer runtime".to_owned(),
        ));
    }
    test_each(&SANITIZED, |name| {
        let mut cargo = workspace.cargo();
        cargo
            .args(["test", "--locked", "-p", name, "--tests"])
            .args(["--target", host, "--target-dir", "target/asan"])
            // The flag is there on stable compilers, behind this door.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("ASAN_OPTIONS", SANITIZER_OPTIONS);
        cargo
    })
}

/// Checks what needs no network: advisories have a database to fetch.
fn deny(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let version = workspace
        .cargo()
        .args(["deny", "--version"])
        .stdin(Stdio::null())
        .output()
        .context("starting cargo")?;
    if !version.status.success() {
        return Ok(Outcome::Skipped("cargo-deny is not installed".to_owned()));
    }
    succeed(
        workspace
            .cargo()
            .args(["deny", "--locked", "check", "bans", "licenses", "sources"]),
    )
}

/// What rustc prints for `arguments`.
fn rustc_says(workspace: &Workspace, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(arguments)
        .current_dir(workspace.root())
        .output()
        .context("starting rustc")?;
    if !output.status.success() {
        bail!("rustc {} failed", arguments.join(" "));
    }
    String::from_utf8(output.stdout).context("rustc printed no text")
}

/// Runs `command` to its end; passed if it exits with zero.
fn succeed(command: &mut Command) -> anyhow::Result<Outcome> {
    announce(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    Ok(if status.success() {
        Outcome::Passed
    } else {
        Outcome::Failed(status.to_string())
    })
}

/// Runs one `cargo test` for each package; passed if each ran tests and none failed.
fn test_each(names: &[&str], command: impl Fn(&str) -> Command) -> anyhow::Result<Outcome> {
    for name in names {
        if let Outcome::Failed(reason) = run_tests(&mut command(name))? {
            return Ok(Outcome::Failed(format!("{name}: {reason}")));
        }
    }
    Ok(Outcome::Passed)
}

/// Runs a `cargo test`, shows what it prints, and refuses a run without a test: a
/// filter that matches nothing exits with zero too.
fn run_tests(command: &mut Command) -> anyhow::Result<Outcome> {
    announce(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    let output = child.stdout.take().context("the output is piped")?;
    let mut tests = 0_u64;
    for line in BufReader::new(output).lines() {
        let line = line.context("reading what the tests print")?;
        println!("{line}");
        tests += tests_announced(&line);
    }
    let status = child.wait().context("waiting for the tests")?;
    Ok(if !status.success() {
        Outcome::Failed(status.to_string())
    } else if tests == 0 {
        Outcome::Failed("not one test ran".to_owned())
    } else {
        Outcome::Passed
    })
}

/// The count in `running 12 tests`; zero in any other line.
fn tests_announced(line: &str) -> u64 {
    let count = line.strip_prefix("running ").and_then(|rest| {
        rest.strip_suffix(" tests")
            .or_else(|| rest.strip_suffix(" test"))
    });
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Prints a command so that it can be run again by hand.
fn announce(command: &Command) {
    let mut line = String::from("   ");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            line.push_str(&format!(" {}={:?}", name.display(), value));
        }
    }
    line.push_str(" cargo");
    for argument in command.get_args() {
        line.push_str(&format!(" {}", argument.display()));
    }
    println!("{line}");
    // The command writes to the same terminal past this program's buffer.
    let _ = std::io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_announcements_count_as_tests() {
        assert_eq!(tests_announced("running 12 tests"), 12);
        assert_eq!(tests_announced("running 1 test"), 1);
        assert_eq!(tests_announced("running 0 tests"), 0);
        assert_eq!(tests_announced("running all tests"), 0);
        assert_eq!(tests_announced("test result: ok. 12 passed"), 0);
    }

    #[test]
    fn every_step_runs_by_default() {
        assert_eq!(Step::value_variants(), Step::ALL);
    }

    #[test]
    fn steps_are_called_as_they_are_printed() {
        for step in Step::ALL {
            assert_eq!(Step::from_str(&step.to_string(), false), Ok(step));
        }
    }
}
