//! What every crate has: a README, a short example to run, and documentation
//! that opens with what the crate is and shows it at work.

use super::tree::{Finding, Tree};

/// An example stays below this many lines.
const EXAMPLE_LINES: usize = 60;

/// What crates lack, and examples that grew too long.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &tree.members {
        if !member.directory.starts_with("crates/") {
            continue;
        }
        let directory = &member.directory;
        let readme = format!("{directory}/README.md");
        if tree.text(&readme).is_none() {
            findings.push(Finding::error(&readme, 0, "the crate has no README"));
        }
        findings.extend(example_findings(tree, directory));
        findings.extend(documentation_findings(tree, directory));
    }
    findings
}

fn example_findings(tree: &Tree, directory: &str) -> Vec<Finding> {
    let examples = format!("{directory}/examples/");
    let mut findings = Vec::new();
    let mut count = 0_usize;
    for file in &tree.rust {
        if !file.path.starts_with(&examples) {
            continue;
        }
        count += 1;
        let lines = file.text.lines().count();
        if lines >= EXAMPLE_LINES {
            let message = format!("{lines} lines, an example has fewer than {EXAMPLE_LINES}");
            findings.push(Finding::error(&file.path, 0, message));
        }
    }
    if count == 0 {
        findings.push(Finding::error(&examples, 0, "the crate has no example"));
    }
    findings
}

fn documentation_findings(tree: &Tree, directory: &str) -> Vec<Finding> {
    let path = format!("{directory}/src/lib.rs");
    let Some(text) = tree.text(&path) else {
        return vec![Finding::error(&path, 0, "the crate has no library")];
    };
    let documentation: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .collect();
    if documentation.is_empty() {
        let message = "the library does not open with its documentation";
        return vec![Finding::error(&path, 1, message)];
    }
    if !has_running_example(&documentation) {
        let message = "the library's documentation has no example that runs";
        return vec![Finding::error(&path, 1, message)];
    }
    Vec::new()
}

/// Whether a fenced block among `lines` is code that the tests run.
fn has_running_example(lines: &[&str]) -> bool {
    let mut is_open = false;
    for line in lines {
        let Some(marks) = line.strip_prefix("```") else {
            continue;
        };
        if !is_open && matches!(marks.trim(), "" | "rust") {
            return true;
        }
        is_open = !is_open;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    const MANIFEST: &str = "[package]\nname = \"a\"\n";
    const LIBRARY: &str = "//! A.\n//!\n//! ```\n//! assert!(true);\n//! ```\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![("crates/a/Cargo.toml", MANIFEST)];
        all.extend_from_slice(files);
        findings_of(check, &all)
    }

    fn found_with_library(library: &str) -> Vec<String> {
        found(&[
            ("crates/a/README.md", "# a\n"),
            ("crates/a/examples/a.rs", "fn main() {}\n"),
            ("crates/a/src/lib.rs", library),
        ])
    }

    #[test]
    fn a_whole_crate_passes() {
        assert!(found_with_library(LIBRARY).is_empty());
        let marked = "//! A.\n//! ```text\n//! drawing\n//! ```\n//! ```rust\n//! ```\n";
        assert!(found_with_library(marked).is_empty());
    }

    #[test]
    fn a_bare_crate_lacks_all_three() {
        let findings = found(&[]);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[0].contains("no README"));
        assert!(findings[1].contains("no example"));
        assert!(findings[2].contains("no library"));
    }

    #[test]
    fn documentation_that_shows_nothing_running_is_caught() {
        for library in [
            "mod a;\n//! ```\n",
            "//! A.\nmod a;\n",
            "//! A.\n//! ```text\n//! a\n//! ```\n",
            "//! A.\n//! ```no_run\n//! a\n//! ```\n",
        ] {
            let findings = found_with_library(library);
            assert_eq!(findings.len(), 1, "{library}: {findings:?}");
        }
    }

    #[test]
    fn a_long_example_is_caught() {
        let with_lines = |lines: usize| {
            let example = "// a\n".repeat(lines);
            found(&[
                ("crates/a/README.md", "# a\n"),
                ("crates/a/examples/a.rs", &example),
                ("crates/a/src/lib.rs", LIBRARY),
            ])
        };
        assert!(with_lines(59).is_empty());
        assert_eq!(with_lines(60).len(), 1);
    }

    #[test]
    fn other_packages_need_none_of_it() {
        let files = [
            ("xtask/Cargo.toml", MANIFEST),
            ("tests/Cargo.toml", MANIFEST),
        ];
        assert!(findings_of(check, &files).is_empty());
    }
}
