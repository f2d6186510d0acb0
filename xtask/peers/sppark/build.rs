//! Compiles the one unit with what `NVCC` names; the architectures come from
//! `NVCC_APPEND_FLAGS`, as the page beside says.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=cuda");
    println!("cargo::rerun-if-env-changed=NVCC_APPEND_FLAGS");
    let sppark = env::var("DEP_SPPARK_ROOT").expect("sppark names its headers");
    let blst = env::var("DEP_BLST_C_SRC").expect("blst names its sources");
    let mut build = cc::Build::new();
    if std::arch::is_x86_feature_detected!("adx") {
        // As blst decides by itself: its functions have other names then.
        build.define("__ADX__", None);
    }
    build
        .cuda(true)
        .cudart("static")
        .std("c++17")
        .opt_level(3)
        .define("FEATURE_BLS12_381", None)
        .include(sppark)
        .include(blst)
        .file("cuda/kernels.cu")
        .compile("kernels");
}
