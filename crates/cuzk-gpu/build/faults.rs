//! Calls of CUDA that fail on demand, for the integration tests alone: their linker
//! sends each call to `cuda/tests/faults.cpp`, which passes it on or fails it. No other
//! program links any of this.

use std::path::Path;

use crate::nvcc::{Nvcc, Unit};

/// Functions of the runtime that the device code calls and that can fail. A test
/// compares the list with the archive.
const RUNTIME: [&str; 19] = [
    "__cudaPopCallConfiguration",
    "__cudaPushCallConfiguration",
    "cudaDeviceSynchronize",
    "cudaFreeAsync",
    "cudaFuncGetAttributes",
    "cudaFuncSetAttribute",
    "cudaGetDevice",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaGetLastError",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchKernel",
    "cudaMallocAsync",
    "cudaMemGetInfo",
    "cudaMemsetAsync",
    "cudaSetDevice",
    "cudaStreamCreateWithFlags",
    "cudaStreamDestroy",
    "cudaStreamSynchronize",
];

/// Where functions of the driver are looked up by name.
const LOOK_UP: &str = "dlsym";

/// Compiles the calls that fail and tells cargo to link them into tests.
pub(crate) fn link(nvcc: &Nvcc, flags: &[String], archive: &Path, out: &Path) {
    let unit = Unit::new("cuda/tests/faults.cpp".into(), out);
    let object = nvcc.object(&unit, flags);
    println!("cargo::rustc-link-arg-tests={}", object.display());
    for name in RUNTIME.iter().chain([&LOOK_UP]) {
        println!("cargo::rustc-link-arg-tests=-Wl,--wrap={name}");
    }
    // Behind the object, for linkers that look at each library once.
    for library in ["cudart_static", "stdc++", "dl", "rt", "pthread"] {
        println!("cargo::rustc-link-arg-tests=-l{library}");
    }
    println!("cargo::rustc-env=CUZK_CUDA_WRAPPED={}", RUNTIME.join(" "));
    println!("cargo::rustc-env=CUZK_CUDA_ARCHIVE={}", archive.display());
}
