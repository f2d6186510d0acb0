//! Defaults and records: a default that a record shows to lose is a finding, unless another
//! case of the same two settings says the opposite. `no effect` permits either.

use std::collections::BTreeMap;

use serde_json::Value;

use super::tree::{Finding, Tree};
use crate::ablate;
use crate::record::{self, Case, Record};

/// Where the defaults stand.
const CONFIG: &str = "crates/cuzk-core/src/config/mod.rs";

/// Fields that are no switch of `Tuning`, and are tested as one.
const OTHERS: [(&str, &str); 1] = [("device_slots", "device.slots")];

type Switches = BTreeMap<String, String>;

/// Defaults that a record contradicts.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let text = |path: &str| {
        let file = tree.files.iter().find(|file| file.path == path);
        file.map(|file| file.text.as_str())
    };
    let (Some(config), Some(rows)) = (text(CONFIG), text(ablate::FILE)) else {
        return Vec::new();
    };
    let defaults = defaults(config);
    let means = match ablate::means(rows) {
        Ok(means) => means,
        Err(error) => return vec![Finding::error(ablate::FILE, 0, format!("{error:#}"))],
    };
    let mut found = BTreeMap::<(Switches, Switches), Vec<(String, bool)>>::new();
    let records = tree.files.iter();
    for file in records.filter(|file| record::is_record(&file.path)) {
        let Ok(record) = Record::parse(&file.text) else {
            continue;
        };
        for case in &record.cases {
            if let Some((better, worse)) = judged(case, &defaults, &means) {
                let is_default = |switches: &Switches| {
                    let mut switches = switches.iter();
                    switches.all(|(key, value)| meant(&defaults, &means, key) == Some(value))
                };
                let place = format!("{} ({})", file.path, case.case);
                if is_default(&worse) {
                    found
                        .entry((better, worse))
                        .or_default()
                        .push((place, true));
                } else if is_default(&better) {
                    found
                        .entry((worse, better))
                        .or_default()
                        .push((place, false));
                }
            }
        }
    }
    let contradicted = found
        .into_iter()
        .filter(|(_, places)| places.iter().all(|(_, loses)| *loses));
    contradicted
        .map(|((better, worse), places)| {
            let (place, _) = &places[0];
            let message = format!(
                "the default {} loses to {} in {place}",
                shown(&worse),
                shown(&better)
            );
            Finding::error(CONFIG, 0, message)
        })
        .collect()
}

/// What a case shows to be better, and what to be worse: the switches that differ, those
/// that a setting does not have as they are by default.
fn judged(
    case: &Case,
    defaults: &Switches,
    means: &BTreeMap<String, Switches>,
) -> Option<(Switches, Switches)> {
    let read = |name: &str| -> Option<Switches> {
        serde_json::from_value(case.more.get(name)?.clone()).ok()
    };
    let (on, off) = (read("on")?, read("off")?);
    let mut differing = (Switches::new(), Switches::new());
    for key in on.keys().chain(off.keys()) {
        // A switch of no configuration has no default.
        let default = meant(defaults, means, key)?;
        let value = |switches: &Switches| switches.get(key).unwrap_or(default).clone();
        if value(&on) != value(&off) {
            differing.0.insert(key.clone(), value(&on));
            differing.1.insert(key.clone(), value(&off));
        }
    }
    let (on, off) = differing;
    if on.is_empty() {
        // The default by its own name beside the default.
        return None;
    }
    match case.more.get("verdict").and_then(Value::as_str)? {
        "win" => Some((on, off)),
        "loss" => Some((off, on)),
        _ => None,
    }
}

/// A key's default, or what it comes to where it is worked out.
fn meant<'a>(
    defaults: &'a Switches,
    means: &'a BTreeMap<String, Switches>,
    key: &str,
) -> Option<&'a String> {
    let default = defaults.get(key)?;
    let meant = means.get(key).and_then(|means| means.get(default));
    Some(meant.unwrap_or(default))
}

/// Keys and their defaults, as a configuration has them.
fn defaults(config: &str) -> Switches {
    let mut defaults = Switches::new();
    let mut is_tuning = false;
    for line in config.lines().map(str::trim) {
        if line == "tuning: Tuning {" {
            is_tuning = true;
            continue;
        }
        let field = line
            .strip_suffix(',')
            .and_then(|line| line.split_once(": "));
        let Some((field, value)) = field else {
            is_tuning &= line != "},";
            continue;
        };
        let other = OTHERS.iter().find(|(name, _)| *name == field);
        if is_tuning {
            defaults.insert(format!("tuning.{field}"), word(value));
        } else if let Some((_, key)) = other
            && value.parse::<u64>().is_ok()
        {
            defaults.insert((*key).to_owned(), word(value));
        }
    }
    defaults
}

