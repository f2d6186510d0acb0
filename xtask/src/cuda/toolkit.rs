//! The CUDA toolkit: one that the user names, or one installed under `target` from
//! wheels of exact versions, without root and without a GPU.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::workspace::Workspace;

/// The wheels, with the digest of each file that may be installed.
const WHEELS: &str = include_str!("toolkit.txt");
/// Holds the list that is installed, and is written last.
const STAMP: &str = "installed.txt";

/// A compiler, and where it comes from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Toolkit {
    /// Path of nvcc, or its name where it is looked for on the path.
    pub(crate) nvcc: PathBuf,
    /// The words for a person.
    pub(crate) origin: &'static str,
}

impl Toolkit {
    /// The toolkit that the user's environment names: `NVCC`, then `CUDA_HOME`.
    pub(crate) fn named(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let named = |name| variable(name).filter(|value| !value.is_empty());
        let by_compiler = named("NVCC").map(|nvcc| Self {
            nvcc: nvcc.into(),
            origin: "named by NVCC",
        });
        by_compiler.or_else(|| {
            named("CUDA_HOME").map(|home| Self {
                nvcc: Path::new(&home).join("bin/nvcc"),
                origin: "named by CUDA_HOME",
            })
        })
    }

    /// What the compiler says of itself, such as `release 13.0, V13.0.88`.
    ///
    /// # Errors
    /// If it cannot be started or is no nvcc.
    pub(crate) fn release(&self) -> anyhow::Result<String> {
        let text = self.says("--version")?;
        let line = text.lines().find_map(|line| line.split_once("release "));
        let (_, release) =
            line.with_context(|| format!("{} --version names no release", self.nvcc.display()))?;
        Ok(format!("release {}", release.trim()))
    }

    /// The architectures that it compiles for, such as `sm_90`; variants such as `sm_90a`
    /// aside, which nothing here is built for.
    ///
    /// # Errors
    /// If it cannot be started or is no nvcc.
    pub(crate) fn architectures(&self) -> anyhow::Result<Vec<String>> {
        let text = self.says("--list-gpu-code")?;
        let is_number = |arch: &str| {
            let number = arch.strip_prefix("sm_");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let archs = text.split_whitespace().filter(|arch| is_number(arch));
        Ok(archs.map(str::to_owned).collect())
    }

    fn says(&self, argument: &str) -> anyhow::Result<String> {
        let output = Command::new(&self.nvcc)
            .arg(argument)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("starting {}, {}", self.nvcc.display(), self.origin))?;
        ensure!(
            output.status.success(),
            "{} {argument}: {} ({})",
            self.nvcc.display(),
            output.status,
            self.origin
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The user's toolkit, or the installed one, which is installed if it is not there.
///
/// # Errors
/// If it cannot be installed.
pub(crate) fn find_or_install(workspace: &Workspace) -> anyhow::Result<Toolkit> {
    match Toolkit::named(|name| std::env::var(name).ok()) {
        Some(toolkit) => Ok(toolkit),
        None => install(workspace),
    }
}

/// Installs the wheels under `target/cuda-toolkit`, or finds them there.
///
/// # Errors
/// If there is no Python with `venv`, a wheel cannot be fetched or is another file
/// than the list says, or the folder cannot be written.
pub(crate) fn install(workspace: &Workspace) -> anyhow::Result<Toolkit> {
    let folder = workspace.root().join("target/cuda-toolkit");
    let toolkit = Toolkit {
        nvcc: folder.join("cu13/bin/nvcc"),
        origin: "installed under target",
    };
    if is_installed(&folder) {
        return Ok(toolkit);
    }
    // What an interrupted run or another list left is in the way.
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let list = folder.join("wheels.txt");
    fs::write(&list, WHEELS).with_context(|| format!("writing {}", list.display()))?;
    let venv = folder.join("venv");
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    succeed(Command::new(python).args(["-m", "venv"]).arg(&venv))?;
    succeed(
        Command::new(venv.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--disable-pip-version-check", "--only-binary=:all:"])
            .args(["--require-hashes", "-r"])
            .arg(&list),
    )?;
    let root = unpacked(&venv)?;
    // The compiler looks for its libraries in lib64; the wheels have them in lib.
    symlink("lib", root.join("lib64")).context("linking lib64")?;
    symlink(&root, folder.join("cu13")).context("linking cu13")?;
    toolkit.release()?;
    fs::write(folder.join(STAMP), WHEELS).context("marking the toolkit as installed")?;
    Ok(toolkit)
}

fn is_installed(folder: &Path) -> bool {
    let stamp = fs::read_to_string(folder.join(STAMP)).unwrap_or_default();
    stamp == WHEELS && folder.join("cu13/bin/nvcc").is_file()
}

/// The folder in a virtual environment that the wheels share.
fn unpacked(venv: &Path) -> anyhow::Result<PathBuf> {
    let libraries = venv.join("lib");
    let entries = fs::read_dir(&libraries).with_context(|| libraries.display().to_string())?;
    for entry in entries {
        let root = entry?.path().join("site-packages/nvidia/cu13");
        if root.join("bin/nvcc").is_file() {
            return Ok(root);
        }
    }
    bail!("{} holds no nvidia/cu13/bin/nvcc", libraries.display())
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().display().to_string();
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("starting {program}"))?;
    ensure!(status.success(), "{program}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(variables: &[(&str, &str)]) -> Option<Toolkit> {
        Toolkit::named(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_compiler_named_wins_over_the_folder_named() {
        let both = named(&[("NVCC", "a/nvcc"), ("CUDA_HOME", "b")]).expect("named");
        assert_eq!(both.nvcc, Path::new("a/nvcc"));
        let folder = named(&[("NVCC", ""), ("CUDA_HOME", "b")]).expect("named");
        assert_eq!(folder.nvcc, Path::new("b/bin/nvcc"));
        assert_eq!(named(&[("CUDA_HOME", "")]), None);
    }

    #[test]
    fn a_compiler_that_is_not_there_is_told_with_who_named_it() {
        for (variable, value, path) in [
            ("NVCC", "/nonexistent/nvcc", "/nonexistent/nvcc"),
            ("CUDA_HOME", "/nonexistent", "/nonexistent/bin/nvcc"),
        ] {
            let toolkit = named(&[(variable, value)]).expect("named");
            let error = toolkit.release().expect_err("nothing is there");
            let want = format!("starting {path}, named by {variable}");
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn every_wheel_has_one_version_and_a_digest() {
        let wheels: Vec<&str> = WHEELS.split("nvidia-").skip(1).collect();
        assert_eq!(wheels.len(), 5);
        for wheel in wheels {
            assert!(wheel.contains("==13.0."), "{wheel}");
            assert!(wheel.contains("--hash=sha256:"), "{wheel}");
        }
    }

    #[test]
    fn a_folder_without_its_mark_is_not_installed() {
        let folder = std::env::temp_dir().join(format!("cuzk-toolkit-{}", std::process::id()));
        let bin = folder.join("cu13/bin");
        fs::create_dir_all(&bin).expect("a folder");
        fs::write(bin.join("nvcc"), "").expect("a file");
        let bare = is_installed(&folder);
        fs::write(folder.join(STAMP), "nvidia-cuda-nvcc==12.0.1").expect("a file");
        let other = is_installed(&folder);
        fs::write(folder.join(STAMP), WHEELS).expect("a file");
        let whole = is_installed(&folder);
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!((bare, other, whole), (false, false, true));
    }
}
