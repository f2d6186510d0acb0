//! From samples to cases, and what they say of a switch.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::definition::{Better, CONTROL, Row};
use super::samples::Set;
use super::stats::{Pair, alone, median, ratio};
use crate::record::{Case, Peer, Series, Spread};

/// The time of all processors in a run, where it was told: its ratio stands beside the row's
/// own, and says what a machine that others use hides. It judges nothing, since work that
/// threads share, or a device does, takes less time by the clock alone.
const PROCESSOR: &str = "processor_ms";

/// The cases of a row's set: each setting on beside the one off.
///
/// # Errors
/// If a sample lacks the row's metric.
pub(super) fn cases(row: &Row, circuit: &str, set: &Set) -> anyhow::Result<Vec<Case>> {
    let (off, _) = row.off();
    let on = row.on().map(|(on, _)| on);
    let case = |on: &str| format!("{circuit}: {on} beside {off}");
    if let Some(why) = &set.failed {
        return Ok(on.map(|on| failed(case(on), why)).collect());
    }
    // What is judged is what the record has.
    let control = rounded(compared(row, set, CONTROL, off)?);
    on.map(|on| {
        let found = rounded(compared(row, set, on, off)?);
        let series = |setting: &str| -> anyhow::Result<Series> {
            let samples: Vec<f64> = set.values(setting, &row.metric)?;
            Ok(series(samples, unit(&row.metric)))
        };
        let mut more = BTreeMap::from([
            ("verdict".to_owned(), json!(verdict(found, control))),
            ("metric".to_owned(), json!(row.metric)),
            ("on".to_owned(), json!(switches(set, on))),
            ("off".to_owned(), json!(switches(set, off))),
            ("control".to_owned(), json!(control)),
        ]);
        if row.metric != PROCESSOR && set.values(on, PROCESSOR).is_ok() {
            let times = ratio(&set.pairs(on, off, PROCESSOR)?);
            more.insert("processor_ratio".to_owned(), json!(rounded(times)));
        }
        let mut phases_ms = BTreeMap::new();
        for metric in &row.also {
            // A phase that only one of the two has is 0 of the other.
            let middle = |setting: &str| {
                let values = set
                    .of(setting)
                    .map(|sample| sample.metrics.get(metric).copied());
                let values: Vec<f64> = values.map(Option::unwrap_or_default).collect();
                round(median(&values))
            };
            match metric.strip_suffix("_ms") {
                Some(phase) => {
                    phases_ms.insert(phase.to_owned(), middle(on));
                    phases_ms.insert(format!("{off}'s {phase}"), middle(off));
                }
                None => {
                    more.insert(metric.clone(), plain(middle(on)));
                    more.insert(format!("{off}'s {metric}"), plain(middle(off)));
                }
            }
        }
        if let Some(sample) = set.of(on).next() {
            more.insert("used".to_owned(), json!(sample.used));
        }
        Ok(Case {
            case: case(on),
            verified: true,
            ours: Some(series(on)?),
            peer: Some(Peer {
                name: format!("off: {off}"),
                series: series(off)?,
            }),
            ratio: Some(found),
            phases_ms,
            peak: BTreeMap::new(),
            more,
        })
    })
    .collect()
}

/// A case without figures.
pub(super) fn failed(case: String, why: &str) -> Case {
    Case {
        case,
        verified: false,
        ours: None,
        peer: None,
        ratio: None,
        phases_ms: BTreeMap::new(),
        peak: BTreeMap::new(),
        more: BTreeMap::from([("why".to_owned(), json!(why))]),
    }
}

/// How many times as good as off a setting is.
fn compared(row: &Row, set: &Set, on: &str, off: &str) -> anyhow::Result<Spread> {
    let mut pairs = set.pairs(on, off, &row.metric)?;
    if row.better == Better::More {
        for pair in &mut pairs {
            *pair = Pair {
                on: pair.off,
                off: pair.on,
                is_on_first: !pair.is_on_first,
            };
        }
    }
    Ok(ratio(&pairs))
}

/// What the ratio says, where the same setting beside itself has the ratio `control`. Where
/// that one's interval does not hold 1, the machine tells things apart that are the same,
/// and a difference counts from there on.
pub(crate) fn verdict(ratio: Spread, control: Spread) -> &'static str {
    let is_blind = control.low > 1.0 || control.high < 1.0;
    let blind = if is_blind {
        control.high.max(1.0 / control.low)
    } else {
        1.0
    };
    if ratio.low > blind {
        "win"
    } else if ratio.high < 1.0 / blind {
        "loss"
    } else {
        "no effect"
    }
}

