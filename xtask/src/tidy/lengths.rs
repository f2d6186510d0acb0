//! Files that grew past what a reader holds in mind: reported, not refused.

use super::tree::{Finding, Tree};

/// A source file past this many lines is one to split.
const LINES_MAX: usize = 600;

/// Endings of the files that people here write and read.
const SOURCES: [&str; 4] = [".rs", ".cu", ".cuh", ".h"];

/// A note for each source file past the limit.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter(|file| SOURCES.iter().any(|ending| file.path.ends_with(ending)))
        .filter_map(|file| {
            let lines = file.text.lines().count();
            (lines > LINES_MAX).then(|| {
                let message = format!("{lines} lines, split past {LINES_MAX}");
                Finding::note(&file.path, message)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    #[test]
    fn long_sources_are_noted() {
        let lines = |count: usize| "a\n".repeat(count);
        for path in ["crates/a/src/a.rs", "crates/a/kernels/a.cu"] {
            assert!(findings_of(check, &[(path, &lines(600))]).is_empty());
            let findings = findings_of(check, &[(path, &lines(601))]);
            assert_eq!(findings.len(), 1);
            assert!(findings[0].starts_with("note:"), "{findings:?}");
        }
        assert!(findings_of(check, &[("CHANGELOG.md", &lines(601))]).is_empty());
    }
}