/// `Sizing::Exact` is `exact`, and what is worked out is `auto`.
fn word(value: &str) -> String {
    let Some((_, variant)) = value.rsplit_once("::") else {
        let is_none = value == "None";
        return if is_none { "auto" } else { value }.to_owned();
    };
    let mut word = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

fn shown(switches: &Switches) -> String {
    let switches: Vec<String> = switches
        .iter()
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    switches.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;
    use crate::workspace::Workspace;

    const CODE: &str = "
    device_slots: usize,
            device_slots: 2,
            tuning: Tuning {
                c_from_ab: true,
                placement: Placement::Auto,
                placement_refused: PlacementRefused::FallBack,
                window_bits: None,
            },
";
    const ROWS: &str = "[means.\"tuning.placement\"]\nauto = \"direct\"\n";

    fn record(verdict: &str, on: &str, off: &str) -> String {
        format!(
            r#"{{"name":"ablate-x","claim":"c","commit":"c","dirty":false,"date":"2026-12-01",
            "command":"c","machine":{{"cpu":"c","cores":1,"ram_gib":1}},"cases":[{{"case":"one",
            "verified":true,"verdict":"{verdict}","on":{{{on}}},"off":{{{off}}}}}]}}"#
        )
    }

    fn found(records: &[String]) -> Vec<String> {
        let paths: Vec<String> = (0..records.len())
            .map(|at| format!("{}machine-{at}/ablate-x.json", record::FOLDER))
            .collect();
        let mut files = vec![(CONFIG, CODE), (ablate::FILE, ROWS)];
        let records = paths.iter().zip(records);
        files.extend(records.map(|(path, text)| (path.as_str(), text.as_str())));
        findings_of(check, &files)
    }

    #[test]
    fn a_default_that_loses_is_caught_whichever_side_it_is_on() {
        let (on, off) = (
            r#""tuning.c_from_ab":"true""#,
            r#""tuning.c_from_ab":"false""#,
        );
        let findings = found(&[record("loss", on, off)]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        let told = "the default tuning.c_from_ab = true loses to tuning.c_from_ab = false in \
                    bench/records/machine-0/ablate-x.json (one)";
        assert!(findings[0].contains(told), "{findings:?}");
        assert_eq!(found(&[record("win", off, on)]).len(), 1);
        assert_eq!(
            found(&[record("win", off, "")]).len(),
            1,
            "the default is not said"
        );
        assert!(found(&[record("win", on, off)]).is_empty());
        assert!(found(&[record("no effect", off, on)]).is_empty());
        let by_another_name = found(&[record("loss", on, ""), record("loss", "", on)]);
        assert!(by_another_name.is_empty(), "{by_another_name:?}");
    }

    #[test]
    fn cases_that_disagree_permit_either() {
        let (on, off) = (
            r#""tuning.c_from_ab":"true""#,
            r#""tuning.c_from_ab":"false""#,
        );
        let records = [record("loss", on, off), record("win", on, off)];
        assert!(found(&records).is_empty());
        let records = [record("loss", on, off), record("no effect", on, off)];
        assert_eq!(found(&records).len(), 1, "no effect is no opposite");
    }

    #[test]
    fn what_is_worked_out_is_what_it_comes_to() {
        let of = |word: &str| format!(r#""tuning.placement":"{word}""#);
        assert!(found(&[record("win", &of("direct"), &of("heap"))]).is_empty());
        assert_eq!(found(&[record("win", &of("heap"), &of("direct"))]).len(), 1);
        assert!(found(&[record("win", &of("staged"), &of("heap"))]).is_empty());
        let slots = |count: u8| format!(r#""device.slots":"{count}""#);
        assert_eq!(found(&[record("win", &slots(3), &slots(2))]).len(), 1);
        let own = r#""bench.split":"false""#;
        assert!(found(&[record("win", own, "")]).is_empty());
    }

    #[test]
    fn the_defaults_are_read_as_they_stand() {
        let root = Workspace::find().expect("the workspace").root().to_owned();
        let text = std::fs::read_to_string(root.join(CONFIG)).expect("the defaults");
        let defaults = defaults(&text);
        assert_eq!(defaults["tuning.sizing"], "exact");
        assert_eq!(defaults["tuning.window_bits"], "auto");
        assert_eq!(defaults["device.slots"], "2");
        // As the printed form has them, of which a test holds the text.
        let printed = root.join(
            "crates/cuzk-core/src/config/snapshots/\
             cuzk_core__config__load__tests__values_keep_their_origin.snap",
        );
        let printed = std::fs::read_to_string(printed).expect("the printed form");
        let (_, tuning) = printed.split_once("[tuning]").expect("a section");
        let lines: Vec<&str> = tuning.lines().collect();
        let mut checked = 0;
        for pair in lines.windows(2) {
            if let (true, Some((key, value))) = (
                pair[0].ends_with("[from: default]"),
                pair[1].split_once(" = "),
            ) {
                let value = value.trim_matches('"');
                assert_eq!(defaults[&format!("tuning.{key}")], value, "{key}");
                checked += 1;
            }
        }
        assert!(checked > 5, "{checked}");
    }
}
