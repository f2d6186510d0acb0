//! Words that must not stand in the repository: directories of somebody's machine
//! and hosts of package registries. Neither is true for the next reader.
//!
//! The lists hold the words in pieces, so that this file passes its own rule.

use super::tree::{Finding, SourceFile, Tree};

/// Directories at the root of a machine that hold somebody's files.
const HOMES: [&str; 4] = ["Users", "home", "root", "work"];

/// Registries: the name and the domain it is under.
const HOSTS: [(&str, &str); 11] = [
    ("crates", "io"),
    ("debian", "org"),
    ("docker", "io"),
    ("ghcr", "io"),
    ("npmjs", "com"),
    ("npmjs", "org"),
    ("proxy.golang", "org"),
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("quay", "io"),
    ("rubygems", "org"),
];

/// Lines that name a home directory or a registry. The lock file is cargo's, and
/// names the registry in every entry.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let homes = HOMES.map(|name| format!("/{name}/"));
    let hosts = HOSTS.map(|(name, domain)| format!("{name}.{domain}"));
    tree.files
        .iter()
        .filter(|file| !file.path.ends_with("Cargo.lock"))
        .flat_map(|file| file_findings(file, &homes, &hosts))
        .collect()
}

fn file_findings(file: &SourceFile, homes: &[String], hosts: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let home = homes.iter().find(|home| has_absolute(line, home));
        let host = hosts.iter().find(|host| line.contains(host.as_str()));
        if let Some(home) = home {
            let message = format!("a path of one machine ({home})");
            findings.push(Finding::error(&file.path, index + 1, message));
        }
        if let Some(host) = host {
            let message = format!("the host of a package registry ({host})");
            findings.push(Finding::error(&file.path, index + 1, message));
        }
    }
    findings
}

/// Whether `line` holds `directory` at the beginning of a path, not inside one.
fn has_absolute(line: &str, directory: &str) -> bool {
    line.match_indices(directory).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && !"_-.~*/)}>".contains(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    fn found(path: &str, text: &str) -> Vec<String> {
        findings_of(check, &[(path, text)])
    }

    #[test]
    fn paths_of_a_machine_are_caught() {
        for home in HOMES {
            for text in [
                format!("/{home}/cuzk\n"),
                format!("see (/{home}/a)\n"),
                format!("let a = \"/{home}/a\";\n"),
                format!("A=/{home}/a\n"),
            ] {
                let findings = found("README.md", &format!("first\n{text}"));
                assert_eq!(findings.len(), 1, "{text}: {findings:?}");
                assert!(findings[0].contains("README.md:2:"), "{findings:?}");
            }
        }
    }

    #[test]
    fn paths_inside_others_pass() {
        for home in HOMES {
            for text in [
                format!("a/{home}/b"),
                format!("example.com/{home}/b"),
                format!("{{dir}}/{home}/b"),
                format!("./{home}/b"),
                format!("**/{home}/b"),
                format!("/{home}s/b"),
                format!("the {home} directory"),
            ] {
                assert!(found("README.md", &text).is_empty(), "{text}");
            }
        }
    }

    #[test]
    fn registries_are_caught() {
        for (name, domain) in HOSTS {
            let text = format!("from https://{name}.{domain}/x\n");
            assert_eq!(found(".ci/run", &text).len(), 1, "{name}");
            assert!(found(".ci/run", &format!("{name} {domain}\n")).is_empty());
        }
    }

    #[test]
    fn the_lock_file_may_name_its_registry() {
        let (name, domain) = HOSTS[0];
        let text = format!("[[package]]\nsource = \"registry+https://{name}.{domain}\"\n");
        assert!(found("Cargo.lock", &text).is_empty());
        assert_eq!(found("Cargo.toml", &text).len(), 1);
    }
}
