//! From arguments to a configuration.

use std::path::PathBuf;

use cuzk_core::config::{self, DevicePolicy, Loaded, Origin, Value};
use cuzk_core::{Config, Engine};

use crate::args::{Args, KeyArgs};
use crate::exit::{Exit, Failure};
use crate::files;
use crate::machine;

/// Where the parameters are when nobody says otherwise.
const STANDARD_PARAMS: &str = "/var/tmp/filecoin-proof-parameters";
/// The stock software's variable for that.
const PARAMS_VARIABLE: &str = "FIL_PROOFS_PARAMETER_CACHE";

/// Directories in which the stock software looks for real keys.
pub(crate) fn real_key_directories() -> Vec<PathBuf> {
    let named = std::env::var_os(PARAMS_VARIABLE)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from);
    named
        .into_iter()
        .chain([PathBuf::from(STANDARD_PARAMS)])
        .collect()
}

/// The effective configuration: defaults, the file, `--set`, and the options of a
/// command.
pub(crate) fn load(args: &Args, keys: Option<&KeyArgs>) -> Result<Loaded, Failure> {
    load_with(args, keys, Vec::new())
}

/// As [`load`], and then the options of a command that stand for keys: the option's
/// name, the key and the value.
pub(crate) fn load_with(
    args: &Args,
    keys: Option<&KeyArgs>,
    options: Vec<(&'static str, String, Value)>,
) -> Result<Loaded, Failure> {
    let mut directories = real_key_directories();
    let mut defaults = Config::new(directories.swap_remove(0));
    defaults.hints_file = machine::cache_directory().map(|cache| cache.join("hints.json"));

    let text = match &args.config {
        None => None,
        Some(path) => {
            // The command line names a file that is of no use: wrong usage, not input.
            let bytes = files::read(path).map_err(|failure| Failure::new(Exit::Usage, failure))?;
            let text = String::from_utf8(bytes).map_err(|_| {
                Failure::new(Exit::Usage, format!("{}: not UTF-8 text", path.display()))
            })?;
            Some((path.as_path(), text))
        }
    };
    let mut overrides = Vec::new();
    for set in &args.set {
        let Some((key, value)) = set.split_once('=') else {
            return Err(Failure::new(
                Exit::Usage,
                format!("--set {set}: want KEY=VALUE"),
            ));
        };
        overrides.push((
            "--set",
            key.trim().to_owned(),
            Value::from_argument(value.trim()),
        ));
    }
    if let Some(keys) = keys {
        if let Some(directory) = &keys.params {
            let directory = Value::Text(directory.display().to_string());
            overrides.push(("--params", "params.directory".to_owned(), directory));
        }
        if keys.allow_test_params {
            let key = "params.allow_test".to_owned();
            overrides.push(("--allow-test-params", key, Value::Bool(true)));
        }
    }
    overrides.extend(options);
    let mut loaded = config::load(
        defaults,
        text.as_ref().map(|(path, text)| (*path, text.as_str())),
        &overrides,
    )?;
    // A value is text, and a path need not be: the path itself is what counts.
    if let Some(directory) = keys.and_then(|keys| keys.params.as_ref()) {
        loaded.config.params_directory = directory.clone();
    }
    Ok(loaded)
}

/// Warns of each setting that somebody gave and that has no effect where the engine proves,
/// and says why no device is used where somebody counts on one.
pub(crate) fn warn_without_effect(loaded: &Loaded, engine: &Engine) {
    let on_devices = !engine.devices().is_empty();
    let settings = loaded.without_effect(on_devices);
    if !on_devices && (asks_for_devices(loaded) || !settings.is_empty()) {
        let reason = match loaded.config.device_policy {
            DevicePolicy::Cpu => "device.policy is \"cpu\"".to_owned(),
            DevicePolicy::PreferGpu | DevicePolicy::RequireGpu => match cuzk_core::devices() {
                Err(reason) => reason,
                Ok(_) => "none of those that are named can be used".to_owned(),
            },
        };
        tracing::warn!(reason, "no device is used");
    }
    for setting in settings {
        tracing::warn!("this setting has no effect: {setting}");
    }
}

/// Whether somebody said that devices are to prove.
fn asks_for_devices(loaded: &Loaded) -> bool {
    let mut policies = loaded.entries().filter(|(key, ..)| *key == "device.policy");
    let is_given = policies.any(|(.., origin)| *origin != Origin::Default);
    is_given && loaded.config.device_policy != DevicePolicy::Cpu
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_asked_for_by_a_policy_that_somebody_gave() {
        let asks = |overrides: &[(&str, &str)]| {
            let overrides: Vec<_> = overrides
                .iter()
                .map(|(key, value)| ("--set", (*key).to_owned(), Value::from_argument(value)))
                .collect();
            let loaded = config::load(Config::new("keys".into()), None, &overrides);
            asks_for_devices(&loaded.expect("good values"))
        };
        assert!(!asks(&[("device.index", "3")]));
        assert!(!asks(&[("device.policy", "cpu")]));
        assert!(asks(&[("device.policy", "prefer-gpu")]));
    }
}
