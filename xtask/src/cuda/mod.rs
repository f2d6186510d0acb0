//! `cargo xtask cuda`: the toolkit, and builds with the feature `cuda`.
//!
//! A toolkit that the user names (`NVCC`, `CUDA_HOME`) wins over the one that is
//! installed here. The builds are cargo's; this sets what they read: `NVCC` and
//! `CUZK_CUDA_ARCHS`.

#[cfg(test)]
mod rebuilds;
mod sanitize;
pub(crate) mod toolkit;

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::workspace::Workspace;

/// Arguments of `cargo xtask cuda`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Install nvcc, its headers and the runtime library under target/cuda-toolkit.
    Toolkit,
    /// Build with the feature `cuda`; cuzk-gpu unless the cargo arguments name packages.
    Build(Build),
    /// Run tests with the feature `cuda`, likewise.
    Test(Build),
    /// Run small tests of cuzk-gpu under compute-sanitizer, which is looked for on the
    /// path and in the toolkit that CUDA_HOME names.
    Sanitize(sanitize::Sanitize),
}

/// What to build, and for which devices.
#[derive(clap::Args)]
struct Build {
    /// Compile for this architecture; may be given more than once [default: those of
    /// the devices here, or all where there is none].
    #[arg(long = "arch", value_name = "SM", conflicts_with = "all")]
    archs: Vec<String>,
    /// Compile for every architecture that the build script lists.
    #[arg(long)]
    all: bool,
    /// Build the release profile.
    #[arg(long)]
    release: bool,
    /// Passed to cargo.
    #[arg(last = true, value_name = "CARGO ARGUMENTS")]
    cargo: Vec<String>,
}

/// Does what was asked; whether it went well.
///
/// # Errors
/// If the toolkit cannot be installed or cargo cannot be started.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<bool> {
    match &arguments.command {
        Action::Toolkit => {
            let toolkit = toolkit::install(workspace)?;
            println!("{} ({})", toolkit.nvcc.display(), toolkit.release()?);
            Ok(true)
        }
        Action::Build(build) => drive(workspace, "build", build),
        Action::Test(build) => drive(workspace, "test", build),
        Action::Sanitize(arguments) => sanitize::run(workspace, arguments),
    }
}

fn drive(workspace: &Workspace, verb: &str, build: &Build) -> anyhow::Result<bool> {
    let toolkit = toolkit::find_or_install(workspace)?;
    let archs = archs_of(build);
    let release = toolkit.release()?;
    println!(
        "compiler: {} ({release}, {})",
        toolkit.nvcc.display(),
        toolkit.origin
    );
    check_archs(&archs, &toolkit.architectures()?)?;
    println!(
        "architectures: {}",
        if archs.is_empty() {
            "all that the build script lists and the toolkit knows".to_owned()
        } else {
            archs.join(", ")
        }
    );
    let mut cargo = workspace.cargo();
    cargo.arg(verb).args(cargo_arguments(build));
    cargo.env("NVCC", &toolkit.nvcc);
    if archs.is_empty() {
        cargo.env_remove("CUZK_CUDA_ARCHS");
    } else {
        cargo.env("CUZK_CUDA_ARCHS", archs.join(","));
    }
    // The build's output goes to the same terminal past this program's buffer.
    let _ = std::io::stdout().flush();
    let status = cargo.status().context("starting cargo")?;
    Ok(status.success())
}

/// The architectures to compile for; none means all.
fn archs_of(build: &Build) -> Vec<String> {
    match build {
        Build { all: true, .. } => Vec::new(),
        Build { archs, .. } if archs.is_empty() => archs_of_devices(),
        Build { archs, .. } => archs.clone(),
    }
}

/// Whether the compiler knows every architecture, told before anything is built: it says so
/// of one at a time, and not which it knows.
fn check_archs(archs: &[String], known: &[String]) -> anyhow::Result<()> {
    for arch in archs.iter().flat_map(|archs| archs.split(',')) {
        // The build script takes `90` for `sm_90`.
        let number = arch.trim().trim_start_matches("sm_");
        ensure!(
            known.contains(&format!("sm_{number}")),
            "--arch {arch}: the compiler has no such architecture, it knows {}",
            known.join(", ")
        );
    }
    Ok(())
}

fn cargo_arguments(build: &Build) -> Vec<&str> {
    let mut arguments = vec!["--features", "cuda"];
    if build.release {
        arguments.push("--release");
    }
    let names_packages = build.cargo.iter().any(|argument| {
        let name = argument.split('=').next().unwrap_or_default();
        name.starts_with("-p") || ["--package", "--workspace", "--all"].contains(&name)
    });
    if !names_packages {
        arguments.extend(["-p", "cuzk-gpu"]);
    }
    arguments.extend(build.cargo.iter().map(String::as_str));
    arguments
}

/// The architectures of the devices that the driver's own tool sees.
fn archs_of_devices() -> Vec<String> {
    let output = Command::new("nvidia-smi")
        .args(["--query-gpu=compute_cap", "--format=csv,noheader"])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => archs_in(&String::from_utf8_lossy(&output.stdout)),
        _ => Vec::new(),
    }
}

/// `9.0` is sm_90; devices of one kind count once.
fn archs_in(capabilities: &str) -> Vec<String> {
    let mut archs: Vec<String> = capabilities
        .lines()
        .filter_map(|line| line.trim().split_once('.'))
        .filter(|(major, minor)| (major.parse::<u8>().is_ok()) && minor.parse::<u8>().is_ok())
        .map(|(major, minor)| format!("sm_{major}{minor}"))
        .collect();
    archs.sort();
    archs.dedup();
    archs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(cargo: &[&str]) -> Build {
        Build {
            archs: Vec::new(),
            all: false,
            release: false,
            cargo: cargo
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect(),
        }
    }

    #[test]
    fn devices_of_one_kind_are_one_architecture() {
        assert_eq!(archs_in("9.0\n8.9\n9.0\n"), ["sm_89", "sm_90"]);
        assert_eq!(archs_in("12.0\n"), ["sm_120"]);
        assert!(archs_in("[N/A]\n\n").is_empty());
    }

    #[test]
    fn an_architecture_that_the_compiler_lacks_is_told_with_those_it_has() {
        let known = ["sm_80", "sm_90", "sm_120"].map(str::to_owned);
        let check = |archs: &[&str]| {
            let archs: Vec<String> = archs.iter().map(|&arch| arch.to_owned()).collect();
            check_archs(&archs, &known).map_err(|error| error.to_string())
        };
        for good in [&[][..], &["sm_90"], &["90", "sm_120"], &["sm_80,sm_90"]] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for wrong in ["sm_12", "sm_90a", "", "sm_80,sm_12"] {
            let error = check(&["sm_80", wrong]).expect_err(wrong);
            assert!(error.ends_with("it knows sm_80, sm_90, sm_120"), "{error}");
        }
    }

    #[test]
    fn packages_are_the_callers_where_any_is_named() {
        let default = ["--features", "cuda", "-p", "cuzk-gpu", "--lib"];
        assert_eq!(cargo_arguments(&build(&["--lib"])), default);
        for named in [["-p", "cuzk-tests"], ["--package=cuzk-tests", "--bins"]] {
            let expected = ["--features", "cuda", named[0], named[1]];
            assert_eq!(cargo_arguments(&build(&named)), expected);
        }
    }
}
