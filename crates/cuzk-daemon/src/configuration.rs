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

/// Warns of settings of devices that somebody gave and that have no effect, since none
/// is used.
pub(crate) fn warn_unused_devices(loaded: &Loaded, engine: &Engine) {
    let settings = device_settings(loaded);
    if settings.is_empty() || !engine.devices().is_empty() {
        return;
    }
    let reason = match loaded.config.device_policy {
        DevicePolicy::Cpu => "device.policy is \"cpu\"".to_owned(),
        DevicePolicy::PreferGpu | DevicePolicy::RequireGpu => match cuzk_core::devices() {
            Err(reason) => reason,
            Ok(_) => "none of those that are named can be used".to_owned(),
        },
    };
    let settings = settings.join(", ");
    tracing::warn!(
        settings,
        reason,
        "no device is used, so these settings have no effect"
    );
}

/// The settings of devices that somebody gave, other than that none be used.
fn device_settings(loaded: &Loaded) -> Vec<String> {
    let given = loaded.entries().filter(|(key, _, origin)| {
        let is_none_wanted = loaded.config.device_policy == DevicePolicy::Cpu;
        key.starts_with("device.")
            && **origin != Origin::Default
            && !(*key == "device.policy" && is_none_wanted)
    });
    given
        .map(|(key, value, origin)| format!("{key} = {value} ({origin})"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_devices_are_those_that_somebody_gave() {
        let given = |overrides: &[(&str, &str)]| {
            let overrides: Vec<_> = overrides
                .iter()
                .map(|(key, value)| ("--set", (*key).to_owned(), Value::from_argument(value)))
                .collect();
            let loaded = config::load(Config::new("keys".into()), None, &overrides);
            device_settings(&loaded.expect("good values"))
        };
        assert!(given(&[("engine.threads", "2")]).is_empty());
        assert!(given(&[("device.policy", "cpu")]).is_empty());
        assert_eq!(
            given(&[("device.policy", "cpu"), ("device.index", "3")]),
            ["device.index = 3 (--set)"]
        );
        assert_eq!(
            given(&[("device.policy", "prefer-gpu")]),
            ["device.policy = \"prefer-gpu\" (--set)"]
        );
    }
}
