//! Tells the crate whether the curve library underneath was compiled for processors
//! with ADX, which it decides by the rules below. A binary can then refuse another
//! processor in words. With the feature `cuda` it has the device code compiled.

mod cuda;
mod faults;
mod nvcc;

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rustc-check-cfg=cfg(cuzk_adx)");
    let is_x86 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    if is_x86 && env::var_os("CARGO_FEATURE_PORTABLE").is_none() && uses_adx() {
        println!("cargo::rustc-cfg=cuzk_adx");
    }
    cuda::compile();
}

/// With a target processor on the command line its features count, otherwise those
/// of the machine that builds.
fn uses_adx() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    if flags.contains("target-cpu=") {
        let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
        return features.split(',').any(|feature| feature == "adx");
    }
    host_has_adx()
}

#[cfg(target_arch = "x86_64")]
fn host_has_adx() -> bool {
    std::is_x86_feature_detected!("adx")
}

#[cfg(not(target_arch = "x86_64"))]
fn host_has_adx() -> bool {
    false
}
