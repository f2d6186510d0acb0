//! Manifests: versions stand in the root's table and nowhere else, every member
//! takes the root's lints, and each crate stays ignorant of what it does not know.

use super::tree::{Finding, Member, Tree};

/// Dependencies that a crate must do without in its normal builds: each entry is
/// a crate, the beginnings of the names it may not use, and why.
const UNKNOWN_TO: [(&str, &[&str], &str); 8] = [
    (
        "cuzk-budget",
        &["bell", "blst", "ff", "group", "pairing", "cudarc", "sppark"],
        "it knows no CUDA and no proofs",
    ),
    (
        "cuzk-pinned",
        &["bell", "blst", "ff", "group", "pairing", "sppark"],
        "it knows no proofs",
    ),
    (
        "cuzk-synth",
        &["memmap", "cudarc", "sppark"],
        "it knows no pool and no GPU",
    ),
    ("cuzk-gpu", &FILECOIN, "it knows no Filecoin"),
    ("cuzk-core", &FILECOIN, "it knows no Filecoin"),
    (
        "cuzk-core",
        &["prost", "tonic", "cudarc", "sppark"],
        "it knows no protobuf and no CUDA type",
    ),
    (
        "cuzk-filecoin",
        &["prost", "tonic", "axum", "cudarc", "sppark"],
        "it knows no transport and no CUDA type",
    ),
    (
        "cuzk-daemon",
        &["bell", "blst", "filecoin-", "storage-proofs-"],
        "it holds no proving logic",
    ),
];

/// Dependencies that only a feature brings, and no default one: a crate, the
/// beginnings of their names, the feature.
const OPTIONAL: [(&str, &[&str], &str); 2] = [
    ("cuzk-pinned", &["cudarc"], "cuda"),
    ("cuzk-gpu", &["cudarc", "sppark"], "cuda"),
];

const FILECOIN: [&str; 2] = ["filecoin-", "storage-proofs-"];

/// Packages that may use `anyhow`; the libraries have typed errors.
const UNTYPED_ERRORS: [&str; 3] = ["xtask", "cuzk-daemon", "cuzk-tests"];

/// Broken rules of the member manifests.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.members.iter().flat_map(member_findings).collect()
}

fn member_findings(member: &Member) -> Vec<Finding> {
    let path = member.manifest_path();
    let mut findings = Vec::new();
    if let Some(folder) = member.directory.strip_prefix("crates/")
        && folder != member.name
    {
        let message = format!("the folder `{folder}` holds the package `{}`", member.name);
        findings.push(Finding::error(&path, member.line_of("name"), message));
    }
    let takes_lints = member
        .manifest
        .get("lints")
        .is_some_and(takes_from_workspace);
    if !takes_lints {
        let message = "`lints.workspace = true` is missing";
        findings.push(Finding::error(&path, 0, message));
    }
    for (kind, table) in member.dependency_tables() {
        for (key, value) in table {
            let mut report = |message| {
                findings.push(Finding::error(&path, member.line_of(key), message));
            };
            if !takes_from_workspace(value) {
                report(format!(
                    "`{key}` does not take its version from the root (`{key}.workspace = true`)"
                ));
            }
            if kind.is_shipped()
                && let Some(feature) = feature_of(&member.name, key)
                && !is_optional(value)
            {
                report(format!(
                    "`{key}` is not `optional = true`: only the feature `{feature}` of {} brings it",
                    member.name
                ));
            }
            if kind.is_shipped()
                && let Some(reason) = unknown_to(&member.name, key)
            {
                report(format!("{} may not use `{key}`: {reason}", member.name));
            }
        }
    }
    findings.extend(default_findings(member, &path));
    findings
}

/// A default feature of a crate whose builds without features bring no such
/// dependency.
fn default_findings(member: &Member, path: &str) -> Option<Finding> {
    let (name, _, feature) = OPTIONAL.iter().find(|(name, _, _)| *name == member.name)?;
    let defaults = member
        .manifest
        .get("features")?
        .get("default")?
        .as_array()?;
    if defaults.is_empty() {
        return None;
    }
    let message = format!("{name} has default features, which may bring what `{feature}` does");
    Some(Finding::error(path, member.line_of("default"), message))
}

/// The feature that alone brings `dependency` to `package`.
fn feature_of(package: &str, dependency: &str) -> Option<&'static str> {
    OPTIONAL
        .iter()
        .filter(|(name, _, _)| *name == package)
        .find(|(_, prefixes, _)| prefixes.iter().any(|prefix| dependency.starts_with(prefix)))
        .map(|(_, _, feature)| *feature)
}

fn is_optional(value: &toml::Value) -> bool {
    value.get("optional").and_then(toml::Value::as_bool) == Some(true)
}

fn takes_from_workspace(value: &toml::Value) -> bool {
    value.get("workspace").and_then(toml::Value::as_bool) == Some(true)
}

