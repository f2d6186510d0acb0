//! From arguments to a configuration, and from there to an engine.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use cuzk_budget::Budget;
use cuzk_core::config::{Loaded, Value, load};
use cuzk_core::{Config, Engine, EngineParts};
use cuzk_gpu::cpu::h::{CSource, Transforms};
use cuzk_gpu::cpu::{CpuBackend, CpuOptions};
use cuzk_pinned::PinnedPool;
use cuzk_synth::HintStore;

use crate::args::{Args, KeyArgs};
use crate::exit::{Exit, Failure};
use crate::files;
use crate::machine;

/// Where the parameters are when nobody says otherwise.
const STANDARD_PARAMS: &str = "/var/tmp/filecoin-proof-parameters";
/// The stock software's variable for that.
const PARAMS_VARIABLE: &str = "FIL_PROOFS_PARAMETER_CACHE";
/// Proofs that may wait in the backend: the scheduler sends one at a time.
const BACKEND_QUEUE_MAX: usize = 4;

/// Directories in which the stock software looks for real keys.
pub(crate) fn real_key_directories() -> Vec<PathBuf> {
    let named = std::env::var_os(PARAMS_VARIABLE).map(PathBuf::from);
    named
        .into_iter()
        .chain([PathBuf::from(STANDARD_PARAMS)])
        .collect()
}

/// The effective configuration: defaults, the file, `--set`, and the options of a
/// command.
pub(crate) fn configuration(args: &Args, keys: Option<&KeyArgs>) -> Result<Loaded, Failure> {
    let mut directories = real_key_directories();
    let mut defaults = Config::new(directories.swap_remove(0));
    defaults.hints_file = machine::cache_directory().map(|cache| cache.join("hints.json"));

    let text = match &args.config {
        None => None,
        Some(path) => {
            let bytes = files::read(path)?;
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
    Ok(load(
        defaults,
        text.as_ref().map(|(path, text)| (*path, text.as_str())),
        &overrides,
    )?)
}

/// Starts the engine that a configuration describes.
pub(crate) fn engine(config: &Config) -> Result<Engine, Failure> {
    let limit = machine::memory_limit(config)?;
    let budget = Budget::new(limit);
    let (c_source, transforms) = if config.tuning.c_from_ab {
        (CSource::Product, Transforms::Six)
    } else {
        (CSource::Synthesised, Transforms::Seven)
    };
    let threads = NonZeroUsize::new(config.threads).unwrap_or_else(machine::cores);
    let options = CpuOptions {
        threads,
        queue_len_max: BACKEND_QUEUE_MAX,
        c_source,
        transforms,
    };
    let backend = CpuBackend::new(options).map_err(|error| Failure::new(Exit::Failure, error))?;
    let pool = PinnedPool::heap(budget.clone());
    let hints = hints(config);
    let parts = EngineParts {
        backend: Arc::new(backend),
        budget,
        pool,
        hints,
    };
    Ok(Engine::start(config, parts)?)
}

/// The hints of earlier runs. They save memory traffic and nothing depends on them,
/// so a file that cannot be read is told and left alone.
fn hints(config: &Config) -> HintStore {
    let Some(path) = &config.hints_file else {
        return HintStore::in_memory();
    };
    HintStore::open(path).unwrap_or_else(|error| {
        tracing::warn!(%error, "running without capacity hints");
        HintStore::in_memory()
    })
}
