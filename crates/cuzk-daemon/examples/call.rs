//! The program as a library call: `cargo run -p cuzk-daemon --example call`.
//!
//! It prints the configuration that one setting changes, then makes a synthetic
//! request and is refused, with an exit code that says why, when it asks for a
//! proof without a key.

use std::error::Error;

use cuzk_daemon::{Exit, run};

fn main() -> Result<(), Box<dyn Error>> {
    assert_eq!(
        run(["cuzk", "--set", "engine.threads=1", "config"]),
        Exit::Success
    );

    let directory = tempfile::tempdir()?;
    let place = |name: &str| directory.path().join(name).display().to_string();
    let (request, keys, proof) = (place("request.json"), place("keys"), place("proof.bin"));
    let fixture = ["cuzk", "fixture", "--kind", "winning", "--out", &request];
    assert_eq!(run(fixture), Exit::Success);

    let prove = ["cuzk", "prove", "--request", &request, "--params", &keys];
    let exit = run(prove.into_iter().chain(["--out", &proof]));
    assert_eq!(exit, Exit::Key);
    println!("no key, no proof: exit {}", exit as u8);
    Ok(())
}
