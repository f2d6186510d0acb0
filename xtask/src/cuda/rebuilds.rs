//! What makes the device code be compiled again: cargo, with the build script of
//! cuzk-gpu in a package of its own and a compiler that only notes how it is called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use tempfile::TempDir;

use crate::workspace::Workspace;

/// Stands for nvcc: answers, makes the files that it was asked for, and writes a line
/// for each call that compiles or archives. A source that holds `#error` fails.
const COMPILER: &str = r#"#!/bin/sh
log=$(dirname "$0")/calls
case "$*" in
--version) echo 'Cuda compilation tools, release 13.0, V13.0.88'; exit ;;
--list-gpu-code) printf 'sm_75\nsm_90\nsm_120\n'; exit ;;
*--lib*) echo archive >>"$log" ;;
*) echo "$*" >>"$log" ;;
esac
while [ $# -gt 0 ]; do
    case "$1" in
    -c) source=$2 ;;
    -o) out=$2 ;;
    -MF) read=$2 ;;
    esac
    shift
done
if [ -n "$source" ]; then
    if grep -q '#error' "$source"; then exit 2; fi
    printf '%s : %s \\\n' "$out" "$source" >"$read"
    case "$source" in *.cu) printf '    cuda/shared.cuh \n' >>"$read" ;; esac
fi
printf '!<arch>\n' >"$out"
"#;

/// A package with the build script, two units and a header, and stand-ins for the two
/// packages whose sources it asks for.
struct Package {
    folder: TempDir,
}

