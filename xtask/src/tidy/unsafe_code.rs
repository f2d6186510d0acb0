//! Where unsafe code may stand, and the attribute that keeps it out elsewhere.

use super::tokens::starts_with;
use super::tree::{Finding, RustFile, Tree};

/// The two crates that may hold unsafe code, the measurements that call the driver
/// beside them, what counts allocations, and the peer that is kernels of another
/// library.
const MAY_BE_UNSAFE: [&str; 5] = [
    "crates/cuzk-gpu/",
    "crates/cuzk-pinned/",
    "tests/src/bin/cuzk_bench/placements/",
    "tests/src/bin/cuzk_bench/synth/counting.rs",
    "xtask/peers/sppark/",
];

/// Directories of the packages whose every crate root forbids unsafe code.
const FORBID: [&str; 6] = [
    "crates/cuzk-budget/",
    "crates/cuzk-core/",
    "crates/cuzk-daemon/",
    "crates/cuzk-filecoin/",
    "crates/cuzk-synth/",
    "xtask/",
];

/// The attribute, token by token.
const ATTRIBUTE: [&str; 8] = ["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"];

/// Unsafe code where none may be, and crate roots that do not forbid it.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.rust {
        if !stands_in(&file.path, &MAY_BE_UNSAFE) {
            let uses = file.tokens.iter().filter(|token| token.is("unsafe"));
            findings.extend(uses.map(|token| {
                let message = "unsafe code stands only in cuzk-pinned and cuzk-gpu";
                Finding::error(&file.path, token.line, message)
            }));
        }
        if is_crate_root(&file.path)
            && stands_in(&file.path, &FORBID)
            && !stands_in(&file.path, &MAY_BE_UNSAFE)
            && !forbids(file)
        {
            let message = "`#![forbid(unsafe_code)]` is missing";
            findings.push(Finding::error(&file.path, 0, message));
        }
    }
    findings
}

fn stands_in(path: &str, directories: &[&str]) -> bool {
    directories
        .iter()
        .any(|directory| path.starts_with(directory))
}

/// The library, or a program, of a package.
fn is_crate_root(path: &str) -> bool {
    let Some((_, inside)) = path.rsplit_once("/src/") else {
        return false;
    };
    matches!(inside, "lib.rs" | "main.rs")
        || inside
            .strip_prefix("bin/")
            .is_some_and(|name| !name.contains('/') || name.ends_with("/main.rs"))
}

fn forbids(file: &RustFile) -> bool {
    (0..file.tokens.len()).any(|at| starts_with(&file.tokens[at..], &ATTRIBUTE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    fn found(path: &str, text: &str) -> Vec<String> {
        findings_of(check, &[(path, text)])
    }

    #[test]
    fn unsafe_code_is_caught_outside_its_two_crates() {
        let text = "fn a() {\n    unsafe { b() }\n}\n";
        for path in [
            "crates/cuzk-synth/src/pass.rs",
            "crates/cuzk-core/tests/a.rs",
            "tests/src/memory.rs",
            "xtask/src/ci/mod.rs",
        ] {
            let findings = found(path, text);
            assert_eq!(findings.len(), 1, "{path}");
            assert!(findings[0].contains(":2: unsafe code"), "{findings:?}");
        }
        assert!(found("crates/cuzk-gpu/src/a.rs", text).is_empty());
        assert!(found("crates/cuzk-pinned/src/a.rs", text).is_empty());
    }

    #[test]
    fn the_word_alone_is_not_unsafe_code() {
        let text = "// unsafe\n#![deny(unsafe_code)]\nconst A: &str = \"unsafe\";\n";
        assert!(found("crates/cuzk-core/src/a.rs", text).is_empty());
    }

    #[test]
    fn every_crate_root_must_forbid_it() {
        for root in [
            "crates/cuzk-budget/src/lib.rs",
            "crates/cuzk-daemon/src/main.rs",
            "crates/cuzk-daemon/src/bin/other.rs",
            "crates/cuzk-daemon/src/bin/another/main.rs",
            "xtask/src/main.rs",
        ] {
            for lacking in ["", "// #![forbid(unsafe_code)]\n", "#![deny(unsafe_code)]"] {
                assert_eq!(found(root, lacking).len(), 1, "{root}: {lacking}");
            }
            let forbidding = "//! A.\n#![forbid(unsafe_code)]\n";
            assert!(found(root, forbidding).is_empty(), "{root}");
        }
    }

    #[test]
    fn other_files_and_other_crates_need_no_attribute() {
        for path in [
            "crates/cuzk-budget/src/ledger.rs",
            "crates/cuzk-daemon/src/bin/another/table.rs",
            "crates/cuzk-gpu/src/lib.rs",
            "tests/src/lib.rs",
        ] {
            assert!(found(path, "").is_empty(), "{path}");
        }
    }
}
