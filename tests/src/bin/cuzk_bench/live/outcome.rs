//! Rounds as a case of the record, as a line and as a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use cuzk_core::timeline::{Idle, Lack, Limit};
use cuzk_tests::record::{Case, Series};
use cuzk_tests::stats::{median, p95};
use serde_json::Value;

use super::Measured;
use super::figures::{Round, gaps};

/// What limits a setting: the lack of all rounds together.
fn limit(rounds: &[Round]) -> Limit {
    Limit::of(rounds.iter().flat_map(|round| &round.idle))
}

fn median_of(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    median(&rounds.iter().map(of).collect::<Vec<f64>>())
}

fn all(rounds: &[Round], of: impl Fn(&Round) -> &Vec<f64>) -> Vec<f64> {
    rounds.iter().flat_map(|round| of(round).clone()).collect()
}

/// To three digits behind the point.
fn rounded(value: f64) -> Value {
    Value::from((value * 1e3).round() / 1e3)
}

fn mean_by_name<K: ToString>(rounds: &[Round], of: impl Fn(&Round) -> &BTreeMap<K, f64>) -> Sums {
    let mut sums = Sums::new();
    for (name, ms) in rounds.iter().flat_map(of) {
        *sums.entry(name.to_string()).or_default() += ms;
    }
    let count = rounds.len() as f64;
    sums.values_mut()
        .for_each(|ms| *ms = (*ms / count * 1e3).round() / 1e3);
    sums
}

type Sums = BTreeMap<String, f64>;

/// The case of a setting that has had a round, beside so many threads.
pub(crate) fn case(name: String, rounds: &[Round], threads: usize) -> Case {
    let walls = rounds.iter().map(|round| round.wall_s).collect();
    let mut case = Case::alone(name, Series::new(walls, "s"));
    let parts = rounds.first().map_or(0, |round| round.parts);
    case.phases_ms = mean_by_name(rounds, |round| &round.phases_ms);
    let most = |of: fn(&Round) -> u64| rounds.iter().map(of).max().unwrap_or(0);
    let peaks = [
        ("counted_bytes", most(|round| round.peak.counted_bytes)),
        (
            "page_locked_bytes",
            most(|round| round.peak.page_locked_bytes),
        ),
        ("device_bytes", most(|round| round.peak.device_bytes)),
    ];
    case.peak = peaks.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    let upload_bytes = most(|round| round.upload_bytes);
    case.pcie_bytes = Some(upload_bytes).filter(|bytes| *bytes > 0);
    let upload_ms = median_of(rounds, |round| round.upload_ms);
    let (part_ms, latency_s) = (
        all(rounds, |round| &round.part_ms),
        all(rounds, |round| &round.latency_s),
    );
    let last = rounds.last();
    let words = |of: fn(&Round) -> &str| Value::from(last.map_or("", of));
    case.more = BTreeMap::from([
        ("limited_by", limit(rounds).to_string().into()),
        ("gaps", gaps(rounds)),
        (
            "gaps_by_lane_ms",
            serde_json::json!(mean_by_name(rounds, |round| &round.reasons_ms)),
        ),
        (
            "longest_gaps",
            last.map_or(&[][..], |round| &round.longest).into(),
        ),
        ("jobs", last.map_or(0, |round| round.latency_s.len()).into()),
        ("parts", parts.into()),
        ("threads", threads.into()),
        (
            "parts_per_s",
            rounded(median_of(rounds, Round::parts_per_s)),
        ),
        ("busy", rounded(median_of(rounds, Round::busy))),
        (
            "busy_rounds",
            rounds.iter().map(|round| rounded(round.busy())).collect(),
        ),
        (
            "longest_gap_ms",
            rounded(rounds.iter().map(Round::longest_gap_ms).fold(0.0, f64::max)),
        ),
        (
            "all_threads_busy",
            rounded(median_of(rounds, Round::all_threads)),
        ),
        (
            "threads_at_work",
            rounded(median_of(rounds, Round::threads_at_work)),
        ),
        (
            "latency_s",
            serde_json::json!({
                "median": rounded(median(&latency_s)),
                "max": rounded(latency_s.iter().copied().fold(0.0, f64::max)),
            }),
        ),
        (
            "uploads_overlapped",
            rounded(median_of(rounds, |round| round.uploads_overlapped)),
        ),
        ("start_s", rounded(median_of(rounds, |round| round.start_s))),
        (
            "retries",
            rounds
                .iter()
                .map(|round| round.ways.retries)
                .sum::<usize>()
                .into(),
        ),
        ("backend", words(|round| &round.ways.backend)),
        ("placement", words(|round| &round.ways.placement)),
        ("synthesis", words(|round| &round.ways.synthesis)),
        ("key_tier", words(|round| &round.ways.tier)),
    ]);
    // One part alone is followed by none.
    if !part_ms.is_empty() {
        let (median, p95) = (median(&part_ms), p95(&part_ms));
        case.more.insert("part_ms_median", rounded(median));
        case.more.insert("part_ms_p95", rounded(p95));
        if median > 0.0 {
            case.more.insert("p95_over_median", rounded(p95 / median));
        }
    }
    if upload_ms > 0.0 {
        let rate = rounded(upload_bytes as f64 / 1e6 / upload_ms);
        case.more.insert("upload_gb_per_s", rate);
    }
    case
}

/// A round in a line.
pub(crate) fn line(round: &Round) -> String {
    format!(
        "{:.2} s for {} parts, {:.2} a second, device busy {:.1} %, all threads {:.1} %, limited \
         by {} ({:.1} s to start and warm up)",
        round.wall_s,
        round.parts,
        round.parts_per_s(),
        100.0 * round.busy(),
        100.0 * round.all_threads(),
        Limit::of(&round.idle),
        round.start_s
    )
}

/// All settings, a row each: times, and of a mean round what the device lacked.
pub(super) fn table(measured: &[Measured]) -> String {
    let heads = ["wall s", "parts/s", "busy %", "threads %", "limited by"];
    let gaps = ["idle ms"].into_iter().chain(Lack::ALL.map(Lack::name));
    let heads = ["setting"].into_iter().chain(heads).chain(gaps);
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).collect()];
    for one in measured {
        let name = one.setting.name();
        rows.push(match (&one.failed, one.rounds.as_slice()) {
            (Some(error), _) => vec![name, format!("failed: {error}")],
            (None, []) => vec![name, "no round".to_owned()],
            (None, rounds) => row(name, rounds),
        });
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        // What failed is told in a line that is as long as it is.
        let rows = rows.iter().filter(|row| row.len() == columns);
        let widths = rows.map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

fn row(name: String, rounds: &[Round]) -> Vec<String> {
    let mut cells = vec![
        name,
        format!("{:.2}", median_of(rounds, |round| round.wall_s)),
        format!("{:.2}", median_of(rounds, Round::parts_per_s)),
        format!("{:.1}", 100.0 * median_of(rounds, Round::busy)),
        format!("{:.1}", 100.0 * median_of(rounds, Round::all_threads)),
        limit(rounds).to_string(),
    ];
    let mean = |of: &dyn Fn(&Idle) -> f64| {
        let units = rounds.iter().flat_map(|round| &round.idle);
        let sum: f64 = units.map(of).sum();
        format!("{:.0}", sum / rounds.len() as f64)
    };
    cells.push(mean(&|unit| unit.wall_ms() - unit.busy_ms));
    cells.extend(Lack::ALL.map(|lack| mean(&|unit| unit.lacking_ms(lack))));
    cells
}