impl Package {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let package = Self { folder };
        let workspace = Workspace::find().expect("a workspace");
        let scripts = workspace.root().join("crates/cuzk-gpu/build");
        for file in ["main.rs", "cuda.rs", "faults.rs", "nvcc.rs"] {
            let script = fs::read_to_string(scripts.join(file)).expect("a build script");
            package.write(&format!("build/{file}"), &script);
        }
        package.write(
            "Cargo.toml",
            "[package]\nname = \"units\"\nedition = \"2024\"\nbuild = \"build/main.rs\"\n\
             [features]\ncuda = []\n[dependencies]\n\
             sppark = { path = \"sppark\" }\nblst = { path = \"blst\" }\n[workspace]\n",
        );
        package.write("src/lib.rs", "");
        package.write("tests/device.rs", "");
        for (name, told) in [("sppark", "ROOT=sppark"), ("blst", "C_SRC=blst")] {
            let manifest =
                format!("[package]\nname = \"{name}\"\nedition = \"2024\"\nlinks = \"{name}\"\n");
            package.write(&format!("{name}/Cargo.toml"), &manifest);
            package.write(&format!("{name}/src/lib.rs"), "");
            let script = format!("fn main() {{ println!(\"cargo::metadata={told}\"); }}\n");
            package.write(&format!("{name}/build.rs"), &script);
        }
        for file in ["msm.cu", "ntt.cu", "shared.cuh", "tests/faults.cpp"] {
            package.write(&format!("cuda/{file}"), "");
        }
        package.write("bin/nvcc", COMPILER);
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(package.path("bin/nvcc"), executable).expect("set");
        package
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("written");
    }

    fn touch(&self, name: &str) {
        let file = fs::File::options().append(true).open(self.path(name));
        let touched = file.and_then(|file| file.set_modified(SystemTime::now()));
        touched.expect("touched");
    }

    fn cargo(&self, variables: &[(&str, &str)]) -> Command {
        let workspace = Workspace::find().expect("a workspace");
        let mut cargo = workspace.cargo();
        cargo
            .current_dir(self.folder.path())
            .args(["build", "--offline", "--quiet", "--features", "cuda"])
            .arg("--target-dir")
            .arg(self.path("target"))
            .env("NVCC", self.path("bin/nvcc"));
        for name in ["CUZK_CUDA_ARCHS", "CUZK_CUDA_SKIP", "CUDA_HOME"] {
            cargo.env_remove(name);
        }
        cargo.envs(variables.iter().copied());
        cargo
    }

    /// Builds, and says what the compiler made: names of units and `archive`, sorted.
    fn build(&self, variables: &[(&str, &str)]) -> Vec<String> {
        let status = self.cargo(variables).status().expect("cargo starts");
        assert!(status.success(), "{status}");
        let calls = self.calls();
        let mut made: Vec<String> = calls.iter().map(|call| made_by(call).to_owned()).collect();
        made.sort();
        made
    }

    /// The calls since the last question.
    fn calls(&self) -> Vec<String> {
        let log = self.path("bin/calls");
        let calls = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(&log);
        calls.lines().map(str::to_owned).collect()
    }

    /// What a build that must fail prints.
    fn refused(&self, variables: &[(&str, &str)]) -> String {
        let output = self.cargo(variables).output().expect("cargo starts");
        assert!(!output.status.success(), "it was built");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// The source in a call; the whole line where none was compiled.
fn made_by(call: &str) -> &str {
    let mut words = call.split(' ').skip_while(|word| *word != "-c");
    let source = words.nth(1).map(Path::new);
    let name = source.and_then(|source| source.file_name()?.to_str());
    name.unwrap_or(call)
}

const ALL: [&str; 4] = ["archive", "faults.cpp", "msm.cu", "ntt.cu"];

#[test]
fn units_are_compiled_again_if_something_they_read_has_changed() {
    let package = Package::new();
    assert_eq!(package.build(&[]), ALL, "the first build");
    assert!(package.build(&[]).is_empty(), "nothing changed");
    package.touch("src/lib.rs");
    assert!(package.build(&[]).is_empty(), "Rust changed");
    package.touch("cuda/ntt.cu");
    assert_eq!(package.build(&[]), ["archive", "ntt.cu"], "a unit changed");
    package.touch("cuda/shared.cuh");
    assert_eq!(
        package.build(&[]),
        ["archive", "msm.cu", "ntt.cu"],
        "a header changed"
    );
    package.write("cuda/copy.cu", "");
    assert_eq!(package.build(&[]), ["archive", "copy.cu"], "a unit is new");
    fs::remove_file(package.path("cuda/copy.cu")).expect("removed");
    assert_eq!(package.build(&[]), ["archive"], "a unit has gone");
}

#[test]
fn all_units_are_compiled_again_for_other_architectures() {
    let package = Package::new();
    let status = package.cargo(&[]).status().expect("cargo starts");
    assert!(status.success());
    // Of those listed the compiler knows two, and one that is not listed.
    for call in package.calls().iter().filter(|call| *call != "archive") {
        for arch in ["90", "120"] {
            let flag = format!("-gencode=arch=compute_{arch},code=sm_{arch}");
            assert!(call.contains(&flag), "{call}");
        }
        assert_eq!(call.matches("-gencode").count(), 2, "{call}");
    }
    let one = [("CUZK_CUDA_ARCHS", "sm_90")];
    assert_eq!(package.build(&one), ALL, "another list");
    assert!(package.build(&one).is_empty(), "the same list");
    let error = package.refused(&[("CUZK_CUDA_ARCHS", "hopper")]);
    assert!(error.contains("\"hopper\" is no architecture"), "{error}");
}

#[test]
fn a_unit_that_failed_is_compiled_again() {
    let package = Package::new();
    package.write("cuda/msm.cu", "#error\n");
    let error = package.refused(&[]);
    assert!(error.contains("msm.cu"), "{error}");
    package.calls();
    package.write("cuda/msm.cu", "");
    assert!(package.build(&[]).contains(&"msm.cu".to_owned()));
}

#[test]
fn without_device_code_no_compiler_is_called() {
    let package = Package::new();
    assert!(package.build(&[("CUZK_CUDA_SKIP", "1")]).is_empty());
    assert_eq!(package.build(&[]), ALL);
    assert!(package.build(&[("CUZK_CUDA_SKIP", "1")]).is_empty());
    let again = package.build(&[]);
    assert_eq!(again, ["archive"], "the units are still there");
}

#[test]
fn a_missing_compiler_is_an_error_that_says_what_to_do() {
    let package = Package::new();
    let error = package.refused(&[("NVCC", ""), ("CUDA_HOME", "nowhere")]);
    assert!(error.contains("there is no nowhere/bin/nvcc"), "{error}");
    assert!(error.contains("cargo xtask cuda toolkit"), "{error}");
}
