//! `cargo xtask bisect-perf A B`: two commits beside each other, by the method of ablations:
//! both programs are there at the same time and measure by turns, the first one twice, once
//! as a control.
//!
//! Both must have `cuzk-bench compare`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::ablate::Set;
use crate::ablate::stats::{Pair, ratio};
use crate::workspace::Workspace;

/// Where commits are checked out and built, in the folder of builds.
const FOLDER: &str = "target/bisect";

/// Arguments of `cargo xtask bisect-perf`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The commit that is compared with.
    before: String,
    /// The commit that is tested.
    after: String,
    /// What is measured, as `cuzk-bench compare` calls it.
    #[arg(long, default_value = "synth")]
    workload: String,
    /// The circuit.
    #[arg(long, value_name = "ID", default_value = "wpost-2k")]
    circuit: String,
    /// Where proofs are made: cpu or gpu; for gpu give built programs.
    #[arg(long, default_value = "cpu")]
    on: String,
    /// Switches of both.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    switches: Vec<String>,
    /// What is compared.
    #[arg(long, default_value = "wall_ms")]
    metric: String,
    /// Rounds.
    #[arg(long, default_value_t = 24)]
    pairs: usize,
    /// Built programs of the two commits, in place of building them.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    programs: Vec<PathBuf>,
}

/// Builds, measures and prints; whether the later commit is not slower.
///
/// # Errors
/// If a commit does not build, or a run fails or does not verify.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<bool> {
    ensure!(arguments.pairs > 0, "no rounds");
    let folder = workspace.root().join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let [before, after] = match arguments.programs.as_slice() {
        [before, after] => [before.clone(), after.clone()],
        _ => [
            build(workspace, &folder, &arguments.before)?,
            build(workspace, &folder, &arguments.after)?,
        ],
    };
    let mut runners = Vec::new();
    for (name, program) in [("before", &before), ("after", &after), ("control", &before)] {
        runners.push(Runner::start(&folder, arguments, name, program)?);
    }
    let mut orders = Vec::new();
    for round in 0..arguments.pairs {
        let order = order(round);
        for at in order {
            runners[at].round(round)?;
        }
        orders.push(order);
    }
    let mut sets = Vec::new();
    for runner in runners {
        sets.push(runner.end()?);
    }
    let compared = |on: usize| {
        let pairs = pairs(&sets[on], &sets[0], &orders, [on, 0], &arguments.metric);
        pairs.map(|pairs| ratio(&pairs))
    };
    let (found, control) = (compared(1)?, compared(2)?);
    for (name, ratio) in [("after", found), ("control", control)] {
        println!(
            "{name:<8} {:.4} [{:.4}, {:.4}] times as fast as {}",
            ratio.median, ratio.low, ratio.high, arguments.before
        );
    }
    let verdict = crate::ablate::verdict(found, control);
    println!("{}, {}: {verdict}", arguments.circuit, arguments.metric);
    Ok(verdict != "loss")
}

/// Checks a commit out beside this one and builds its program.
fn build(workspace: &Workspace, folder: &Path, commit: &str) -> anyhow::Result<PathBuf> {
    let output = Command::new("git")
        .args(["rev-parse", "--verify", &format!("{commit}^{{commit}}")])
        .current_dir(workspace.root())
        .output()?;
    ensure!(output.status.success(), "{commit} is no commit");
    let hash = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let program = folder.join(format!("cuzk-bench-{hash}"));
    if program.exists() {
        return Ok(program);
    }
    let tree = folder.join(&hash);
    if !tree.exists() {
        let status = Command::new("git")
            // Git remembers trees whose folder was deleted with other builds, and refuses.
            .args(["worktree", "add", "--force", "--detach"])
            .arg(&tree)
            .arg(&hash)
            .current_dir(workspace.root())
            .status()?;
        ensure!(status.success(), "{commit} cannot be checked out");
    }
    // One folder of builds for all, so that dependencies are compiled once.
    let target = folder.join("target");
    let status = workspace
        .cargo()
        .args(["build", "-p", "cuzk-tests", "--bin", "cuzk-bench"])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(&tree)
        .status()?;
    ensure!(status.success(), "{commit} does not build");
    std::fs::copy(target.join("debug/cuzk-bench"), &program)?;
    let removed = Command::new("git")
        .args(["worktree", "remove", "--force"])
        .arg(&tree)
        .current_dir(workspace.root())
        .status()?;
    ensure!(removed.success(), "{} cannot be removed", tree.display());
    Ok(program)
}

