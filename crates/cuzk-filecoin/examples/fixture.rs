//! Writes a synthetic proof request to standard output.
//!
//! `cargo run -p cuzk-filecoin --example fixture -- wpost 2KiB 7 > request.json`

use std::error::Error;
use std::io::{self, BufWriter};

use cuzk_filecoin::ProofKind;
use cuzk_filecoin::fixture::{FixtureOptions, generate};

const USAGE: &str = "usage: fixture porep|snap|wpost|winning SECTOR_SIZE SEED [WINDOW_SECTORS]";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, sector_size, seed, rest @ ..] = arguments.as_slice() else {
        return Err(USAGE.into());
    };
    let window_sector_count = match rest {
        [] => None,
        [count] => Some(count.parse()?),
        _ => return Err(USAGE.into()),
    };
    let options = FixtureOptions {
        window_sector_count,
        ..FixtureOptions::default()
    };
    let kind: ProofKind = kind.parse()?;
    let fixture = generate(kind, sector_size.parse()?, seed.parse()?, &options)?;
    fixture.write_json(BufWriter::new(io::stdout().lock()))?;
    Ok(())
}
