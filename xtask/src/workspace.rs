//! Where the workspace lies, which files stand in it, and how to call cargo there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::tidy::SourceFile;

/// Directories that hold no sources, for a walk that cannot ask git.
const NOT_SOURCES: [&str; 2] = [".git", "target"];

/// The workspace that this program belongs to.
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The workspace two steps above the manifest of this package.
    ///
    /// # Errors
    /// If cargo did not start this program and it was moved since it was built.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir
            .parent()
            .with_context(|| format!("{} has no parent", manifest_dir.display()))?;
        if !root.join("Cargo.toml").is_file() {
            bail!("{} holds no Cargo.toml", root.display());
        }
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// The directory of the root manifest.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A call of the cargo that started this program, in the root.
    pub(crate) fn cargo(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(&self.root);
        command
    }

    /// Every file that stands in the repository, tracked or about to be, by path.
    /// Text that is not UTF-8 is read with replacement characters.
    ///
    /// # Errors
    /// If a directory or a file cannot be read.
    pub(crate) fn sources(&self) -> anyhow::Result<Vec<SourceFile>> {
        let mut paths = match self.paths_known_to_git() {
            Some(paths) => paths,
            None => {
                let mut paths = Vec::new();
                self.walk(Path::new(""), &mut paths)?;
                paths
            }
        };
        paths.sort();
        let mut sources = Vec::with_capacity(paths.len());
        for path in paths {
            let full = self.root.join(&path);
            // A tracked file may be deleted in the working tree; a symbolic link
            // to a directory is listed as if it were a file.
            if !full.is_file() {
                continue;
            }
            let bytes =
                std::fs::read(&full).with_context(|| format!("reading {}", full.display()))?;
            sources.push(SourceFile {
                path,
                text: String::from_utf8_lossy(&bytes).into_owned(),
            });
        }
        Ok(sources)
    }

    /// What git tracks or would track; `None` outside a checkout.
    fn paths_known_to_git(&self) -> Option<Vec<String>> {
        let output = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(&self.root)
            .output()
            .ok()?;
        if !output.status.success() {
            return None;
        }
        let listing = String::from_utf8_lossy(&output.stdout);
        let paths: Vec<String> = listing
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect();
        // An unpacked archive inside somebody else's checkout is unknown there.
        (!paths.is_empty()).then_some(paths)
    }

    fn walk(&self, directory: &Path, paths: &mut Vec<String>) -> anyhow::Result<()> {
        let full = self.root.join(directory);
        let entries =
            std::fs::read_dir(&full).with_context(|| format!("reading {}", full.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("reading {}", full.display()))?;
            let name = entry.file_name();
            let path = directory.join(&name);
            if entry.file_type()?.is_dir() {
                if !NOT_SOURCES.iter().any(|skipped| name == *skipped) {
                    self.walk(&path, paths)?;
                }
            } else {
                paths.push(path.to_string_lossy().into_owned());
            }
        }
        Ok(())
    }
}
