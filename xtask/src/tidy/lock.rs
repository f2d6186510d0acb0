//! The lock file: versions with known faults stay out, and the curve stays one.

use std::collections::BTreeMap;

use super::tree::{Finding, Tree};

const LOCK: &str = "Cargo.lock";

/// Versions that must not be used, and why.
const BANNED: [(&str, &[&str], &str); 1] = [(
    "sppark",
    &["0.1.12", "0.1.13", "0.1.14"],
    "these versions leak device memory",
)];

/// Packages whose types cross our interfaces: two versions of one are two curves.
const SINGLE: [&str; 7] = [
    "bellpepper-core",
    "bellperson",
    "blst",
    "blstrs",
    "ff",
    "group",
    "pairing",
];

/// Banned versions, and packages that must be one and are more.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages(tree) {
        if let (Some(name), Some(version)) = (
            package.get("name").and_then(toml::Value::as_str),
            package.get("version").and_then(toml::Value::as_str),
        ) {
            versions.entry(name).or_default().push(version);
        }
    }
    let held = |name| versions.get(name).map_or(&[][..], Vec::as_slice);
    let mut findings = Vec::new();
    for (name, banned, reason) in BANNED {
        for version in held(name).iter().filter(|version| banned.contains(version)) {
            let message = format!("{name} {version} is banned: {reason}");
            findings.push(Finding::error(LOCK, 0, message));
        }
    }
    for name in SINGLE {
        let held = held(name);
        if held.len() > 1 {
            let message = format!("{name} must be one version, it is {}", held.join(" and "));
            findings.push(Finding::error(LOCK, 0, message));
        }
    }
    findings
}

fn packages(tree: &Tree) -> &[toml::Value] {
    tree.lock
        .get("package")
        .and_then(toml::Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    fn found(packages: &[(&str, &str)]) -> Vec<String> {
        let lock: String = packages
            .iter()
            .map(|(name, version)| {
                format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n")
            })
            .collect();
        findings_of(check, &[(LOCK, &lock)])
    }

    #[test]
    fn leaking_versions_are_caught() {
        for version in ["0.1.12", "0.1.13", "0.1.14"] {
            let findings = found(&[("sppark", version)]);
            assert_eq!(findings.len(), 1, "{version}");
            assert!(findings[0].contains(version), "{findings:?}");
        }
    }

    #[test]
    fn neighbouring_versions_pass() {
        assert!(found(&[("sppark", "0.1.11")]).is_empty());
        assert!(found(&[("sppark", "0.1.16")]).is_empty());
    }

    #[test]
    fn two_versions_of_the_curve_are_caught() {
        for name in SINGLE {
            let findings = found(&[(name, "0.1.0"), ("other", "1.0.0"), (name, "0.2.0")]);
            assert_eq!(findings.len(), 1, "{name}");
            assert!(findings[0].contains("0.1.0 and 0.2.0"), "{findings:?}");
            assert!(found(&[(name, "0.1.0")]).is_empty());
        }
    }

    #[test]
    fn two_versions_of_anything_else_pass() {
        assert!(found(&[("rand", "0.8.0"), ("rand", "0.9.0")]).is_empty());
        assert!(findings_of(check, &[]).is_empty());
    }
}
