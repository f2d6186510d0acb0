//! Names that must not be called, each with the places where it must not.

use super::tokens::{attribute, starts_with};
use super::tree::{Finding, LIBRARIES, RustFile, Tree};

/// Marks of unfinished work, as macros; they stand nowhere.
const UNFINISHED: [&str; 3] = ["dbg", "todo", "unimplemented"];
/// Beginnings of the names of the stock prover's functions.
const STOCK_PROVER: [&str; 2] = ["create_proof", "create_random_proof"];
/// What of `std::env` reads or writes the environment.
const ENVIRONMENT: [&str; 6] = ["remove_var", "set_var", "var", "var_os", "vars", "vars_os"];
/// Macros that write to the terminal of a program.
const PRINTS: [&str; 4] = ["eprint", "eprintln", "print", "println"];
/// Functions that let time pass.
const SLEEPS: [&str; 3] = ["sleep", "sleep_ms", "sleep_until"];

/// Where a file stands, for the rules that depend on it.
struct Place {
    /// In the sources of a library, not in its tests, benches or examples.
    is_library: bool,
    /// In a package of tests, in benches, or beside other software.
    may_use_stock_prover: bool,
}

/// Calls that stand where they must not.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust.iter().flat_map(file_findings).collect()
}

fn file_findings(file: &RustFile) -> Vec<Finding> {
    let place = Place::of(&file.path);
    let mut findings = ignored_doctests(file);
    for (at, token) in file.tokens.iter().enumerate() {
        let here = &file.tokens[at..];
        let is_test = file.is_test || token.in_test;
        let name = token.text.as_str();
        let is_macro = starts_with(&here[1..], &["!"]);
        let is_call = starts_with(&here[1..], &["("]);
        let message = if is_macro && UNFINISHED.contains(&name) {
            format!("`{name}!` marks unfinished work")
        } else if ignores_a_test(file, at) {
            "a test is run or deleted, never ignored".to_owned()
        } else if !is_test && !place.may_use_stock_prover && is_stock_prover(name) {
            format!("`{name}` is the stock prover: tests, benches and peers may call it")
        } else if !is_test && place.is_library && reads_environment(file, at) {
            "a library does not read the environment: take it as an argument".to_owned()
        } else if !is_test && place.is_library && is_macro && PRINTS.contains(&name) {
            format!("`{name}!` in a library: log it, or give it back")
        } else if is_test && is_call && SLEEPS.contains(&name) {
            format!("`{name}` in a test: wait for the event itself")
        } else {
            continue;
        };
        findings.push(Finding::error(&file.path, token.line, message));
    }
    findings
}

impl Place {
    fn of(path: &str) -> Self {
        let is_library = LIBRARIES.iter().any(|name| {
            path.strip_prefix("crates/")
                .and_then(|path| path.strip_prefix(name))
                .is_some_and(|path| path.starts_with("/src/") && !path.starts_with("/src/bin/"))
        });
        let mut directories = path.split('/');
        let top = directories.next().unwrap_or_default();
        Self {
            is_library,
            may_use_stock_prover: top == "tests"
                || path.starts_with("xtask/peers/")
                || directories.any(|directory| directory == "benches"),
        }
    }
}

fn is_stock_prover(name: &str) -> bool {
    STOCK_PROVER.iter().any(|prefix| name.starts_with(prefix))
}

/// `env::var` and its kin, also behind `use std::env::{...}`.
fn reads_environment(file: &RustFile, at: usize) -> bool {
    let here = &file.tokens[at..];
    if !starts_with(here, &["env", "::"]) {
        return false;
    }
    let reads = |name: &str| ENVIRONMENT.contains(&name);
    match here.get(2) {
        Some(open) if open.is("{") => here[3..]
            .iter()
            .take_while(|token| !token.is("}"))
            .any(|token| reads(&token.text)),
        Some(name) => reads(&name.text),
        None => false,
    }
}

/// An attribute that begins here and keeps a test from running.
fn ignores_a_test(file: &RustFile, at: usize) -> bool {
    let Some((contents, _)) = attribute(&file.tokens[at..]) else {
        return false;
    };
    match contents.first() {
        Some(first) if first.is("ignore") => true,
        Some(first) if first.is("cfg_attr") => contents.iter().any(|token| token.is("ignore")),
        _ => false,
    }
}

