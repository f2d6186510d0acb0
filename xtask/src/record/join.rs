//! Records of one measurement that was made in several runs, as one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use super::file::Record;

/// Joins files.
pub(super) fn run(paths: &[PathBuf], out: &Path) -> anyhow::Result<bool> {
    let mut records = Vec::new();
    for path in paths {
        let place = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(place)?;
        records.push(Record::parse(&text).with_context(place)?);
    }
    let joined = join(records)?;
    std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let path = out.join(format!("{}.json", joined.name));
    let text = serde_json::to_string_pretty(&joined)? + "\n";
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(true)
}

/// All cases in one record.
///
/// # Errors
/// If the records differ in anything but command, cases and the values of switches that
/// were tested, or a case is in two of them.
fn join(records: Vec<Record>) -> anyhow::Result<Record> {
    let mut records = records.into_iter();
    let mut joined = records.next().context("no record")?;
    for mut next in records {
        let (command, date) = (next.command, next.date);
        let cases = std::mem::take(&mut next.cases);
        let cases_before = std::mem::take(&mut joined.cases);
        list_both(&mut joined.tuning, &mut next.tuning);
        let context = Record {
            command: joined.command.clone(),
            date: joined.date.clone(),
            ..next
        };
        if context != joined {
            bail!("{command:?} was run in another context: {context:?} is not {joined:?}");
        }
        joined.cases = cases_before;
        // The day that it was complete.
        joined.date = joined.date.max(date);
        if joined.command != command {
            joined.command += " && ";
            joined.command += &command;
        }
        for case in cases {
            if joined.cases.iter().any(|before| before.case == case.case) {
                bail!("{:?} is in two records", case.case);
            }
            joined.cases.push(case);
        }
    }
    Ok(joined)
}

/// Gives both the values of either, of switches that both list as the measurement lists
/// several: `1, 2, 4`.
fn list_both(left: &mut BTreeMap<String, Value>, right: &mut BTreeMap<String, Value>) {
    for (switch, values) in left {
        let (Value::String(values), Some(Value::String(more))) = (values, right.get_mut(switch))
        else {
            continue;
        };
        for value in more.split(", ") {
            if !values.split(", ").any(|before| before == value) {
                values.push_str(", ");
                values.push_str(value);
            }
        }
        more.clone_from(values);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::WELL;
    use super::*;

    fn record(from: &str, to: &str) -> Record {
        let text = WELL.replace(from, to);
        Record::parse(&text).expect("a record")
    }

    #[test]
    fn cases_and_commands_come_together_and_nothing_else_changes() {
        let first = record("", "");
        let mut second = record("2^2", "2^1");
        second.command = "cuzk-bench peer-prove --small --out DIR".to_owned();
        second.date = "2026-12-02".to_owned();
        let tier = Value::from("file, resident");
        second.tuning.insert("tuning.key_tier".to_owned(), tier);
        let joined = join(vec![first, second]).expect("the same context");
        let cases: Vec<&str> = joined.cases.iter().map(|case| &*case.case).collect();
        let expected = [
            "2^24, 11 % full scalars",
            "2^26",
            "2^14, 11 % full scalars",
            "2^16",
        ];
        assert_eq!(cases, expected);
        assert_eq!(
            joined.command,
            "cuzk-bench peer-prove --out DIR && cuzk-bench peer-prove --small --out DIR"
        );
        assert_eq!(joined.date, "2026-12-02");
        assert_eq!(joined.tuning["tuning.key_tier"], "resident, file");
        let text = serde_json::to_string(&joined).expect("what was read can be written");
        assert_eq!(Record::parse(&text).expect("a record"), joined);
        // Of one alone nothing is lost.
        let written = serde_json::to_value(join(vec![record("", "")]).expect("one")).expect("JSON");
        assert_eq!(
            written,
            serde_json::from_str::<serde_json::Value>(WELL).expect("JSON")
        );
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let refused = |from: &str, to: &str| {
            let second = record("2^2", "2^1");
            let text = serde_json::to_string(&second)
                .expect("JSON")
                .replace(from, to);
            let second = Record::parse(&text).expect("a record");
            join(vec![record("", ""), second])
                .expect_err(from)
                .to_string()
        };
        for (from, to) in [
            ("0123456789abcdef", "1123456789abcdef"),
            ("\"dirty\":false", "\"dirty\":true"),
            ("\"cores\":16", "\"cores\":15"),
            ("ours is faster", "ours is slower"),
            ("\"tuning.slots\":2", "\"tuning.slots\":3"),
            ("tuning.key_tier", "tuning.other"),
        ] {
            let error = refused(from, to);
            assert!(error.contains("another context"), "{error}");
        }
        let error = refused("2^16", "2^26");
        assert_eq!(error, "\"2^26\" is in two records");
    }
}
