//! What the rules read: files, members, manifests; and what they give: findings.

use std::fmt;

use super::tokens::{Token, declared_test_modules, tokenize};

/// Crates whose code runs inside somebody else's program: they print nothing and
/// read no environment.
pub(crate) const LIBRARIES: [&str; 6] = [
    "cuzk-budget",
    "cuzk-pinned",
    "cuzk-synth",
    "cuzk-gpu",
    "cuzk-core",
    "cuzk-filecoin",
];

/// A file as it stands in the repository.
pub(crate) struct SourceFile {
    /// Path from the root, with forward slashes.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
}

/// A package of the workspace.
pub(crate) struct Member {
    /// Its directory from the root, such as `crates/cuzk-gpu`.
    pub(crate) directory: String,
    /// The name in its manifest.
    pub(crate) name: String,
    /// The whole manifest.
    pub(crate) manifest: toml::Table,
    /// The text that the manifest was read from, to find lines in.
    pub(crate) text: String,
}

/// A Rust file, as tokens.
pub(crate) struct RustFile {
    /// Path from the root.
    pub(crate) path: String,
    /// The text that the tokens were read from.
    pub(crate) text: String,
    /// Names and punctuation, in order.
    pub(crate) tokens: Vec<Token>,
    /// The whole file is test code: by its place, or because a module of tests.
    pub(crate) is_test: bool,
}

/// Everything the rules look at, read once.
pub(crate) struct Tree {
    pub(crate) files: Vec<SourceFile>,
    pub(crate) members: Vec<Member>,
    pub(crate) rust: Vec<RustFile>,
    /// The root manifest; empty where there is none.
    pub(crate) root_manifest: toml::Table,
    /// The lock file; empty where there is none.
    pub(crate) lock: toml::Table,
}

/// Whether a finding fails the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// A rule is broken.
    Error,
    /// Worth a look; the check passes.
    Note,
}

/// One thing that a rule found.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// Path from the root.
    pub(crate) path: String,
    /// Line, counted from one; zero speaks of the whole file.
    pub(crate) line: usize,
    /// What is wrong and what would be right.
    pub(crate) message: String,
}

impl Finding {
    /// A broken rule at a line of a file.
    pub(crate) fn error(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }

    /// Something to look at in a file.
    pub(crate) fn note(path: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Note,
            path: path.to_owned(),
            line: 0,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Note => "note",
        };
        write!(f, "{severity}: {}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Tree {
    /// Reads manifests and tokens out of `files`; what is not TOML where it should
    /// be comes back as findings.
    pub(crate) fn new(files: Vec<SourceFile>) -> (Self, Vec<Finding>) {
        let mut findings = Vec::new();
        let mut members = Vec::new();
        let mut root_manifest = toml::Table::new();
        let mut lock = toml::Table::new();
        for file in &files {
            let member_directory = member_directory(&file.path);
            if member_directory.is_none()
                && !matches!(file.path.as_str(), "Cargo.toml" | "Cargo.lock")
            {
                continue;
            }
            let table = match file.text.parse::<toml::Table>() {
                Ok(table) => table,
                Err(error) => {
                    findings.push(unreadable(file, &error));
                    continue;
                }
            };
            match member_directory {
                Some(directory) => members.push(Member {
                    name: package_name(&table).unwrap_or_default().to_owned(),
                    directory: directory.to_owned(),
                    manifest: table,
                    text: file.text.clone(),
                }),
                None if file.path == "Cargo.toml" => root_manifest = table,
                None => lock = table,
            }
        }
        let rust = rust_files(&files);
        let tree = Self {
            files,
            members,
            rust,
            root_manifest,
            lock,
        };
        (tree, findings)
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        let file = self.files.iter().find(|file| file.path == path)?;
        Some(&file.text)
    }
}

impl Member {
    /// The path of its manifest from the root.
    pub(crate) fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.directory)
    }

    /// Every dependency table: its kind, and the entries by key. Tables for one
    /// target only count like the others.
    pub(crate) fn dependency_tables(&self) -> Vec<(DependencyKind, &toml::Table)> {
        let mut scopes = vec![&self.manifest];
        if let Some(targets) = self.manifest.get("target").and_then(toml::Value::as_table) {
            scopes.extend(targets.values().filter_map(toml::Value::as_table));
        }
        let mut tables = Vec::new();
        for scope in scopes {
            for kind in DependencyKind::ALL {
                if let Some(table) = scope.get(kind.key()).and_then(toml::Value::as_table) {
                    tables.push((kind, table));
                }
            }
        }
        tables
    }

    /// The first line of the manifest that begins with `key`; zero if none does.
    pub(crate) fn line_of(&self, key: &str) -> usize {
        self.text
            .lines()
            .position(|line| {
                line.strip_prefix(key)
                    .is_some_and(|rest| rest.starts_with([' ', '.', '=']))
            })
            .map_or(0, |index| index + 1)
    }
}

/// The three tables that a manifest may hold dependencies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    Normal,
    Build,
    Dev,
}

impl DependencyKind {
    const ALL: [Self; 3] = [Self::Normal, Self::Build, Self::Dev];

