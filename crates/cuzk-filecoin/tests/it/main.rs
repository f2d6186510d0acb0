//! Tests of this crate. They are one binary outside of it, because the circuits
//! take minutes to compile and a harness inside would compile them again.

mod circuits;
mod fixture;
mod hostile;
mod porep;
mod post;
mod qap;
mod request;
mod sizes;
mod snap;
mod sparse;
mod support;
mod verify;

/// A unit test inside the crate would never run.
#[test]
fn no_tests_inside_the_crate() {
    fn search(folder: &std::path::Path) {
        for entry in folder.read_dir().expect("the sources are there") {
            let path = entry.expect("the sources are readable").path();
            if path.is_dir() {
                search(&path);
            } else {
                let text = std::fs::read_to_string(&path).expect("sources are text");
                assert!(!text.contains("#[test]"), "a test in {}", path.display());
            }
        }
    }
    search(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
}