/// Examples in documentation that are marked not to run at all.
fn ignored_doctests(file: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let Some(doc) = line.strip_prefix("///").or(line.strip_prefix("//!")) else {
            continue;
        };
        let Some(marks) = doc.trim_start().strip_prefix("```") else {
            continue;
        };
        if marks
            .split(',')
            .any(|mark| mark.trim().starts_with("ignore"))
        {
            let message = "an example in documentation runs, or is marked as text";
            findings.push(Finding::error(&file.path, index + 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    const LIBRARY: &str = "crates/cuzk-core/src/engine.rs";
    const DAEMON: &str = "crates/cuzk-daemon/src/main.rs";

    fn found(path: &str, text: &str) -> Vec<String> {
        findings_of(check, &[(path, text)])
    }

    /// `text` as the body of a unit test.
    fn in_test(text: &str) -> String {
        format!("#[cfg(test)]\nmod tests {{\n#[test]\nfn a() {{ {text} }}\n}}\n")
    }

    #[test]
    fn unfinished_work_is_caught_everywhere() {
        for name in UNFINISHED {
            let call = format!("fn a() {{ {name}!() }}");
            for path in [LIBRARY, DAEMON, "tests/tests/a.rs", "xtask/src/a.rs"] {
                assert_eq!(found(path, &call).len(), 1, "{path}: {name}");
                assert_eq!(found(path, &in_test(&call)).len(), 1, "{path}: {name}");
            }
            assert!(found(LIBRARY, &format!("fn {name}() {{ {name}(); }}")).is_empty());
            assert!(found(LIBRARY, &format!("// {name}!()")).is_empty());
        }
    }

    #[test]
    fn ignored_tests_are_caught() {
        for attribute in [
            "ignore",
            "ignore = \"slow\"",
            "cfg_attr(not(feature = \"cuda\"), ignore)",
        ] {
            let text = format!("#[test]\n#[{attribute}]\nfn a() {{}}\n");
            let findings = found("tests/tests/a.rs", &text);
            assert_eq!(findings.len(), 1, "{attribute}: {findings:?}");
            assert!(findings[0].contains(":2:"), "{findings:?}");
        }
        assert!(found(LIBRARY, "#[serde(default)]\nfn ignore() { ignore() }").is_empty());
    }

    #[test]
    fn ignored_doctests_are_caught() {
        for mark in ["ignore", "rust,ignore", "ignore-wasm32"] {
            let findings = found(LIBRARY, &format!("//! A.\n/// ```{mark}\n/// a\n/// ```\n"));
            assert_eq!(findings.len(), 1, "{mark}");
            assert!(findings[0].contains(":2:"), "{findings:?}");
        }
        assert!(found(LIBRARY, "/// ```text\n/// ignore\n/// ```\n").is_empty());
    }

    #[test]
    fn the_stock_prover_is_caught_outside_tests_benches_and_peers() {
        for name in ["create_proof_batch", "create_random_proof"] {
            let call = format!("fn a() {{ groth16::{name}(); }}");
            for path in [
                LIBRARY,
                DAEMON,
                "xtask/src/a.rs",
                "crates/cuzk-gpu/examples/a.rs",
            ] {
                assert_eq!(found(path, &call).len(), 1, "{path}: {name}");
            }
            for path in [
                "tests/src/main.rs",
                "crates/cuzk-core/tests/a.rs",
                "crates/cuzk-gpu/benches/a.rs",
                "xtask/peers/native/src/main.rs",
            ] {
                assert!(found(path, &call).is_empty(), "{path}: {name}");
            }
            assert!(found(LIBRARY, &in_test(&call)).is_empty());
        }
        assert!(found(LIBRARY, "fn recreate_proof() {}").is_empty());
    }

    #[test]
    fn reading_the_environment_is_caught_in_libraries() {
        for read in [
            "std::env::var(\"A\")",
            "env::var_os(\"A\")",
            "std :: env :: vars()",
        ] {
            let text = format!("fn a() {{ {read}; }}");
            assert_eq!(found(LIBRARY, &text).len(), 1, "{read}");
            assert!(found(DAEMON, &text).is_empty(), "{read}");
            assert!(found("crates/cuzk-core/build.rs", &text).is_empty());
            assert!(found(LIBRARY, &in_test(read)).is_empty());
        }
        assert_eq!(found(LIBRARY, "use std::env::{self, var};").len(), 1);
        assert!(found(LIBRARY, "use std::env::{self, temp_dir};").is_empty());
        assert!(found(LIBRARY, "const V: &str = env!(\"CARGO_PKG_VERSION\");").is_empty());
        assert!(found(LIBRARY, "fn a() { env::temp_dir(); }").is_empty());
    }

    #[test]
    fn printing_is_caught_in_libraries() {
        for name in PRINTS {
            let text = format!("fn a() {{ {name}!(\"a\"); }}");
            assert_eq!(found(LIBRARY, &text).len(), 1, "{name}");
            assert!(found(DAEMON, &text).is_empty());
            assert!(found("crates/cuzk-core/examples/a.rs", &text).is_empty());
            assert!(found(LIBRARY, &in_test(&text)).is_empty());
        }
        assert!(found(LIBRARY, "fn a() { writeln!(f, \"println!\"); }").is_empty());
    }

    #[test]
    fn sleeping_is_caught_in_tests() {
        let call = "std::thread::sleep(wait);";
        assert_eq!(found(LIBRARY, &in_test(call)).len(), 1);
        assert_eq!(
            found("tests/tests/a.rs", &format!("fn a() {{ {call} }}")).len(),
            1
        );
        assert!(found(LIBRARY, &format!("fn a() {{ {call} }}")).is_empty());
        assert!(found(LIBRARY, &in_test("let sleep = 1;")).is_empty());
    }
}
