//! The `ridgepoint` command.
fn main() {}
