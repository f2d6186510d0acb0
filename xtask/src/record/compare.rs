//! Two records of one measurement, case by case: another day, commit or machine.

use crate::ablate::stats::unpaired;
use crate::record::Spread;

use super::file::{Record, Series};

/// Prints what changed from `before` to `after`. The two were not measured by turns, so an
/// interval says how far samples of each scatter, and not what changed between the days.
pub(super) fn table(before: &Record, after: &Record) -> String {
    let mut text = String::new();
    if before.name != after.name {
        text += &format!("note: {} is not {}\n", before.name, after.name);
    }
    if before.machine != after.machine {
        text += "note: the machines differ\n";
    }
    let mut rows = vec![["case", "before", "after", "times as good", ""].map(str::to_owned)];
    for case in &after.cases {
        let old = before.cases.iter().find(|old| old.case == case.case);
        let old = old.and_then(|old| old.ours.as_ref());
        rows.push(row(&case.case, old, case.ours.as_ref()));
    }
    for case in &before.cases {
        if !after.cases.iter().any(|new| new.case == case.case) {
            rows.push(row(&case.case, case.ours.as_ref(), None));
        }
    }
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn row(case: &str, before: Option<&Series>, after: Option<&Series>) -> [String; 5] {
    let shown = |series: Option<&Series>| {
        let figure = |series: &Series| format!("{:.3} {}", series.spread.median, series.unit);
        series.map_or_else(|| "none".to_owned(), figure)
    };
    let compared = before
        .zip(after)
        .filter(|(before, after)| before.unit == after.unit);
    let (ratio, verdict) = match compared {
        None => (String::new(), String::new()),
        Some((before, after)) => {
            let ratio = ratio(before, after);
            let verdict = match ratio {
                Spread { low, .. } if low > 1.0 => "better",
                Spread { high, .. } if high < 1.0 => "worse",
                _ => "the same",
            };
            let Spread { median, low, high } = ratio;
            (
                format!("{median:.3} [{low:.3}, {high:.3}]"),
                verdict.to_owned(),
            )
        }
    };
    [case.to_owned(), shown(before), shown(after), ratio, verdict]
}

/// Above 1 where after is better: less, unless it is a rate.
fn ratio(before: &Series, after: &Series) -> Spread {
    if after.unit.ends_with("/s") {
        unpaired(&after.samples, &before.samples)
    } else {
        unpaired(&before.samples, &after.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::WELL;
    use super::*;

    #[test]
    fn what_changed_is_told_case_by_case() {
        let before = Record::parse(WELL).expect("a record");
        let text = WELL
            .replace("1234.5", "634.5")
            .replace("1300.0", "640.0")
            .replace("1200.0", "630.0")
            .replace("2^26", "2^28")
            .replace("\"cores\": 16", "\"cores\": 8");
        let after = Record::parse(&text).expect("a record");
        insta::assert_snapshot!(table(&before, &after));
        let same = table(&before, &before);
        assert!(same.contains("the same"), "{same}");
    }

    #[test]
    fn of_a_rate_more_is_better() {
        let text = WELL.replace("\"unit\": \"ms\"", "\"unit\": \"GB/s\"");
        let before = Record::parse(&text).expect("a record");
        let text = text.replace("[1300.0, 1234.5, 1200.0]", "[130.0, 123.45, 120.0]");
        let after = Record::parse(&text).expect("a record");
        let told = table(&before, &after);
        assert!(told.contains("worse"), "{told}");
    }
}
