//! Reading the file and the overrides.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key};
use super::{Config, Value};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the file, counted from 1.
    File {
        /// The line.
        line: usize,
    },
    /// An override, by the name of where it was given (`--set`).
    Override(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { line } => write!(f, "file, line {line}"),
            Origin::Override(name) => f.write_str(name),
        }
    }
}

/// A configuration and where its values came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The effective values.
    pub config: Config,
    /// One origin a key, in the order of [`KEYS`].
    pub origins: Vec<Origin>,
}

/// A configuration that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// What the parser said.
        message: String,
    },
    /// A key that does not exist.
    #[error("{}:{line}: unknown key {key}{}", path.display(), suggestion(key))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// The key.
        key: String,
    },
    /// A value that its key does not take.
    #[error("{}:{line}: {key}: {reason}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// The key.
        key: String,
        /// What was wanted.
        reason: String,
    },
    /// An override that does not exist or has a wrong value.
    #[error("{origin} {key}: {reason}")]
    Override {
        /// Where it was given.
        origin: &'static str,
        /// The key.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

/// Reads a file's text over `defaults`, then the overrides, in their order.
///
/// # Errors
/// What is wrong, with its line; of several wrong lines, any one.
pub fn load(
    defaults: Config,
    file: Option<(&Path, &str)>,
    overrides: &[(&'static str, String, Value)],
) -> Result<Loaded, ConfigError> {
    let origins = vec![Origin::Default; KEYS.len()];
    let mut loaded = Loaded {
        config: defaults,
        origins,
    };
    if let Some((path, text)) = file {
        read_file(&mut loaded, path, text)?;
    }
    for (origin, key, value) in overrides {
        let wrong = |reason| ConfigError::Override {
            origin,
            key: key.clone(),
            reason,
        };
        let (index, found) =
            find(key).ok_or_else(|| wrong(format!("unknown key{}", suggestion(key))))?;
        (found.set)(&mut loaded.config, value).map_err(wrong)?;
        loaded.origins[index] = Origin::Override(origin);
    }
    Ok(loaded)
}

impl Loaded {
    /// Every key with its value, as the file would have it, and its origin.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, String, &Origin)> {
        KEYS.iter()
            .zip(&self.origins)
            .map(|(key, origin)| (key.name, (key.show)(&self.config), origin))
    }
}

impl fmt::Display for Loaded {
    /// The effective configuration as a file, each value with its origin.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut section = "";
        for (key, origin) in KEYS.iter().zip(&self.origins) {
            let (table, name) = key.name.split_once('.').expect("keys have a section");
            if table != section {
                let gap = if section.is_empty() { "" } else { "\n" };
                writeln!(f, "{gap}[{table}]")?;
                section = table;
            }
            writeln!(f, "# {} [from: {origin}]", key.what)?;
            writeln!(f, "{name} = {}", (key.show)(&self.config))?;
        }
        Ok(())
    }
}

fn find(name: &str) -> Option<(usize, &'static Key)> {
    KEYS.iter().enumerate().find(|(_, key)| key.name == name)
}

fn read_file(loaded: &mut Loaded, path: &Path, text: &str) -> Result<(), ConfigError> {
    let line_of = |offset: usize| 1 + text.bytes().take(offset).filter(|b| *b == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        line: line_of(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    for (section, entries) in table.get_ref() {
        let unknown = |key: String, offset| ConfigError::UnknownKey {
            path: path.to_owned(),
            line: line_of(offset),
            key,
        };
        let DeValue::Table(entries) = entries.get_ref() else {
            return Err(unknown(section.get_ref().to_string(), section.span().start));
        };
        if entries.is_empty() && !KEYS.iter().any(|key| in_section(key, section.get_ref())) {
            return Err(unknown(section.get_ref().to_string(), section.span().start));
        }
        for (name, value) in entries {
            let key = format!("{}.{}", section.get_ref(), name.get_ref());
            let line = line_of(name.span().start);
            let Some((index, found)) = find(&key) else {
                return Err(unknown(key, name.span().start));
            };
            convert(value.get_ref())
                .and_then(|value| (found.set)(&mut loaded.config, &value))
                .map_err(|reason| ConfigError::Value {
                    path: path.to_owned(),
                    line,
                    key,
                    reason,
                })?;
            loaded.origins[index] = Origin::File { line };
        }
    }
    Ok(())
}

fn in_section(key: &Key, section: &str) -> bool {
    key.name
        .split_once('.')
        .is_some_and(|(table, _)| table == section)
}

fn convert(value: &DeValue<'_>) -> Result<Value, String> {
    match value {
        DeValue::String(text) => Ok(Value::Text(text.to_string())),
        DeValue::Boolean(value) => Ok(Value::Bool(*value)),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map(Value::Integer)
            .map_err(|_| format!("{integer} is too large")),
        _ => Err("want text, a whole number, or true or false".to_owned()),
    }
}

/// The nearest key's name, where one is near enough to be meant.
fn suggestion(key: &str) -> String {
    KEYS.iter()
        .map(|known| (distance(key, known.name), known.name))
        .min()
        .filter(|(distance, _)| *distance <= 3)
        .map(|(_, name)| format!(" (did you mean {name}?)"))
        .unwrap_or_default()
}

/// Edit distance, for names of a few dozen bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.bytes().enumerate() {
            let replace = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use cuzk_budget::LimitRule;

    use super::super::{Dispatch, KeyTier, Numa, Placement, PlacementRefused};
    use super::*;

    fn load_text(text: &str) -> Result<Loaded, ConfigError> {
        load(
            Config::new("keys".into()),
            Some((Path::new("cuzk.toml"), text)),
            &[],
        )
    }

    #[test]
    fn values_keep_their_origin() {
        let text = "[memory]\nlimit = \"2GiB\"\n\n[engine]\nthreads = 0x2\n";
        let overrides = [(
            "--set",
            "tuning.key_tier".to_owned(),
            Value::from_argument("resident"),
        )];
        let file = Some((Path::new("cuzk.toml"), text));
        let loaded = load(Config::new("keys".into()), file, &overrides).expect("a good file");
        assert_eq!(loaded.config.memory_limit, LimitRule::Bytes(2 << 30));
        assert_eq!(loaded.config.tuning.key_tier, KeyTier::Resident);
        insta::assert_snapshot!(loaded);
    }

    #[test]
    fn the_printed_form_is_read_back() {
        let config = Config::new("a \u{7f}\"\\ b'\n".into());
        let loaded = load(config.clone(), None, &[]).expect("nothing is wrong");
        let printed = loaded.to_string();
        let again = load_text(&printed).expect("what is printed is a file");
        assert_eq!(again.config, config);
        assert!(
            again
                .origins
                .iter()
                .all(|origin| matches!(origin, Origin::File { .. }))
        );
    }

    #[test]
    fn what_is_derived_is_auto_and_may_be_a_number() {
        let auto = load_text("[engine]\nparts_in_flight_max = \"auto\"\n").expect("a good file");
        assert_eq!(auto.config, Config::new("keys".into()));
        let text = "[engine]\nparts_in_flight_max = 5\nsynthesis_max = 3\novertaken_seconds_max = 0\n\
                    [watchdog]\nprove_seconds_max = 90\n[tuning]\ndispatch = \"burst\"\n";
        let loaded = load_text(text).expect("a good file");
        let config = &loaded.config;
        assert_eq!(
            (config.parts_in_flight_max, config.synthesis_max),
            (Some(5), Some(3))
        );
        assert_eq!(config.overtaken_max, None);
        assert_eq!(
            config.watchdog.prove_max,
            Some(std::time::Duration::from_secs(90))
        );
        assert_eq!(config.tuning.dispatch, Dispatch::Burst);
        let again = load_text(&loaded.to_string()).expect("what is printed is a file");
        assert_eq!(again.config, loaded.config);
    }

    #[test]
    fn devices_are_read_and_printed_back() {
        for (index, printed) in [
            ("3", "3"),
            ("\"3\"", "3"),
            ("\"GPU-25a1, 0\"", "\"GPU-25a1,0\""),
        ] {
            let loaded = load_text(&format!("[device]\nindex = {index}\n"));
            let loaded = loaded.expect("a good file");
            let text = loaded.to_string();
            assert!(text.contains(&format!("\nindex = {printed}\n")), "{text}");
            let again = load_text(&text).expect("what is printed is a file");
            assert_eq!(again.config, loaded.config);
        }
    }

    #[test]
    fn placements_and_circuits_to_warm_are_read() {
        let text = "[tuning]\nplacement = \"staged\"\nplacement_refused = \"fall-back\"\n\
                    [memory]\npage_locked = \"95%\"\nnuma = \"off\"\n\
                    [serve]\nwarm = \" porep-32g, snap-32g,porep-32g,\"\n";
        let loaded = load_text(text).expect("a good file");
        let config = &loaded.config;
        assert_eq!(config.tuning.placement, Placement::Staged);
        assert_eq!(config.tuning.placement_refused, PlacementRefused::FallBack);
        assert_eq!(config.page_locked_limit, LimitRule::Percent(95));
        assert_eq!(config.numa, Numa::Off);
        assert_eq!(config.serve.warm, ["porep-32g", "snap-32g"]);
        let again = load_text(&loaded.to_string()).expect("what is printed is a file");
        assert_eq!(again.config, loaded.config);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let wrong = [
            "[memory]\nlimits = 3\n",
            "[memory]\n\nlimit = \"some\"\n",
            "[engine]\nsynthesis_max = 0\n",
            "[engine]\nsynthesis_max = \"many\"\n",
            "[engine]\nparts_in_flight_max = -2\n",
            "[engine]\nparts_in_flight_max = 1000000000000\n",
            "[engine]\nsynthesis_max = 4097\n",
            "[tuning]\ndispatch = \"eager\"\n",
            "[watchdog]\nprove_seconds_max = \"long\"\n",
            "[memory]\ncritical_reserve = \"some\"\n",
            "[engine]\nthreads = -1\n",
            "[engine]\nthreads = 99999999999999999999\n",
            "[engine]\nthreads = 99999\n",
            "[device]\nindex = -1\n",
            "[device]\nindex = \"first\"\n",
            "[device]\nindex = \"1,0,1\"\n",
            "[device]\nindex = true\n",
            "[tuning]\nkey_tier = \"warm\"\n",
            "[tuning]\nplacement = \"pinned\"\n",
            "[tuning]\nplacement_refused = \"ignore\"\n",
            "[memory]\npage_locked = \"most\"\n",
            "[memory]\nnuma = \"node0\"\n",
            "[params]\ndigest = \"yes\"\n",
            "[device]\nslots = 9\n",
            "threads = 3\n",
            "[dispatch]\n",
            "[memory]\nlimit = \n",
            "[memory]\nlimit = 1\nlimit = 2\n",
            "[memory]\nlimit = [1]\n",
        ];
        let messages: Vec<String> = wrong
            .iter()
            .map(|text| load_text(text).expect_err(text).to_string())
            .collect();
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn a_wrong_override_is_named() {
        let config = || Config::new("keys".into());
        let error = |key: &str, value: &str| {
            load(
                config(),
                None,
                &[("--set", key.to_owned(), Value::from_argument(value))],
            )
            .expect_err("wrong")
            .to_string()
        };
        assert_eq!(
            error("engine.thread", "2"),
            "--set engine.thread: unknown key (did you mean engine.threads?)"
        );
        assert_eq!(
            error("engine.threads", "many"),
            "--set engine.threads: want a count, have \"many\""
        );
    }
}