/// The programs in the order of a round: there and back, each as often before every other
/// as after it.
fn order(round: usize) -> [usize; 3] {
    let first = round / 2 % 3;
    let mut order = [0, 1, 2].map(|at| (at + first) % 3);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Rounds of two programs.
fn pairs(
    on: &Set,
    off: &Set,
    orders: &[[usize; 3]],
    places: [usize; 2],
    metric: &str,
) -> anyhow::Result<Vec<Pair>> {
    let (on, off) = (on.values("one", metric)?, off.values("one", metric)?);
    ensure!(
        on.len() == orders.len() && off.len() == orders.len(),
        "{} and {} rounds, want {}",
        on.len(),
        off.len(),
        orders.len()
    );
    let rounds = on.into_iter().zip(off).zip(orders);
    let pairs = rounds.map(|((on, off), order)| {
        let at = |place: usize| order.iter().position(|one| *one == place);
        Pair {
            on,
            off,
            is_on_first: at(places[0]) < at(places[1]),
        }
    });
    Ok(pairs.collect())
}

/// A program that measures a round for each line that it is given.
struct Runner {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    samples: PathBuf,
}

impl Runner {
    fn start(
        folder: &Path,
        arguments: &Arguments,
        name: &'static str,
        program: &Path,
    ) -> anyhow::Result<Self> {
        let samples = folder.join(format!("{name}.jsonl"));
        // Rounds of another day have no pairs.
        let _ = std::fs::remove_file(&samples);
        let mut command = Command::new(program);
        command
            .args(["compare", &arguments.workload, "--by-line"])
            .args(["--circuit", &arguments.circuit, "--on", &arguments.on])
            .args(["--setting", "one", "--pairs", &arguments.pairs.to_string()]);
        for switch in &arguments.switches {
            command.args(["--set", switch]);
        }
        command.arg("--keys").arg(folder.join("keys"));
        command.arg("--samples").arg(&samples);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("its output was asked for")?;
        let mut runner = Self {
            name,
            child,
            input,
            output: BufReader::new(output),
            samples,
        };
        // Keys are made and caches warmed one program after the other.
        runner.told("ready")?;
        Ok(runner)
    }

    fn round(&mut self, round: usize) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("it has not ended")?;
        input.write_all(b"\n").with_context(|| self.name)?;
        self.told(&round.to_string())
    }

    /// Waits for a line; what is printed before it is of no interest.
    fn told(&mut self, wanted: &str) -> anyhow::Result<()> {
        let mut line = String::new();
        while line.trim() != wanted {
            line.clear();
            if self.output.read_line(&mut line)? > 0 {
                continue;
            }
            let failed = std::fs::read_to_string(&self.samples).ok();
            let failed = failed.and_then(|text| Set::parse(&text).ok()?.failed);
            bail!(
                "{} ended before it told {wanted}: {}",
                self.name,
                failed.unwrap_or_else(|| "run it alone to see why".to_owned())
            );
        }
        Ok(())
    }

    fn end(mut self) -> anyhow::Result<Set> {
        drop(self.input.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "{}: {status}", self.name);
        Set::parse(&std::fs::read_to_string(&self.samples)?)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.input.take());
        // It has nothing that is worth waiting for; one that ended is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_comes_as_often_before_every_other_as_after_it() {
        for (left, right) in [(0, 1), (0, 2), (1, 2)] {
            let before = (0..6).filter(|round| {
                let order = order(*round);
                let at = |one| order.iter().position(|program| *program == one);
                at(left) < at(right)
            });
            assert_eq!(before.count(), 3, "{left} {right}");
        }
    }
}
