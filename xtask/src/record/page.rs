//! `bench/README.md`, written from the records, and their plots.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::file::{Case, Record, Spread};
use super::{FOLDER, is_record, plot};
use crate::tidy::SourceFile;

/// The page, in the repository.
pub(crate) const PAGE: &str = "bench/README.md";

/// Names of ablations' records begin so.
const ABLATE: &str = "ablate-";

const HEAD: &str = "\
# Measurements

Written by `cargo xtask record page` from [records](records); do not edit. Each record has
its claim, commit, command, machine and all samples: `cargo xtask record show MACHINE/NAME`
prints one.
";

const SWITCHES: &str = "\
How many times as good a setting is as the one it stands beside, with a 95 % interval;
`control` is the same setting beside itself. A verdict other than *no effect* needs an
interval that does not hold 1, and where that of the control does not either, a difference
beyond it. `processor` is the same ratio of the time of all processors, in which what others
do on the machine shows less; it judges nothing. [docs/ablations.md](../docs/ablations.md) explains them.
";

/// Every page and plot with its path, from the records among files. Records that cannot be
/// read are left out: they are findings of their own.
pub(crate) fn generated(files: &[SourceFile]) -> BTreeMap<String, String> {
    let mut machines = BTreeMap::<&str, Vec<Record>>::new();
    for file in files.iter().filter(|file| is_record(&file.path)) {
        let place = file.path.strip_prefix(FOLDER).unwrap_or_default();
        if let (Some((machine, _)), Ok(record)) = (place.split_once('/'), Record::parse(&file.text))
        {
            machines.entry(machine).or_default().push(record);
        }
    }
    let mut generated = BTreeMap::new();
    if machines.is_empty() {
        return generated;
    }
    let mut page = HEAD.to_owned();
    for (machine, records) in &mut machines {
        records.sort_by(|left, right| left.name.cmp(&right.name));
        section(&mut page, machine, records);
        for record in records.iter() {
            if let Some(svg) = plot::svg(record) {
                generated.insert(plot::path(machine, &record.name), svg);
            }
        }
    }
    generated.insert(PAGE.to_owned(), page);
    generated
}

fn section(page: &mut String, machine: &str, records: &[Record]) {
    let of = &records[0].machine;
    let gpu = records
        .iter()
        .find_map(|record| record.machine.gpu.as_deref());
    let gpu = gpu.map(|gpu| format!("{gpu}, ")).unwrap_or_default();
    let _ = writeln!(
        page,
        "\n## {machine}\n\n{gpu}{} cores of {}, {} GiB.",
        of.cores, of.cpu, of.ram_gib
    );
    let (ablations, others): (Vec<&Record>, Vec<&Record>) = records
        .iter()
        .partition(|record| record.name.starts_with(ABLATE));
    if !ablations.is_empty() {
        let _ = writeln!(page, "\n### Switches\n\n{SWITCHES}");
        page.push_str("| record | case | ratio | control | verdict | processor |\n|---|---|---|---|---|---|\n");
        for record in ablations {
            for case in &record.cases {
                let _ = writeln!(
                    page,
                    "| {} | {} | {} | {} | {} | {} |",
                    linked(machine, record),
                    escaped(&case.case),
                    case.ratio.map_or_else(String::new, spread),
                    plot::named(case, "control").map_or_else(String::new, spread),
                    verdict(case),
                    plot::named(case, "processor_ratio").map_or_else(String::new, spread)
                );
            }
        }
    }
    if !others.is_empty() {
        page.push_str("\n### Records\n\n| record | day | cases | claim |\n|---|---|---|---|\n");
        for record in others {
            let failed = record.cases.iter().filter(|case| !case.verified).count();
            let failed = match failed {
                0 => String::new(),
                count => format!(", {count} not verified"),
            };
            let _ = writeln!(
                page,
                "| {} | {} | {}{failed} | {} |",
                linked(machine, record),
                record.date,
                record.cases.len(),
                escaped(&record.claim)
            );
        }
    }
}

/// The record's name, with its file and its plot.
fn linked(machine: &str, record: &Record) -> String {
    let name = &record.name;
    let file = format!("[{name}](records/{machine}/{name}.json)");
    match plot::svg(record) {
        Some(_) => format!("{file} ([plot](plots/{machine}/{name}.svg))"),
        None => file,
    }
}

fn verdict(case: &Case) -> String {
    if !case.verified {
        return "not verified".to_owned();
    }
    let verdict = case.more.get("verdict").and_then(Value::as_str);
    verdict.unwrap_or_default().to_owned()
}

fn spread(spread: Spread) -> String {
    let Spread { median, low, high } = spread;
    format!("{median:.3} [{low:.3}, {high:.3}]")
}

/// A bar would end the cell.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::super::tests::WELL;
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn records_are_a_page_with_their_plots() {
        let ablation = WELL.replace("peer-prove", "ablate-slots").replace(
            "\"verdict\": \"win\"",
            "\"verdict\": \"win\", \"control\": {\"median\": 1.0, \"low\": 0.98, \"high\": 1.03}",
        );
        let files = [
            file("bench/records/h200-16c/peer-prove.json", WELL),
            file("bench/records/h200-16c/ablate-slots.json", &ablation),
            file("bench/records/h200-16c/broken.json", "{}"),
            file("README.md", "nothing"),
        ];
        let generated = generated(&files);
        let paths: Vec<&String> = generated.keys().collect();
        assert_eq!(
            paths,
            [
                PAGE,
                "bench/plots/h200-16c/ablate-slots.svg",
                "bench/plots/h200-16c/peer-prove.svg"
            ]
        );
        insta::assert_snapshot!(generated[PAGE]);
        insta::assert_snapshot!(generated["bench/plots/h200-16c/ablate-slots.svg"]);
    }

    #[test]
    fn without_records_there_is_no_page() {
        assert!(generated(&[file("README.md", "nothing")]).is_empty());
    }
}
