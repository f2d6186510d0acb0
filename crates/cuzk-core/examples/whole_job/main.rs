//! A whole job with a circuit of one constraint, from nothing to a checked proof:
//! `cargo run -p cuzk-core --example whole_job`.

mod square;

use std::error::Error;
use std::sync::Arc;

use bellperson::groth16::Proof;
use blstrs::Scalar;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate};
use cuzk_core::{Config, Engine, JobOptions, keys};
use square::Square;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let seed = 1;
    let output = KeyOutput {
        directory: directory.path(),
        refused: &[],
        seed,
    };
    let waste = ToxicWaste::from_seed(seed);
    let key = generate(&Square { x: 0 }, &waste, &output, &|_, _, _| {})?;

    let mut config = Config::new(directory.path().to_owned());
    // The key was made from a seed that anybody can read here.
    config.allow_test_params = true;
    let engine = Engine::from_config(&config)?;
    let job = engine.submit(Arc::new(Square { x: 7 }), JobOptions::default())?;
    let reply = job.wait()?;
    print!("{}", reply.timeline);

    // The engine verified it before it left; so can whoever has the verifying key.
    let verifier = keys::verifier(&key.vk, None)?;
    let proof = Proof::read(&reply.proof[..])?;
    let verifies = verifier.verify(&proof, &[Scalar::from(49)]);
    println!("{} bytes, verified: {verifies}", reply.proof.len());
    Ok(())
}
