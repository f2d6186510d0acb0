//! Which crate may use which: the drawing in ARCHITECTURE.md, as a table.
//!
//! Normal and build dependencies follow the table exactly. Dev-dependencies may
//! also go sideways, to crates that a crate's tests need, but never up.

use std::collections::BTreeSet;

use super::tree::{DependencyKind, Finding, Member, Tree};

/// The page that draws the edges, and the heading of its table.
const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Crate edges";

/// Each package with what it may depend on. A change here is a change of
/// architecture: ARCHITECTURE.md carries the same table and says how to make one.
const EDGES: [(&str, &[&str]); 9] = [
    ("cuzk-budget", &[]),
    ("cuzk-pinned", &["cuzk-budget"]),
    ("cuzk-synth", &[]),
    ("cuzk-gpu", &["cuzk-pinned"]),
    (
        "cuzk-core",
        &["cuzk-budget", "cuzk-gpu", "cuzk-pinned", "cuzk-synth"],
    ),
    ("cuzk-filecoin", &["cuzk-core", "cuzk-synth"]),
    ("cuzk-daemon", &["cuzk-core", "cuzk-filecoin"]),
    (
        "cuzk-tests",
        &[
            "cuzk-budget",
            "cuzk-core",
            "cuzk-daemon",
            "cuzk-filecoin",
            "cuzk-gpu",
            "cuzk-pinned",
            "cuzk-synth",
        ],
    ),
    ("xtask", &[]),
];

/// Edges of the manifests that the table lacks, and differences between the table
/// and its page.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &tree.members {
        let path = member.manifest_path();
        if allowed(&member.name).is_none() {
            findings.push(Finding::error(
                &path,
                0,
                format!(
                    "`{}` is not in the table of crate edges: add it there and to {PAGE}",
                    member.name
                ),
            ));
            continue;
        }
        for (kind, table) in member.dependency_tables() {
            for key in table.keys() {
                let target = package_of(tree, key);
                if allowed(target).is_some()
                    && let Some(reason) = refusal(member, kind, target)
                {
                    findings.push(Finding::error(&path, member.line_of(key), reason));
                }
            }
        }
    }
    findings.extend(page_findings(tree));
    findings
}

/// Why `member` may not depend on `target`; `None` where it may.
fn refusal(member: &Member, kind: DependencyKind, target: &str) -> Option<String> {
    let name = member.name.as_str();
    if allowed(name)?.contains(&target) {
        return None;
    }
    match kind {
        DependencyKind::Normal | DependencyKind::Build => Some(format!(
            "the edge {name} -> {target} is not drawn in {PAGE}"
        )),
        DependencyKind::Dev if name == "xtask" => {
            Some(format!("xtask links none of our crates, {target} is one"))
        }
        DependencyKind::Dev if name == target || reaches(target, name) || is_on_top(target) => {
            Some(format!("{target} stands above {name}, even for its tests"))
        }
        DependencyKind::Dev => None,
    }
}

/// The two packages that nothing may use.
fn is_on_top(name: &str) -> bool {
    matches!(name, "cuzk-tests" | "xtask")
}

/// Whether `from` uses `to`, directly or not, by the table.
fn reaches(from: &str, to: &str) -> bool {
    allowed(from)
        .unwrap_or_default()
        .iter()
        .any(|&next| next == to || reaches(next, to))
}

fn allowed(name: &str) -> Option<&'static [&'static str]> {
    let (_, targets) = EDGES.iter().find(|(from, _)| *from == name)?;
    Some(targets)
}

/// The package behind a dependency key: the root's table may rename it.
fn package_of<'a>(tree: &'a Tree, key: &'a str) -> &'a str {
    let renamed = || {
        tree.root_manifest
            .get("workspace")?
            .get("dependencies")?
            .get(key)?
            .get("package")?
            .as_str()
    };
    renamed().unwrap_or(key)
}

/// Differences between [`EDGES`] and the table under the heading of the page. No
/// page, no findings: a tree without it is one of these tests.
fn page_findings(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(PAGE) else {
        return Vec::new();
    };
    let drawn = drawn_edges(text);
    let ours: BTreeSet<(String, String)> = EDGES
        .iter()
        .flat_map(|(from, targets)| targets.iter().map(|to| (from.to_string(), to.to_string())))
        .collect();
    let missing = ours
        .difference(&drawn)
        .map(|(from, to)| format!("the table of edges lacks {from} -> {to}, which tidy allows"));
    let extra = drawn
        .difference(&ours)
        .map(|(from, to)| format!("the table of edges has {from} -> {to}, which tidy refuses"));
    missing
        .chain(extra)
        .map(|message| Finding::error(PAGE, 0, message))
        .collect()
}

/// The edges in the rows under the heading: the first cell names a crate, the
/// second what it uses, each name between backticks.
fn drawn_edges(text: &str) -> BTreeSet<(String, String)> {
    let section = text
        .lines()
        .skip_while(|line| line.trim_end() != HEADING)
        .skip(1)
        .take_while(|line| !line.starts_with("## "));
    let mut edges = BTreeSet::new();
    for row in section {
        let Some((from, rest)) = row
            .strip_prefix('|')
            .and_then(|cells| cells.split_once('|'))
        else {
            continue;
        };
        let uses = rest.split_once('|').map_or(rest, |(cell, _)| cell);
        for from in names_in_backticks(from) {
            for to in names_in_backticks(uses) {
                edges.insert((from.to_owned(), to.to_owned()));
            }
        }
    }
    edges
}

