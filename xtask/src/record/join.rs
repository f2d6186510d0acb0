//! Records of one measurement that was made in several runs, as one; and a record of which
//! some cases were measured again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use super::file::Record;

/// Joins files.
pub(super) fn run(paths: &[PathBuf], name: Option<&str>, out: &Path) -> anyhow::Result<bool> {
    let records: anyhow::Result<_> = paths.iter().map(|path| read(path)).collect();
    let mut joined = join(records?)?;
    if let Some(name) = name {
        name.clone_into(&mut joined.name);
    }
    write(&joined, out)
}

/// Puts the cases of a later file in place of those of an earlier one.
pub(super) fn run_renew(before: &Path, after: &Path, out: &Path) -> anyhow::Result<bool> {
    write(&renew(read(before)?, read(after)?)?, out)
}

fn read(path: &Path) -> anyhow::Result<Record> {
    let place = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(place)?;
    Record::parse(&text).with_context(place)
}

fn write(record: &Record, out: &Path) -> anyhow::Result<bool> {
    std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let path = out.join(format!("{}.json", record.name));
    let text = serde_json::to_string_pretty(record)? + "\n";
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(true)
}

/// What each case has that another commit than the record's measured.
const COMMIT: &str = "commit";

/// The later record with what the earlier one has besides: those cases name their commit.
///
/// # Errors
/// If they are not of one measurement on one machine, or one was made with changes that no
/// commit has.
fn renew(before: Record, mut after: Record) -> anyhow::Result<Record> {
    let of = |record: &Record| (record.name.clone(), record.claim.clone());
    if of(&before) != of(&after) || before.machine != after.machine {
        bail!("{:?} is of another measurement or machine", after.command);
    }
    if before.dirty || after.dirty {
        bail!("changes that no commit has were measured");
    }
    let mut tuning = before.tuning;
    list_both(&mut tuning, &mut after.tuning);
    if tuning != after.tuning {
        bail!("{:?} was run with other settings", after.command);
    }
    let mut again = std::mem::take(&mut after.cases);
    for mut case in before.cases {
        match again.iter().position(|later| later.case == case.case) {
            Some(at) => case = again.remove(at),
            None => {
                let commit = before.commit.as_str().into();
                case.more.entry(COMMIT.to_owned()).or_insert(commit);
            }
        }
        after.cases.push(case);
    }
    after.cases.append(&mut again);
    after.command = match before.command.contains(&after.command) {
        true => before.command,
        false => format!("{} && {}", before.command, after.command),
    };
    Ok(after)
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
    fn cases_that_were_measured_again_replace_the_others_which_name_their_commit() {
        let before = record("", "");
        let mut after = record("0123456789abcdef", "fedcba9876543210");
        after.command = "cuzk-bench peer-prove --small --out DIR".to_owned();
        let kept = before.cases[0].case.clone();
        after.cases.remove(0);
        after.cases[0].more.insert("parts".to_owned(), 7.into());
        after.cases.extend(record("2^26", "2^28").cases.pop());
        let commit = Value::from(before.commit.as_str());
        let renewed = renew(before, after).expect("of one measurement");
        let told: Vec<_> = renewed
            .cases
            .iter()
            .map(|case| (case.case.as_str(), case.more.get(COMMIT).cloned()))
            .collect();
        let expected = [
            (kept.as_str(), Some(commit)),
            ("2^26", None),
            ("2^28", None),
        ];
        assert_eq!(told, expected);
        assert_eq!(renewed.cases[1].more["parts"], 7);
        assert!(renewed.commit.starts_with("fedc"), "{}", renewed.commit);
        for (from, to) in [
            ("peer-prove\",", "peer\","),
            ("\"dirty\": false", "\"dirty\": true"),
        ] {
            renew(record("", ""), record(from, to)).expect_err(from);
        }
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
