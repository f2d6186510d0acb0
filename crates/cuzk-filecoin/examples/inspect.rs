//! Says what a request file asks for, and whether its witness holds.
//!
//! `cargo run -p cuzk-filecoin --example inspect [REQUEST.json]`

use std::error::Error;

use cuzk_core::{CircuitSpec, Workload};
use cuzk_filecoin::Request;
use cuzk_synth::explain;

const DEFAULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/winning-2k.json");

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| DEFAULT.into());
    let request = Request::from_json(&std::fs::read(&path)?)?;
    let workload = request.workload()?;
    let circuit = workload.filecoin_circuit();
    println!("request   {} ({:?})", request.request_id, request.priority);
    println!("proof     {}", workload.label());
    println!("circuit   {}", circuit.id());
    println!("key       {}", circuit.params_file());
    println!("vk        {}", circuit.vk_file());
    println!(
        "digest    {}",
        circuit.params_digest().as_deref().unwrap_or("not listed")
    );
    workload.check_vanilla()?;
    println!("vanilla   every proof holds");
    for index in 0..workload.part_count() {
        let part = workload.part(index)?;
        let inputs = workload.public_inputs(index)?.len();
        let found = explain(|pass| part.synthesize_whole(pass))?;
        println!("part {index}    {inputs} public inputs, {found:?}");
    }
    Ok(())
}