fn names_in_backticks(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_of;

    fn manifest(name: &str, tables: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{tables}")
    }

    fn member_findings(name: &str, tables: &str) -> Vec<String> {
        let path = match name {
            "xtask" => "xtask/Cargo.toml".to_owned(),
            "cuzk-tests" => "tests/Cargo.toml".to_owned(),
            _ => format!("crates/{name}/Cargo.toml"),
        };
        findings_of(check, &[(&path, &manifest(name, tables))])
    }

    /// The whole table as the page has it.
    fn page() -> String {
        let mut text = format!("# A\n\n{HEADING}\n\n| crate | uses | why |\n|---|---|---|\n");
        for (from, targets) in EDGES {
            text.push_str(&format!("| `{from}` | `{}` | x |\n", targets.join("`, `")));
        }
        text.replace("``", "nothing") + "\n## After\n| `xtask` | `cuzk-core` |\n"
    }

    #[test]
    fn drawn_edges_pass() {
        for (name, target) in [
            ("cuzk-pinned", "cuzk-budget"),
            ("cuzk-core", "cuzk-gpu"),
            ("cuzk-daemon", "cuzk-filecoin"),
            ("cuzk-tests", "cuzk-synth"),
            ("cuzk-budget", "thiserror"),
        ] {
            for table in ["dependencies", "build-dependencies", "dev-dependencies"] {
                let tables = format!("[{table}]\n{target}.workspace = true\n");
                let found = member_findings(name, &tables);
                assert!(found.is_empty(), "{name} {table}: {found:?}");
            }
        }
    }

    #[test]
    fn edges_up_or_past_the_drawing_are_caught() {
        for (name, target) in [
            ("cuzk-budget", "cuzk-pinned"),
            ("cuzk-synth", "cuzk-gpu"),
            ("cuzk-gpu", "cuzk-core"),
            ("cuzk-core", "cuzk-filecoin"),
            ("cuzk-filecoin", "cuzk-gpu"),
            ("xtask", "cuzk-budget"),
            ("cuzk-filecoin", "cuzk-tests"),
        ] {
            let found = member_findings(
                name,
                &format!("[dependencies]\n{target}.workspace = true\n"),
            );
            assert_eq!(
                found.len(),
                1,
                "{name} -> {target} must be refused: {found:?}"
            );
            assert!(found[0].contains(":4: the edge"), "{found:?}");
        }
    }

    #[test]
    fn edges_for_one_target_only_are_caught() {
        let tables = "[target.'cfg(unix)'.dependencies]\ncuzk-gpu = { workspace = true }\n";
        assert_eq!(member_findings("cuzk-synth", tables).len(), 1);
    }

    #[test]
    fn tests_may_use_what_stands_beside_or_below_but_not_above() {
        let dev = |target: &str| format!("[dev-dependencies]\n{target}.workspace = true\n");
        assert!(member_findings("cuzk-gpu", &dev("cuzk-budget")).is_empty());
        assert!(member_findings("cuzk-gpu", &dev("cuzk-synth")).is_empty());
        for (name, above) in [
            ("cuzk-budget", "cuzk-pinned"),
            ("cuzk-budget", "cuzk-core"),
            ("cuzk-gpu", "cuzk-daemon"),
            ("cuzk-gpu", "cuzk-tests"),
            ("cuzk-gpu", "cuzk-gpu"),
            ("xtask", "cuzk-budget"),
        ] {
            let found = member_findings(name, &dev(above));
            assert_eq!(found.len(), 1, "{name} -> {above}: {found:?}");
        }
    }

    #[test]
    fn a_renamed_dependency_is_seen_through() {
        let root = "[workspace.dependencies]\nengine = { package = \"cuzk-core\", path = \"x\" }\n";
        let member = manifest("cuzk-gpu", "[dependencies]\nengine.workspace = true\n");
        let files = [
            ("Cargo.toml", root),
            ("crates/cuzk-gpu/Cargo.toml", member.as_str()),
        ];
        let found = findings_of(check, &files);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("cuzk-gpu -> cuzk-core"), "{found:?}");
    }

    #[test]
    fn an_unknown_member_is_caught() {
        let found = member_findings("cuzk-new", "");
        assert!(
            found[0].contains("`cuzk-new` is not in the table"),
            "{found:?}"
        );
    }

    #[test]
    fn the_page_must_have_the_same_edges() {
        assert!(findings_of(check, &[(PAGE, &page())]).is_empty());
        let lacking = page().replace("| `cuzk-gpu` | `cuzk-pinned` | x |\n", "");
        let found = findings_of(check, &[(PAGE, &lacking)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("lacks cuzk-gpu -> cuzk-pinned"));
        let extra = page().replace("| `xtask` | nothing |", "| `xtask` | `cuzk-core` |");
        let found = findings_of(check, &[(PAGE, &extra)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("has xtask -> cuzk-core"));
    }
}
