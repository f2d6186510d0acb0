//! `cuzk fixture`: a synthetic request.

use cuzk_filecoin::fixture::{FixtureOptions, generate};

use crate::args::FixtureArgs;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::output;
use crate::progress::Progress;

pub(super) fn run(args: &FixtureArgs) -> Result<(), Failure> {
    if let Some(path) = &args.out {
        files::check_new(path)?;
    }
    let progress = Progress::start("making the fixture");
    let options = FixtureOptions {
        window_sector_count: args.sectors,
        ..Default::default()
    };
    let circuit = &args.circuit;
    let wrong = |error| Failure::new(Exit::Input, error);
    let fixture =
        generate(circuit.kind, circuit.sector_size, args.seed, &options).map_err(wrong)?;
    let mut text = Vec::new();
    fixture.write_json(&mut text).map_err(wrong)?;
    drop(progress);
    match &args.out {
        Some(path) => files::NewFile::create(path)?.finish_with(&text),
        None => output::print(&text),
    }
}
