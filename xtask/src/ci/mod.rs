//! `cargo xtask ci`: the whole gate, step by step.
//!
//! Every step runs even if one before it failed, so that one run shows all there
//! is to mend; the table at the end names what failed, and with what was skipped
//! it says why. Steps come cheapest first.

mod steps;

use std::time::{Duration, Instant};

use crate::workspace::Workspace;

use self::steps::{Outcome, Step};

/// Arguments of the gate.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run this step only; may be given more than once.
    #[arg(long = "step", value_name = "NAME", value_enum)]
    steps: Vec<Step>,
}

/// A step that ran, and how it went.
struct Row {
    step: Step,
    outcome: Outcome,
    wall: Duration,
}

/// Runs the steps asked for, or all, and says whether none failed.
///
/// # Errors
/// Never by itself: what goes wrong inside a step is that step's failure.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<bool> {
    let asked = if arguments.steps.is_empty() {
        Step::ALL.to_vec()
    } else {
        arguments.steps.clone()
    };
    let rows: Vec<Row> = asked
        .into_iter()
        .map(|step| run_step(workspace, step))
        .collect();
    println!("\n{}", table(&rows));
    Ok(rows
        .iter()
        .all(|row| !matches!(row.outcome, Outcome::Failed(_))))
}

fn run_step(workspace: &Workspace, step: Step) -> Row {
    println!("\n==> {step}");
    let begin = Instant::now();
    let outcome = step
        .run(workspace)
        .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    let wall = begin.elapsed();
    println!("<== {step}: {outcome} in {:.1} s", wall.as_secs_f64());
    Row {
        step,
        outcome,
        wall,
    }
}

/// One line a step: its name, its time, how it went.
fn table(rows: &[Row]) -> String {
    let mut text = format!("{:<10} {:>8}  result\n", "step", "time");
    for row in rows {
        let seconds = row.wall.as_secs_f64();
        text.push_str(&format!(
            "{:<10} {seconds:>6.1} s  {}\n",
            row.step.to_string(),
            row.outcome
        ));
    }
    let total: Duration = rows.iter().map(|row| row.wall).sum();
    text.push_str(&format!("{:<10} {:>6.1} s", "all", total.as_secs_f64()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_step_and_the_sum() {
        let row = |step, outcome, seconds| Row {
            step,
            outcome,
            wall: Duration::from_millis(seconds),
        };
        let rows = [
            row(Step::Fmt, Outcome::Passed, 1_250),
            row(Step::Deny, Outcome::Skipped("not there".to_owned()), 50),
            row(Step::Tidy, Outcome::Failed("2 rules".to_owned()), 100),
        ];
        let expected = "\
step           time  result
fmt           1.2 s  passed
deny          0.1 s  skipped: not there
tidy          0.1 s  FAILED: 2 rules
all           1.4 s";
        assert_eq!(table(&rows), expected);
    }
}
