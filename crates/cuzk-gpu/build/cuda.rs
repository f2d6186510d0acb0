//! Compiles `cuda/*.cu` to machine code of the named architectures, never to code that
//! the driver would compile at first use.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::faults;
use crate::nvcc::{Nvcc, Unit};

/// Compiled for where `CUZK_CUDA_ARCHS` names none, as far as the toolkit knows them.
const ARCHS: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

/// Functions that sppark's headers declare and `cuda/devices.cu` defines, under names of
/// ours: sppark compiles its own where it sees the compiler.
const DEVICE_LIST: [&str; 3] = ["gpu_props", "ngpus", "select_gpu"];

/// Does nothing without the feature `cuda`.
pub(crate) fn compile() {
    println!("cargo::rustc-check-cfg=cfg(cuzk_cuda_stubs)");
    if variable("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    for name in ["CUZK_CUDA_SKIP", "CUZK_CUDA_ARCHS", "NVCC", "CUDA_HOME"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    if variable("CUZK_CUDA_SKIP").is_some_and(|value| value != "0") {
        println!("cargo::rustc-cfg=cuzk_cuda_stubs");
        return;
    }
    println!("cargo::rerun-if-changed=cuda");
    let sppark = PathBuf::from(variable("DEP_SPPARK_ROOT").expect("sppark names its headers"));
    let blst = variable("DEP_BLST_C_SRC").expect("blst names its sources");
    let out = PathBuf::from(variable("OUT_DIR").expect("cargo names a folder"));
    let sppark_found_one = variable("DEP_SPPARK_TARGET").is_some();

    let nvcc = Nvcc::new(compiler(sppark_found_one));
    println!("cargo::rerun-if-changed={}", nvcc.path.display());
    let mut flags = vec![
        "-O3".to_owned(),
        "-std=c++17".to_owned(),
        "-Xcompiler=-fPIC".to_owned(),
        "-DFEATURE_BLS12_381".to_owned(),
        // A launch looks its kernel up. Otherwise it is looked up once, at the first
        // launch, and one that failed there could not be launched ever after.
        "-Xcompiler=-D__NV_LEGACY_LAUNCH".to_owned(),
        format!("-I{}", sppark.display()),
        format!("-I{blst}"),
    ];
    let archs = architectures(&nvcc);
    println!("cargo::rustc-env=CUZK_CUDA_TOOLKIT={}", nvcc.release());
    let names: Vec<String> = archs.iter().map(|arch| format!("sm_{arch}")).collect();
    println!("cargo::rustc-env=CUZK_CUDA_COMPILED={}", names.join(" "));
    for name in DEVICE_LIST {
        flags.push(format!("-D{name}=cuzk_{name}"));
    }
    for arch in archs {
        flags.push(format!("-gencode=arch=compute_{arch},code=sm_{arch}"));
    }
    let units: Vec<Unit> = sources().map(|source| Unit::new(source, &out)).collect();
    let archive = out.join("libcuzk_cuda.a");
    nvcc.archive(&units, &flags, &archive);

    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=cuzk_cuda");
    if let Some(folder) = nvcc.library_folder() {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    for library in ["cudart_static", "stdc++", "dl", "rt", "pthread"] {
        println!("cargo::rustc-link-lib={library}");
    }
    faults::link(&nvcc, &flags, &archive, &out);
}

/// `NVCC`, or what sppark found on the path, so that all units have one compiler; then
/// `CUDA_HOME`, then what `cargo xtask cuda toolkit` installed.
fn compiler(sppark_found_one: bool) -> PathBuf {
    let found = sppark_found_one.then(|| "nvcc".to_owned());
    if let Some(nvcc) = variable("NVCC").or(found) {
        return nvcc.into();
    }
    let installed = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/cuda-toolkit/cu13"
    );
    let home = variable("CUDA_HOME").unwrap_or_else(|| installed.to_owned());
    let nvcc = Path::new(&home).join("bin/nvcc");
    assert!(
        nvcc.is_file(),
        "the feature `cuda` wants nvcc, and there is no {}: run `cargo xtask cuda toolkit`, \
         or set NVCC or CUDA_HOME, or CUZK_CUDA_SKIP=1 to build without kernels",
        nvcc.display()
    );
    nvcc
}

/// Numbers such as `90` of the architectures to compile for.
fn architectures(nvcc: &Nvcc) -> Vec<String> {
    let number = |arch: &str| arch.trim().trim_start_matches("sm_").to_owned();
    let Some(named) = variable("CUZK_CUDA_ARCHS") else {
        let known = nvcc.says("--list-gpu-code");
        let known: Vec<&str> = known.split_whitespace().collect();
        return ARCHS
            .into_iter()
            .filter(|arch| known.contains(arch))
            .map(number)
            .collect();
    };
    let archs: Vec<String> = named.split(',').map(number).collect();
    for arch in &archs {
        // Code of a variant such as sm_90a runs nowhere else: nothing here needs it.
        let is_number = arch.parse::<u32>().is_ok();
        assert!(
            is_number,
            "CUZK_CUDA_ARCHS: {arch:?} is no architecture such as sm_90"
        );
    }
    archs
}

fn sources() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("cuda").expect("the crate has a folder `cuda`");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "cu"))
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
