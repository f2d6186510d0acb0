//! Compiles the commit in, so that a record made elsewhere still names it.

use std::process::Command;

fn main() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // Records are left out: they change while they are made.
    let changed = git(&[
        "status",
        "--porcelain",
        "--",
        ":/",
        ":(exclude,top)bench/records",
    ]);
    let dirty = changed.is_none_or(|files| !files.is_empty());
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=CUZK_COMMIT={commit}");
    println!("cargo::rustc-env=CUZK_DIRTY={dirty}");
    // No file to watch: what git says can change with any file, so this runs with
    // every build of the package, and costs a few milliseconds.
    println!("cargo::rerun-if-changed=no-such-file");
}
