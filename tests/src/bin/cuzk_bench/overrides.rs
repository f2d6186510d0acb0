//! Settings of the configuration, as `--set KEY=VALUE` gives them.

use anyhow::{Context, Result, bail, ensure};
use cuzk_core::config::{KEYS, Value};

/// A key that a flag of the command decides, and the flag.
pub(crate) type Decided = (&'static str, &'static str);

/// The settings as the configuration takes them.
///
/// # Errors
/// If one is not `KEY=VALUE`, or a flag decides its key: the record would name one value and
/// the measurement have another.
pub(crate) fn overrides(
    sets: &[String],
    decided: &[Decided],
) -> Result<Vec<(&'static str, String, Value)>> {
    let one = |set: &String| {
        let (key, value) = assignment(set)?;
        refuse_decided("--set", key, decided)?;
        Ok(("--set", key.to_owned(), Value::from_argument(value)))
    };
    sets.iter().map(one).collect()
}

/// The keys of the settings by their own names, and their values.
///
/// # Errors
/// If one is not `KEY=VALUE`, its key is none, or one was set before.
pub(crate) fn named(sets: &[String]) -> Result<Vec<(&'static str, String)>> {
    let mut named: Vec<(&'static str, String)> = Vec::new();
    for set in sets {
        let (name, value) = assignment(set)?;
        let key = KEYS.iter().find(|key| key.name == name);
        let key = key.with_context(|| format!("--set {set:?}: no such key"))?;
        let is_new = named.iter().all(|(known, _)| *known != key.name);
        ensure!(is_new, "--set {set:?}: {name} was set before");
        named.push((key.name, value.to_owned()));
    }
    Ok(named)
}

/// Refuses a key that a flag decides.
///
/// # Errors
/// With the flag.
pub(crate) fn refuse_decided(origin: &str, key: &str, decided: &[Decided]) -> Result<()> {
    match decided.iter().find(|(own, _)| *own == key) {
        Some((_, flag)) => bail!("{origin} {key}: {flag} says that here"),
        None => Ok(()),
    }
}

fn assignment(set: &str) -> Result<(&str, &str)> {
    let (key, value) = set
        .split_once('=')
        .with_context(|| format!("--set {set:?}: want KEY=VALUE"))?;
    Ok((key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_flag_decides_is_refused_with_the_flag() {
        let decided = [("tuning.dispatch", "--dispatch")];
        let refused = |set: &str| {
            let overrides = overrides(&[set.to_owned()], &decided);
            overrides.map(drop).expect_err(set).to_string()
        };
        let want = "--set tuning.dispatch: --dispatch says that here";
        assert_eq!(refused("tuning.dispatch=burst"), want);
        assert_eq!(refused(" tuning.dispatch = burst"), want);
        assert_eq!(refused("tuning"), "--set \"tuning\": want KEY=VALUE");
        overrides(&["tuning.twin=true".to_owned()], &decided).expect("no flag decides it");
    }

    #[test]
    fn what_is_set_twice_or_unknown_is_refused() {
        let named = |sets: &[&str]| {
            let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
            named(&sets).map_err(|error| error.to_string())
        };
        let good = named(&["tuning.twin = true", "device.index=0"]).expect("two keys");
        assert_eq!(good[0], ("tuning.twin", "true".to_owned()));
        let again = named(&["tuning.twin=true", "tuning.twin=false"]).expect_err("twice");
        assert_eq!(
            again,
            "--set \"tuning.twin=false\": tuning.twin was set before"
        );
        let unknown = named(&["tuning.twins=true"]).expect_err("no key");
        assert_eq!(unknown, "--set \"tuning.twins=true\": no such key");
    }

    /// A key that no longer exists would be refused nowhere.
    #[test]
    fn decided_keys_are_keys() {
        let lists = [
            crate::live::DECIDED,
            crate::full::DECIDED,
            crate::compare::DECIDED,
        ];
        for (key, flag) in lists.concat() {
            assert!(KEYS.iter().any(|known| known.name == key), "{key}");
            assert!(flag.starts_with("--"), "{flag}");
        }
    }
}
