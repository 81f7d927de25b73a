//! Rebuilds the library when a file is added to a folder that it embeds.
#![allow(clippy::print_stdout)]

fn main() {
    for folder in ["hardware", "models", "corrections", "bench_data"] {
        println!("cargo::rerun-if-changed={folder}");
    }
}
