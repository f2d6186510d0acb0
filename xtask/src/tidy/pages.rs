//! Pages and plots that are written from records: they are as the records are.

use super::tree::{Finding, Tree};
use crate::record;

/// What is stale.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let generated = record::generated(&tree.files);
    let stale = generated.iter().filter(|(path, text)| {
        let file = tree.files.iter().find(|file| file.path == **path);
        file.is_none_or(|file| file.text != **text)
    });
    stale
        .map(|(path, _)| {
            let message = "not what the records say: run `cargo xtask record page`";
            Finding::error(path, 0, message.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    #[test]
    fn a_page_that_is_missing_or_stale_is_caught() {
        let record = r#"{"name":"params","claim":"c","commit":"c","dirty":false,
            "date":"2026-12-01","command":"c","machine":{"cpu":"c","cores":1,"ram_gib":1},
            "cases":[]}"#;
        let path = "bench/records/machine/params.json";
        let missing = findings_of(check, &[(path, record)]);
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].contains("bench/README.md"), "{missing:?}");
        let files = [crate::tidy::SourceFile {
            path: path.to_owned(),
            text: record.to_owned(),
        }];
        let page = &record::generated(&files)["bench/README.md"];
        assert!(findings_of(check, &[(path, record), ("bench/README.md", page)]).is_empty());
        let stale = page.replace("2026-12-01", "2026-12-02");
        assert_eq!(
            findings_of(check, &[(path, record), ("bench/README.md", &stale)]).len(),
            1
        );
    }
}