    /// Whether what is built for others has it.
    pub(crate) fn is_shipped(self) -> bool {
        self != Self::Dev
    }

    fn key(self) -> &'static str {
        match self {
            Self::Normal => "dependencies",
            Self::Build => "build-dependencies",
            Self::Dev => "dev-dependencies",
        }
    }
}

/// `crates/NAME`, `tests` or `xtask`, if `path` is the manifest of a member.
fn member_directory(path: &str) -> Option<&str> {
    let directory = path.strip_suffix("/Cargo.toml")?;
    let is_member = match directory.strip_prefix("crates/") {
        Some(name) => !name.contains('/'),
        None => matches!(directory, "tests" | "xtask"),
    };
    is_member.then_some(directory)
}

fn package_name(manifest: &toml::Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

fn unreadable(file: &SourceFile, error: &toml::de::Error) -> Finding {
    let offset = error.span().map_or(0, |span| span.start);
    let before = file.text.get(..offset).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    Finding::error(&file.path, line, format!("not TOML: {}", error.message()))
}

/// Every `.rs` file as tokens. A module declared under `#[cfg(test)]` makes its
/// own file and all files below it test code.
fn rust_files(files: &[SourceFile]) -> Vec<RustFile> {
    let mut rust: Vec<RustFile> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .map(|file| RustFile {
            path: file.path.clone(),
            text: file.text.clone(),
            tokens: tokenize(&file.text),
            is_test: is_test_by_place(&file.path),
        })
        .collect();
    let test_modules: Vec<String> = rust
        .iter()
        .flat_map(|file| {
            let children = child_directory(&file.path);
            declared_test_modules(&file.tokens)
                .into_iter()
                .map(move |name| format!("{children}{name}"))
        })
        .collect();
    for file in &mut rust {
        file.is_test |= test_modules.iter().any(|module| {
            file.path
                .strip_prefix(module.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
    }
    rust
}

/// Where the modules that a file declares lie, with the slash at the end.
fn child_directory(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    match stem {
        "lib" | "main" | "mod" => format!("{directory}/"),
        _ => format!("{directory}/{stem}/"),
    }
}

/// Integration tests of any package, and files of unit tests beside the code. The
/// package `tests` is no such place as a whole: its `src/` is a library and a
/// program.
fn is_test_by_place(path: &str) -> bool {
    let inside = path.strip_prefix("tests/").unwrap_or(path);
    inside.split('/').any(|part| part == "tests") || inside.ends_with("/tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let sources = files
            .iter()
            .map(|(path, text)| SourceFile {
                path: (*path).to_owned(),
                text: (*text).to_owned(),
            })
            .collect();
        Tree::new(sources).0
    }

    #[test]
    fn members_are_the_manifests_one_level_down() {
        let package = |name: &str| format!("[package]\nname = \"{name}\"\n");
        let tree = tree(&[
            ("Cargo.toml", "[workspace]\n"),
            ("crates/cuzk-gpu/Cargo.toml", &package("cuzk-gpu")),
            ("crates/cuzk-gpu/fuzz/Cargo.toml", &package("fuzz")),
            ("peers/native/Cargo.toml", &package("native")),
            ("xtask/Cargo.toml", &package("xtask")),
        ]);
        let names: Vec<_> = tree.members.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["cuzk-gpu", "xtask"]);
        assert!(tree.root_manifest.contains_key("workspace"));
    }

    #[test]
    fn target_tables_are_dependency_tables() {
        let text = "[dependencies]\na = \"1\"\n[target.'cfg(unix)'.dev-dependencies]\nb = \"1\"\n";
        let tree = tree(&[("xtask/Cargo.toml", text)]);
        let tables = tree.members[0].dependency_tables();
        let kinds: Vec<_> = tables.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [DependencyKind::Normal, DependencyKind::Dev]);
        assert_eq!(tree.members[0].line_of("b"), 4);
        assert_eq!(tree.members[0].line_of("c"), 0);
    }

    #[test]
    fn files_of_test_modules_are_test_code() {
        let lib = "mod pool;\n#[cfg(all(test, feature = \"loom\"))]\nmod models;\n";
        let tree = tree(&[
            ("crates/a/src/lib.rs", lib),
            ("crates/a/src/models.rs", "mod wake;"),
            ("crates/a/src/models/wake.rs", ""),
            ("crates/a/src/pool.rs", "#[cfg(test)]\nmod cases;"),
            ("crates/a/src/pool/cases.rs", ""),
            ("crates/a/src/pool/tests.rs", ""),
            ("crates/a/src/pool/other.rs", ""),
            ("tests/src/lib.rs", ""),
            ("tests/tests/end_to_end.rs", ""),
        ]);
        let tested: Vec<_> = tree
            .rust
            .iter()
            .filter(|file| file.is_test)
            .map(|file| file.path.as_str())
            .collect();
        assert_eq!(
            tested,
            [
                "crates/a/src/models.rs",
                "crates/a/src/models/wake.rs",
                "crates/a/src/pool/cases.rs",
                "crates/a/src/pool/tests.rs",
                "tests/tests/end_to_end.rs",
            ]
        );
    }
}
