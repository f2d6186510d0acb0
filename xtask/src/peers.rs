//! `cargo xtask peers`: ours beside other software, by the programs that measure it, and one
//! table of what they say.
//!
//! On the processor the peer is bellperson's native prover, which `cuzk-bench` links. On a
//! device they are programs of their own: bellperson with supraseal-c2, and sppark's kernels.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::ablate::{On, bench};
use crate::cuda::toolkit;
use crate::record::{self, Record};
use crate::workspace::Workspace;

/// Where programs and records go without a machine's name.
const KEPT: &str = "target/peers";

/// Arguments of `cargo xtask peers`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where proofs are made.
    #[arg(long, value_enum, default_value_t = On::Cpu)]
    on: On,
    /// Which: native on the processor; supraseal and sppark on a device; all without any.
    #[arg(value_name = "PEER")]
    names: Vec<String>,
    /// Pairs of each case.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// The machine's short name, under which records are kept [default: target/peers].
    #[arg(long, value_name = "NAME", value_parser = record::plain_name)]
    machine: Option<String>,
    /// A built `cuzk-bench` [default: it is built].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// A folder with built peers [default: they are built].
    #[arg(long, value_name = "DIR")]
    built: Option<PathBuf>,
}

/// Other software, and what measures ours beside it.
struct Peer {
    name: &'static str,
    on: On,
    /// The program that it is, in its folder under `xtask/peers`.
    program: Option<&'static str>,
    command: &'static [&'static str],
    /// How the command takes the number of pairs.
    pairs: &'static str,
    record: &'static str,
}

const PEERS: [Peer; 3] = [
    Peer {
        name: "native",
        on: On::Cpu,
        program: None,
        command: &["cpu-prove", "--kinds", "porep,wpost,winning"],
        pairs: "--pairs",
        record: "cpu-prove",
    },
    Peer {
        name: "supraseal",
        on: On::Gpu,
        program: Some("cuzk-peer-supraseal"),
        command: &["device-prove", "--log-sizes", "20,22,24"],
        pairs: "--proofs",
        record: "peer-prove",
    },
    Peer {
        name: "sppark",
        on: On::Gpu,
        program: Some("cuzk-peer-sppark"),
        command: &["kernels", "--log-sizes", "22,24"],
        pairs: "--pairs",
        record: "kernels",
    },
];

/// Measures and prints; whether every case is verified.
///
/// # Errors
/// If there is no such peer, or a program does not build or fails.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<bool> {
    let chosen = chosen(arguments)?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => bench(workspace, arguments.on)?,
    };
    let kept = workspace.root().join(KEPT);
    let folder = match &arguments.machine {
        Some(machine) => workspace.root().join(record::FOLDER).join(machine),
        None => kept.clone(),
    };
    let mut is_well = true;
    for peer in chosen {
        let mut command = Command::new(&program);
        command.args(peer.command);
        command.args([peer.pairs, &arguments.pairs.to_string()]);
        command.arg("--keys").arg(kept.join("keys"));
        if let Some(name) = peer.program {
            let built = match &arguments.built {
                Some(folder) => folder.join(name),
                None => build(workspace, peer.name, name)?,
            };
            command.arg("--peer").arg(built);
        }
        let status = command.arg("--out").arg(&folder).status();
        let status = status.with_context(|| program.display().to_string())?;
        ensure!(status.success(), "beside {}: {status}", peer.name);
        let path = folder.join(format!("{}.json", peer.record));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let record = Record::parse(&text).with_context(|| path.display().to_string())?;
        print!("{}", record::shown(&record));
        is_well &= record.cases.iter().all(|case| case.verified);
    }
    Ok(is_well)
}

fn chosen(arguments: &Arguments) -> anyhow::Result<Vec<&'static Peer>> {
    let here = || PEERS.iter().filter(|peer| peer.on == arguments.on);
    if arguments.names.is_empty() {
        return Ok(here().collect());
    }
    let find = |name: &String| {
        let known: Vec<&str> = here().map(|peer| peer.name).collect();
        let found = here().find(|peer| peer.name == *name);
        found.with_context(|| format!("no peer {name} here, but {}", known.join(", ")))
    };
    arguments.names.iter().map(find).collect()
}

/// Builds a peer with the toolkit's compiler, beside the workspace that it is no member of.
fn build(workspace: &Workspace, folder: &str, name: &str) -> anyhow::Result<PathBuf> {
    let toolkit = toolkit::find_or_install(workspace)?;
    let target = workspace.root().join(KEPT);
    let libraries = toolkit.nvcc.parent().and_then(Path::parent);
    let libraries = libraries.map(|home| home.join("lib")).unwrap_or_default();
    let status = workspace
        .cargo()
        .arg("build")
        .current_dir(workspace.root().join("xtask/peers").join(folder))
        .env("NVCC", &toolkit.nvcc)
        .env("LIBRARY_PATH", libraries)
        .env("CARGO_TARGET_DIR", &target)
        .status()?;
    ensure!(status.success(), "{folder} does not build");
    Ok(target.join("debug").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_those_of_the_place() {
        let names = |on, names: &[&str]| {
            let arguments = Arguments {
                on,
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                pairs: 1,
                machine: None,
                program: None,
                built: None,
            };
            let found = chosen(&arguments).map_err(|error| error.to_string())?;
            Ok::<_, String>(found.iter().map(|peer| peer.name).collect::<Vec<_>>())
        };
        assert_eq!(names(On::Cpu, &[]), Ok(vec!["native"]));
        assert_eq!(names(On::Gpu, &[]), Ok(vec!["supraseal", "sppark"]));
        assert_eq!(names(On::Gpu, &["sppark"]), Ok(vec!["sppark"]));
        let error = names(On::Cpu, &["sppark"]).expect_err("it needs a device");
        assert_eq!(error, "no peer sppark here, but native");
    }
}
