//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! The check is a pure function from paths and texts to findings, so each rule is
//! tested on a few lines in memory. A rule is a file here: it takes the [`Tree`]
//! and gives its findings, and no rule knows of another.
//!
//! What it does not do: it does not parse Rust. It reads tokens (comments and
//! literals apart), which is enough to find a name where a name must not stand.

mod calls;
mod defaults;
mod edges;
mod layout;
mod lengths;
mod lock;
mod manifests;
mod pages;
mod records;
mod tokens;
mod tree;
mod unsafe_code;
mod words;

use crate::workspace::Workspace;

pub(crate) use tree::{Finding, Member, Severity, SourceFile, Tree};

/// Reads the workspace, prints what is found, and says whether no rule is broken.
///
/// # Errors
/// If the sources cannot be read.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let sources = workspace.sources()?;
    let count = sources.len();
    let findings = check(sources);
    for finding in &findings {
        println!("{finding}");
    }
    let broken = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .count();
    println!(
        "tidy: {count} files, {broken} broken rules, {} notes",
        findings.len() - broken
    );
    Ok(broken == 0)
}

/// Every finding of every rule over `sources`, by path and line.
fn check(sources: Vec<SourceFile>) -> Vec<Finding> {
    let (tree, mut findings) = Tree::new(sources);
    let rules: [fn(&Tree) -> Vec<Finding>; 11] = [
        edges::check,
        manifests::check,
        lock::check,
        unsafe_code::check,
        calls::check,
        layout::check,
        words::check,
        lengths::check,
        records::check,
        pages::check,
        defaults::check,
    ];
    for rule in rules {
        findings.extend(rule(&tree));
    }
    findings.sort_by(|left, right| (&left.path, left.line).cmp(&(&right.path, right.line)));
    findings
}

/// The findings of one rule over files given as `(path, text)`.
#[cfg(test)]
fn findings_of(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
    let sources = files
        .iter()
        .map(|(path, text)| SourceFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        })
        .collect();
    let (tree, unreadable) = Tree::new(sources);
    assert!(unreadable.is_empty(), "{unreadable:?}");
    rule(&tree).iter().map(Finding::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_come_by_path_and_line() {
        let source = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let unfinished = format!("fn a() {{}}\nfn b() {{ {}!() }}\n", "todo");
        let findings = check(vec![
            source("xtask/src/b.rs", &unfinished),
            source("xtask/src/a.rs", "\nfn a() { unsafe {} }\n"),
        ]);
        let places: Vec<_> = findings
            .iter()
            .map(|finding| (finding.path.as_str(), finding.line))
            .collect();
        assert_eq!(places, [("xtask/src/a.rs", 2), ("xtask/src/b.rs", 2)]);
    }

    #[test]
    fn a_manifest_that_is_not_toml_is_a_finding() {
        let findings = check(vec![SourceFile {
            path: "crates/cuzk-budget/Cargo.toml".to_owned(),
            text: "[package\n".to_owned(),
        }]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].severity, Severity::Error);
        assert_eq!(findings[0].line, 1);
    }
}
