//! Settings of the switches, as the command line gives them.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use cuzk_core::Config;
use cuzk_core::config::{Value, load};

use super::DECIDED;
use crate::overrides::refuse_decided;

/// Switches of a workload itself, which no configuration has, begin so.
const OWN: &str = "bench.";

/// A setting with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: String,
    switches: Vec<String>,
}

/// Keys with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Switches(BTreeMap<String, String>);

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, switches) = text.split_once(':').unwrap_or((text, ""));
        let name = name.trim();
        if name.is_empty() || name.contains('=') {
            return Err(format!("want \"NAME: KEY=VALUE, …\", have {text:?}"));
        }
        let switches = switches.split(',').map(str::trim);
        Ok(Self {
            name: name.to_owned(),
            switches: switches
                .filter(|switch| !switch.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }
}

/// Names are what samples are told apart by.
///
/// # Errors
/// If two settings have one.
pub(super) fn check(settings: &[Setting]) -> Result<()> {
    for (at, setting) in settings.iter().enumerate() {
        let before = &settings[..at];
        ensure!(
            before.iter().all(|other| other.name != setting.name),
            "two settings are named {}",
            setting.name
        );
    }
    Ok(())
}

impl Setting {
    /// The setting over what all have.
    ///
    /// # Errors
    /// If a switch is not `KEY=VALUE`, or a flag decides its key.
    pub(super) fn over(&self, common: &[String]) -> Result<Switches> {
        let mut switches = BTreeMap::new();
        for switch in common.iter().chain(&self.switches) {
            let (key, value) = switch.split_once('=').with_context(|| {
                format!("setting {}: want KEY=VALUE, have {switch:?}", self.name)
            })?;
            refuse_decided(&format!("setting {}:", self.name), key.trim(), DECIDED)?;
            switches.insert(key.trim().to_owned(), value.trim().to_owned());
        }
        Ok(Switches(switches))
    }
}

impl Switches {
    /// Keys and values, in the order of the keys.
    pub(super) fn shown(&self) -> BTreeMap<String, String> {
        self.0.clone()
    }

    /// A switch of the workload itself.
    pub(super) fn own(&self, name: &str) -> Option<&str> {
        self.0.get(&format!("{OWN}{name}")).map(String::as_str)
    }

    /// A configuration with the switches, apart from the workload's own.
    ///
    /// # Errors
    /// If a key is not known or does not take its value, or the workload does not know one
    /// of its own.
    pub(super) fn apply(&self, config: Config, known: &[&str]) -> Result<Config> {
        let mut overrides = Vec::new();
        for (key, value) in &self.0 {
            match key.strip_prefix(OWN) {
                Some(own) => ensure!(known.contains(&own), "{key}: unknown to this workload"),
                None => overrides.push(("--setting", key.clone(), Value::from_argument(value))),
            }
        }
        Ok(load(config, None, &overrides)?.config)
    }
}

#[cfg(test)]
mod tests {
    use cuzk_core::config::Sizing;

    use super::*;

    #[test]
    fn a_setting_is_a_name_and_switches_over_those_of_all() {
        let setting: Setting = "off: tuning.sizing=growing, bench.split = off"
            .parse()
            .expect("a setting");
        assert_eq!(setting.name, "off");
        let common = [
            "tuning.sizing=exact".to_owned(),
            "device.slots=3".to_owned(),
        ];
        let switches = setting.over(&common).expect("switches");
        let config = switches.apply(Config::new("keys".into()), &["split"]);
        let config = config.expect("a configuration");
        assert_eq!(config.tuning.sizing, Sizing::Growing);
        assert_eq!(config.device_slots, 3);
        assert_eq!(switches.own("split"), Some("off"));
        assert_eq!(switches.own("other"), None);
    }

    #[test]
    fn what_is_not_a_setting_is_refused_with_its_place() {
        assert!("a=b".parse::<Setting>().is_err());
        assert!(": a=b".parse::<Setting>().is_err());
        let wrong = |text: &str| {
            let setting: Setting = text.parse().expect("a name");
            let switches = setting.over(&[]);
            let config =
                switches.and_then(|switches| switches.apply(Config::new("keys".into()), &[]));
            config.expect_err(text).to_string()
        };
        assert_eq!(
            wrong("one: tuning"),
            "setting one: want KEY=VALUE, have \"tuning\""
        );
        assert_eq!(
            wrong("one: device.policy=cpu"),
            "setting one: device.policy: --on says that here"
        );
        assert!(wrong("one: tuning.sizings=exact").contains("did you mean tuning.sizing?"));
        assert_eq!(
            wrong("one: bench.split=off"),
            "bench.split: unknown to this workload"
        );
        let twice: Vec<Setting> = ["a", "b", "a: x=y"]
            .map(|text| text.parse().unwrap())
            .into();
        assert!(check(&twice).is_err());
        assert!(check(&twice[..2]).is_ok());
    }
}
