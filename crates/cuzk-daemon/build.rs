//! Code and descriptors of the wire contract, made without protoc.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;
use protox::Compiler;

/// The contract, below [`INCLUDE`].
const FILE: &str = "cuzk/v1/proving_engine.proto";
/// Where imports start.
const INCLUDE: &str = "proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={INCLUDE}/{FILE}");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let descriptors = Compiler::new([INCLUDE])?
        .include_imports(true)
        .include_source_info(true)
        .open_file(FILE)?
        .file_descriptor_set();
    // The reflection service hands these out; the code generator does not write them.
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