/// Why `package` may not use `dependency`, if it may not.
fn unknown_to(package: &str, dependency: &str) -> Option<&'static str> {
    if dependency == "anyhow" && !UNTYPED_ERRORS.contains(&package) {
        return Some("libraries have typed errors");
    }
    UNKNOWN_TO
        .iter()
        .filter(|(name, _, _)| *name == package)
        .find(|(_, prefixes, _)| prefixes.iter().any(|prefix| dependency.starts_with(prefix)))
        .map(|(_, _, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    fn found(name: &str, tables: &str) -> Vec<String> {
        let path = format!("crates/{name}/Cargo.toml");
        let text = format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{tables}");
        findings_of(check, &[(&path, &text)])
    }

    #[test]
    fn versions_from_the_root_pass() {
        let tables = "[dependencies]\na.workspace = true\nb = { workspace = true, optional = true }\n\
                      [dev-dependencies]\nc.workspace = true\n";
        assert!(found("cuzk-budget", tables).is_empty());
    }

    #[test]
    fn versions_and_paths_in_a_member_are_caught() {
        for entry in [
            "a = \"1\"",
            "a = { version = \"1\" }",
            "a = { path = \"../a\" }",
            "a.workspace = false",
        ] {
            for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
                let findings = found("cuzk-budget", &format!("[{table}]\n{entry}\n"));
                assert_eq!(findings.len(), 1, "{table}: {entry}: {findings:?}");
                assert!(
                    findings[0].contains(":6: `a` does not take"),
                    "{findings:?}"
                );
            }
        }
    }

    #[test]
    fn lints_of_its_own_or_none_are_caught() {
        for lints in ["", "[lints.rust]\nmissing_docs = \"allow\"\n"] {
            let text = format!("[package]\nname = \"cuzk-budget\"\n{lints}");
            let findings = findings_of(check, &[("crates/cuzk-budget/Cargo.toml", &text)]);
            assert_eq!(findings.len(), 1);
            assert!(findings[0].contains("lints.workspace"), "{findings:?}");
        }
    }

    #[test]
    fn a_folder_that_is_not_the_name_is_caught() {
        let text = "[package]\nname = \"cuzk-a\"\n[lints]\nworkspace = true\n";
        let findings = findings_of(check, &[("crates/cuzk-b/Cargo.toml", text)]);
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0].contains(":2: the folder `cuzk-b`"),
            "{findings:?}"
        );
    }

    #[test]
    fn what_a_crate_does_not_know_is_caught_in_builds_only() {
        for (name, dependency) in [
            ("cuzk-budget", "blstrs"),
            ("cuzk-pinned", "bellperson"),
            ("cuzk-synth", "cudarc"),
            ("cuzk-gpu", "filecoin-hashers"),
            ("cuzk-core", "storage-proofs-core"),
            ("cuzk-core", "tonic"),
            ("cuzk-core", "anyhow"),
            ("cuzk-daemon", "bellperson"),
        ] {
            let entry = format!("{dependency}.workspace = true\n");
            let findings = found(name, &format!("[dependencies]\n{entry}"));
            assert_eq!(findings.len(), 1, "{name} {dependency}: {findings:?}");
            assert!(findings[0].contains("may not use"), "{findings:?}");
            assert!(found(name, &format!("[dev-dependencies]\n{entry}")).is_empty());
        }
    }

    #[test]
    fn what_only_a_feature_brings_is_optional() {
        for (name, dependency) in [("cuzk-pinned", "cudarc"), ("cuzk-gpu", "sppark")] {
            let always = format!("[dependencies]\n{dependency}.workspace = true\n");
            let findings = found(name, &always);
            assert_eq!(findings.len(), 1, "{name}: {findings:?}");
            assert!(
                findings[0].contains("only the feature `cuda`"),
                "{findings:?}"
            );
            let entry = format!("{dependency} = {{ workspace = true, optional = true }}\n");
            assert!(found(name, &format!("[dependencies]\n{entry}")).is_empty());
            // Tests may have it always.
            assert!(
                found(
                    name,
                    &format!("[dev-dependencies]\n{dependency}.workspace = true\n")
                )
                .is_empty()
            );
            for (defaults, count) in [("[]", 0), ("[\"cuda\"]", 1), ("[\"other\"]", 1)] {
                let features = format!("[features]\ndefault = {defaults}\n");
                assert_eq!(found(name, &features).len(), count, "{name}: {defaults}");
            }
        }
    }

    #[test]
    fn what_a_crate_knows_passes() {
        for (name, dependency) in [
            ("cuzk-synth", "bellpepper-core"),
            ("cuzk-filecoin", "filecoin-hashers"),
            ("cuzk-daemon", "anyhow"),
        ] {
            let tables = format!("[dependencies]\n{dependency}.workspace = true\n");
            assert!(found(name, &tables).is_empty(), "{name} {dependency}");
        }
    }
}
