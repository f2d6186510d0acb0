//! Where settings act, and which of those that are set have no effect.

use std::fmt;

use super::keys::{KEYS, Key};
use super::{Config, Loaded, Origin, Placement};

/// Where a setting acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acts {
    /// Wherever proofs are made.
    Everywhere,
    /// Where proofs are made on devices.
    OnDevices,
    /// Where proofs are made on the processor, alone or beside a device as its twin: devices
    /// keep keys by themselves.
    OnProcessor,
    /// Where columns are to lie in page-locked memory.
    PageLocked,
}

impl Acts {
    /// Why a setting that acts so has no effect on such an engine, if it has none.
    fn why_not(self, config: &Config, on_devices: bool) -> Option<&'static str> {
        let tuning = &config.tuning;
        match self {
            Self::Everywhere => None,
            Self::OnDevices => (!on_devices).then_some("no device is used"),
            Self::OnProcessor => {
                (on_devices && !tuning.twin).then_some("devices keep keys by themselves")
            }
            Self::PageLocked => {
                let on_heap = match tuning.placement {
                    Placement::Auto => !on_devices,
                    Placement::Heap => true,
                    Placement::Register | Placement::Staged | Placement::Direct => false,
                };
                on_heap.then_some("columns lie in ordinary memory")
            }
        }
    }
}

/// A setting that somebody gave and that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutEffect {
    /// The key.
    pub key: &'static str,
    /// Its value, as the file would have it.
    pub value: String,
    /// Where it was given.
    pub origin: Origin,
    /// Why it changes nothing.
    pub why: &'static str,
}

impl fmt::Display for WithoutEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            value,
            origin,
            why,
        } = self;
        write!(f, "{key} = {value} ({origin}): {why}")
    }
}

impl Loaded {
    /// The settings that somebody gave, other than their defaults, and that have no effect
    /// on an engine which proves on devices or not.
    pub fn without_effect(&self, on_devices: bool) -> Vec<WithoutEffect> {
        let defaults = Config::new(self.config.params_directory.clone());
        let given = KEYS.iter().zip(&self.origins);
        let given = given.filter(|(key, origin)| {
            let Key { show, .. } = key;
            **origin != Origin::Default && show(&self.config) != show(&defaults)
        });
        given
            .filter_map(|(key, origin)| {
                let why = key.acts.why_not(&self.config, on_devices)?;
                Some(WithoutEffect {
                    key: key.name,
                    value: (key.show)(&self.config),
                    origin: origin.clone(),
                    why,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Value, load};
    use super::*;

    /// Another value of each switch than its default.
    const OTHERS: &[(&str, &str)] = &[
        ("tuning.c_from_ab", "false"),
        ("tuning.sizing", "growing"),
        ("tuning.synthesis", "whole"),
        ("tuning.key_tier", "resident"),
        ("tuning.dispatch", "burst"),
        ("tuning.placement", "direct"),
        ("tuning.placement_refused", "fall-back"),
        ("tuning.huge_pages", "never"),
        ("tuning.key_batch", "2"),
        ("tuning.early_start", "false"),
        ("tuning.window_bits", "12"),
        ("tuning.split_on_cpu", "true"),
        ("tuning.b_g2_on_cpu", "true"),
        ("tuning.twin", "true"),
    ];

    fn loaded(settings: &[(&str, &str)]) -> Loaded {
        let overrides: Vec<_> = settings
            .iter()
            .map(|(key, value)| ("--set", (*key).to_owned(), Value::from_argument(value)))
            .collect();
        load(Config::new("keys".into()), None, &overrides).expect("good values")
    }

    /// Of each switch, set alone, what is told on the processor and on a device.
    #[test]
    fn every_switch_says_where_it_acts() {
        let switches = KEYS.iter().filter(|key| key.name.starts_with("tuning."));
        let mut told = Vec::new();
        for switch in switches {
            let other = OTHERS.iter().find(|(name, _)| *name == switch.name);
            let other = other.unwrap_or_else(|| panic!("{}: no other value here", switch.name));
            let loaded = loaded(&[*other]);
            let default = (switch.show)(&Config::new("keys".into()));
            assert_ne!((switch.show)(&loaded.config), default, "{}", switch.name);
            for on_devices in [false, true] {
                let on = if on_devices {
                    "a device"
                } else {
                    "the processor"
                };
                let mut lines = loaded.without_effect(on_devices);
                assert!(lines.len() < 2, "{}", switch.name);
                let line = lines.pop();
                let line = line.map_or_else(|| "acts".to_owned(), |line| line.to_string());
                told.push(format!("{} on {on}: {line}", switch.name));
            }
        }
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn other_settings_of_devices_have_no_effect_without_one() {
        let settings = [
            ("memory.page_locked", "50%"),
            ("memory.numa", "off"),
            ("device.policy", "cpu"),
            ("device.index", "3"),
            ("device.memory", "1GiB"),
            ("device.slots", "3"),
            ("device.host_keys", "1GiB"),
            ("engine.threads", "3"),
        ];
        let loaded = loaded(&settings);
        let keys = |on_devices| -> Vec<&str> {
            let lines = loaded.without_effect(on_devices).into_iter();
            lines.map(|line| line.key).collect()
        };
        let want = [
            "memory.page_locked",
            "memory.numa",
            "device.index",
            "device.memory",
            "device.slots",
            "device.host_keys",
        ];
        assert_eq!(keys(false), want);
        assert_eq!(keys(true), [""; 0]);
    }

    #[test]
    fn a_default_that_somebody_gave_is_not_told() {
        let given = loaded(&[("tuning.early_start", "true"), ("tuning.key_batch", "1")]);
        assert_eq!(given.without_effect(false), []);
        // What one setting does may depend on another.
        let beside = |other| {
            let loaded = loaded(&[("tuning.placement_refused", "fail"), other]);
            loaded.without_effect(true).len()
        };
        assert_eq!(beside(("tuning.placement", "heap")), 1);
        assert_eq!(beside(("tuning.placement", "staged")), 0);
        let twin = loaded(&[("tuning.key_tier", "resident"), ("tuning.twin", "true")]);
        assert_eq!(twin.without_effect(true), []);
    }
}
