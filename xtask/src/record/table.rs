//! A record as people read it.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

use super::file::{Case, Machine, Record, Series, Spread};

/// A column is at least this wide, so that short records line up too.
const NAME_WIDTH: usize = 24;
/// Width of a line of phases.
const LINE_WIDTH: usize = 96;

/// One line for a list.
pub(super) fn line(name: &str, record: &Record) -> String {
    let failed = record.cases.iter().filter(|case| !case.verified).count();
    let failed = match failed {
        0 => String::new(),
        count => format!(", {count} not verified"),
    };
    let cases = record.cases.len();
    let count = if cases == 1 {
        "1 case".to_owned()
    } else {
        format!("{cases} cases")
    };
    format!(
        "{name:<NAME_WIDTH$}  {}  {count}{failed}: {}",
        record.date, record.claim
    )
}

/// The whole record.
pub(super) fn whole(name: &str, record: &Record) -> String {
    let mut text = format!("{name}\n");
    let mut field = |field: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{field:<8}  {value}");
        }
    };
    field("claim", &record.claim);
    field("note", record.note.as_deref().unwrap_or_default());
    field("command", &record.command);
    let dirty = if record.dirty {
        " with changes beside it"
    } else {
        ""
    };
    let commit: String = record.commit.chars().take(12).collect();
    field("commit", &format!("{commit}{dirty}, {}", record.date));
    field("machine", &machine(&record.machine));
    let tuning = record.tuning.iter();
    let tuning: Vec<String> = tuning
        .map(|(key, value)| format!("{key} = {}", plain(value)))
        .collect();
    field("tuning", &tuning.join(", "));
    let peers: BTreeSet<&str> = record.cases.iter().filter_map(peer_name).collect();
    let peers: Vec<&str> = peers.into_iter().collect();
    field("peer", &peers.join(", "));
    text.push('\n');
    text.push_str(&cases(&record.cases, peers.len() > 1));
    text
}

fn machine(machine: &Machine) -> String {
    let mut parts = Vec::new();
    if let Some(gpu) = &machine.gpu {
        parts.push(gpu.clone());
    }
    if let Some(driver) = &machine.driver {
        parts.push(format!("driver {driver}"));
    }
    if let Some(toolkit) = &machine.toolkit {
        parts.push(format!("toolkit {toolkit}"));
    }
    if !machine.archs.is_empty() {
        parts.push(machine.archs.join(" "));
    }
    parts.push(format!(
        "{} cores, {} GiB, {}",
        machine.cores, machine.ram_gib, machine.cpu
    ));
    parts.join(", ")
}

/// A row a case, and below it what it has beside the comparison.
fn cases(cases: &[Case], names_peers: bool) -> String {
    let mut rows = vec![["case", "ours", "peer", "ratio"].map(str::to_owned)];
    rows.extend(cases.iter().map(row));
    let mut widths = [0; 4];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(widths).filter(|(_, width)| *width > 0);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        if let Some(case) = index.checked_sub(1).map(|index| &cases[index]) {
            for line in details(case, names_peers) {
                let _ = writeln!(text, "    {line}");
            }
        }
    }
    text
}

fn row(case: &Case) -> [String; 4] {
    let name = case.case.clone();
    if !case.verified {
        return [
            name,
            "not verified".to_owned(),
            String::new(),
            String::new(),
        ];
    }
    let peer = case.peer.as_ref().map(|peer| &peer.series);
    [
        name,
        case.ours.as_ref().map_or_else(String::new, series),
        peer.map_or_else(String::new, series),
        case.ratio.as_ref().map_or_else(String::new, spread),
    ]
}

fn details(case: &Case, names_peers: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(name) = peer_name(case).filter(|_| names_peers) {
        lines.push(format!("peer: {name}"));
    }
    let phases = case.phases_ms.iter();
    let phases = phases.map(|(name, value)| format!("{name} {}", figure(*value)));
    lines.extend(wrapped("phases, ms: ", phases));
    let peaks = case.peak.iter();
    let peaks =
        peaks.map(|(name, bytes)| format!("{} {}", name.trim_end_matches("_bytes"), size(*bytes)));
    lines.extend(wrapped("peak: ", peaks));
    let more = case.more.iter().filter(|(_, value)| !value.is_null());
    lines.extend(wrapped(
        "",
        more.map(|(name, value)| format!("{name} {}", plain(value))),
    ));
    lines
}

/// Items after a title, cut into lines.
fn wrapped(title: &str, items: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.len() + item.len() < LINE_WIDTH => {
                line.push_str(", ");
                line.push_str(&item);
            }
            Some(line) => {
                line.push(',');
                lines.push(format!("{:width$}{item}", "", width = title.len()));
            }
            None => lines.push(format!("{title}{item}")),
        }
    }
    lines
}

fn peer_name(case: &Case) -> Option<&str> {
    case.peer.as_ref().map(|peer| peer.name.as_str())
}

fn series(series: &Series) -> String {
    format!("{} {}", spread(&series.spread), series.unit)
}

fn spread(spread: &Spread) -> String {
    let Spread { median, low, high } = *spread;
    format!("{} [{}, {}]", figure(median), figure(low), figure(high))
}

/// Three digits or four, which is what such a figure is worth.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib >= 1024.0 {
        format!("{} GiB", figure(mib / 1024.0))
    } else {
        format!("{} MiB", figure(mib))
    }
}

/// A text without its quotes.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
