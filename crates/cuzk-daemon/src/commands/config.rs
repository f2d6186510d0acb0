//! `cuzk config`: the effective configuration.

use serde::Serialize;

use crate::args::Args;
use crate::configuration;
use crate::exit::Failure;
use crate::output;

#[derive(Serialize)]
struct Entry {
    key: &'static str,
    value: String,
    origin: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let loaded = configuration::load(args, None)?;
    let entries: Vec<Entry> = loaded
        .entries()
        .map(|(key, value, origin)| Entry {
            key,
            value,
            origin: origin.to_string(),
        })
        .collect();
    output::result(
        args.json,
        &Shown {
            entries,
            text: loaded.to_string(),
        },
    )
}

/// JSON has the entries, text is a configuration file.
struct Shown {
    entries: Vec<Entry>,
    text: String,
}

impl Serialize for Shown {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.entries.serialize(serializer)
    }
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
