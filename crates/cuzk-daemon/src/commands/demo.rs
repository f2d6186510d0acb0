//! `cuzk demo`: the whole way once, with a synthetic request and a test key.

use std::path::{Path, PathBuf};
use std::time::Instant;

use cuzk_core::CircuitSpec;
use cuzk_filecoin::fixture::{FixtureOptions, generate};
use cuzk_filecoin::{FilecoinCircuit, Request};

use super::draw::Drawings;
use super::{params, prove};
use crate::args::{Args, DemoArgs};
use crate::configuration;
use crate::exit::{Exit, Failure};
use crate::machine;
use crate::output;
use crate::progress::Progress;

/// The fixture and the key of the demo follow from it.
const SEED: u64 = 1;

pub(super) fn run(args: &Args, demo: &DemoArgs) -> Result<(), Failure> {
    let drawings = Drawings::begin(&demo.draw, None)?;
    let mut loaded = configuration::load(args, None)?;
    let wrong = |error| Failure::new(Exit::Input, error);
    let progress = Progress::start("making a synthetic request");
    let options = FixtureOptions::default();
    let fixture = generate(demo.kind, demo.sector_size, SEED, &options).map_err(wrong)?;
    let mut file = Vec::new();
    fixture.write_json(&mut file).map_err(wrong)?;
    let request = Request::from_json(&file)?;
    drop(progress);

    let directory = directory(demo)?;
    let circuit = FilecoinCircuit::new(demo.kind, demo.sector_size);
    let keygen_seconds = find_or_make(&directory.join(circuit.params_file()), || {
        let refused = configuration::real_key_directories();
        params::generate_key(&circuit, &directory, SEED, &refused).map(|_| ())
    })?;
    loaded.config.params_directory = directory;
    loaded.config.allow_test_params = true;
    // The engine verifies before it answers; what comes here is a valid proof.
    let mut made = prove::prove_request(&loaded, &request, drawings, |_| Ok(()))?;
    made.report.keygen_seconds = keygen_seconds;
    output::result(args.json, &made.report)?;
    made.drawn
}

/// Makes a key where there is none; the seconds that it took if it was made here.
fn find_or_make(
    params: &Path,
    make: impl FnOnce() -> Result<(), Failure>,
) -> Result<Option<f64>, Failure> {
    if params.exists() {
        return Ok(None);
    }
    let begun = Instant::now();
    match make() {
        Ok(()) => Ok(Some(begun.elapsed().as_secs_f64())),
        // Another demo was faster. Its key is whole, since the name comes last.
        Err(_) if params.exists() => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn directory(demo: &DemoArgs) -> Result<PathBuf, Failure> {
    let cache = || machine::cache_directory().map(|cache| cache.join("demo"));
    demo.dir.clone().or_else(cache).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "no cache directory is known: give one with --dir",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_appears_meanwhile_is_used() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let params = directory.path().join("key.params");
        let lost = || Err(Failure::new(Exit::Key, "already exists"));
        let failed = find_or_make(&params, lost);
        failed.expect_err("there is still no key");
        let raced = find_or_make(&params, || {
            std::fs::write(&params, b"theirs").expect("writable");
            lost()
        });
        assert!(raced.expect("theirs is there").is_none());
        let found = find_or_make(&params, || unreachable!("it is there"));
        assert!(found.expect("it is there").is_none());
        let other = directory.path().join("other.params");
        let made = find_or_make(&other, || Ok(()));
        assert!(made.expect("made").is_some());
    }
}
