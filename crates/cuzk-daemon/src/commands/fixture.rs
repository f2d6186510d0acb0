//! `cuzk fixture`: a synthetic request.

use cuzk_filecoin::ProofKind;
use cuzk_filecoin::fixture::{FixtureError, FixtureOptions, generate};

use crate::args::FixtureArgs;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::output;
use crate::progress::Progress;

pub(super) fn run(args: &FixtureArgs) -> Result<(), Failure> {
    if let Some(path) = &args.out {
        files::check_new(path)?;
    }
    let circuit = &args.circuit;
    check_options(circuit.kind, args)?;
    let progress = Progress::start("making the fixture");
    let options = FixtureOptions {
        miner_id: args.miner,
        first_sector_number: args.first_sector,
        window_sector_count: args.sectors,
        window_partition_index: args.partition.unwrap_or(0),
        registered_proof: args.registered_proof,
    };
    let fixture =
        generate(circuit.kind, circuit.sector_size, args.seed, &options).map_err(named)?;
    let wrong = |error| Failure::new(Exit::Failure, error);
    let mut text = Vec::new();
    fixture.write_json(&mut text).map_err(wrong)?;
    drop(progress);
    match &args.out {
        Some(path) => files::NewFile::create(path)?.finish_with(&text),
        None => output::print(&text),
    }
}

/// Refuses options that the kind has no use for.
fn check_options(kind: ProofKind, args: &FixtureArgs) -> Result<(), Failure> {
    let of_partition = [
        ("--sectors", args.sectors.is_some()),
        ("--partition", args.partition.is_some()),
    ];
    for (option, is_given) in of_partition {
        if is_given && kind != ProofKind::WindowPost {
            let kind = kind.short_name();
            let why = format!("{option}: only wpost has partitions of sectors, not {kind}");
            return Err(Failure::new(Exit::Usage, why));
        }
    }
    Ok(())
}

/// The failure with the option that is at fault.
fn named(error: FixtureError) -> Failure {
    let option = match &error {
        FixtureError::SectorCount { .. } => "--sectors",
        FixtureError::Partition { .. } => "--partition",
        FixtureError::SectorNumber { .. } => "--first-sector",
        FixtureError::Registered(_) => "--registered-proof",
        _ => return Failure::new(Exit::Failure, error),
    };
    let reason = match &error {
        FixtureError::Registered(wrong) => wrong.reason.clone(),
        other => other.to_string(),
    };
    Failure::new(Exit::Usage, format!("{option}: {reason}"))
}