/// Keys and values of a setting.
fn switches<'a>(set: &'a Set, name: &str) -> Option<&'a BTreeMap<String, String>> {
    let mut settings = set.head.settings.iter();
    settings.find_map(|(setting, switches)| (setting == name).then_some(switches))
}

fn unit(metric: &str) -> &str {
    match metric.rsplit_once('_') {
        Some((_, unit @ ("ms" | "bytes"))) => unit,
        _ => "count",
    }
}

fn series(samples: Vec<f64>, unit: &str) -> Series {
    let samples: Vec<f64> = samples.into_iter().map(round).collect();
    Series {
        spread: rounded(alone(&samples)),
        unit: unit.to_owned(),
        samples,
    }
}

fn rounded(spread: Spread) -> Spread {
    Spread {
        median: round(spread.median),
        low: round(spread.low),
        high: round(spread.high),
    }
}

/// A count without a fraction.
fn plain(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

/// Four digits are more than any of these measurements are worth.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Switches that differ between settings, with the values of all.
pub(super) fn tuning(set: &Set) -> BTreeMap<String, Value> {
    let mut tuning = BTreeMap::<String, Vec<&str>>::new();
    for (name, switches) in &set.head.settings {
        if name == CONTROL {
            continue;
        }
        for (key, value) in switches {
            let values = tuning.entry(key.clone()).or_default();
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
    }
    let tuning = tuning.into_iter();
    tuning
        .map(|(key, values)| (key, json!(values.join(", "))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::definition::read;
    use super::super::samples::tests::set;
    use super::*;

    const ROW: &str = r#"
[[row]]
name = "sizing"
what = "how columns get their length"
claim = "exact sizes cost nothing"
workload = "synth"
circuits.cpu = ["porep-2k"]
also = ["peak_bytes", "segments_ms"]
off.growing."tuning.sizing" = "growing"
on.exact."tuning.sizing" = "exact"
"#;

    #[test]
    fn a_setting_that_is_faster_is_a_win_and_the_rest_is_told() {
        let row = read(ROW).expect("a row").remove(0);
        let set = Set::parse(&set(8, 2.0)).expect("a set");
        let cases = cases(&row, "porep-2k", &set).expect("cases");
        insta::assert_snapshot!(serde_json::to_string_pretty(&cases).expect("JSON"));
        assert_eq!(tuning(&set)["tuning.sizing"], "growing, exact");
    }

    #[test]
    fn where_more_is_better_the_ratio_turns() {
        let text = ROW.replace("also", "better = \"more\"\nalso");
        let row = read(&text).expect("a row").remove(0);
        let set = Set::parse(&set(8, 2.0)).expect("a set");
        let case = cases(&row, "porep-2k", &set).expect("cases").remove(0);
        assert_eq!(case.more["verdict"], "loss");
        assert_eq!(case.ratio.expect("one").median, 0.5);
    }

    #[test]
    fn a_set_with_a_failed_run_has_no_figures() {
        let row = read(ROW).expect("a row").remove(0);
        let text = set(8, 2.0) + r#"{"setting":"exact","pair":8,"failed":"no proof"}"# + "\n";
        let set = Set::parse(&text).expect("a set");
        let case = cases(&row, "porep-2k", &set).expect("cases").remove(0);
        assert!(!case.verified && case.ours.is_none() && case.ratio.is_none());
        assert_eq!(case.more["why"], "exact: no proof");
    }

    #[test]
    fn a_difference_counts_from_where_the_machine_tells_things_apart() {
        let spread = |low: f64, high: f64| Spread {
            median: f64::midpoint(low, high),
            low,
            high,
        };
        let same = spread(0.99, 1.01);
        assert_eq!(verdict(spread(1.01, 1.2), same), "win");
        assert_eq!(verdict(spread(0.9, 0.99), same), "loss");
        assert_eq!(verdict(spread(0.99, 1.2), same), "no effect");
        assert_eq!(verdict(spread(1.0, 1.2), same), "no effect");
        for blind in [spread(1.01, 1.05), spread(0.96, 0.99)] {
            assert_eq!(verdict(spread(1.02, 1.04), blind), "no effect");
            assert_eq!(verdict(spread(1.06, 1.1), blind), "win");
            assert_eq!(verdict(spread(0.96, 0.98), blind), "no effect");
            assert_eq!(verdict(spread(0.8, 0.9), blind), "loss");
        }
    }
}
