//! cuzk.
fn main() {}
