//! Measurements: each record parses, stands under its own name, and has no figures
//! where the result was not verified.

use super::tree::{Finding, Tree};
use crate::record;

/// What is wrong with the records.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let records = tree
        .files
        .iter()
        .filter(|file| record::is_record(&file.path));
    records
        .flat_map(|file| {
            let problems = record::problems(file).into_iter();
            problems.map(|problem| Finding::error(&file.path, 0, problem))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    #[test]
    fn a_broken_record_is_caught_where_records_stand() {
        let path = format!("{}h200-16c/params.json", record::FOLDER);
        let findings = findings_of(check, &[(&path, "{}\n")]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("missing field `name`"), "{findings:?}");
        assert!(findings_of(check, &[("docs/params.json", "{}\n")]).is_empty());
    }
}
