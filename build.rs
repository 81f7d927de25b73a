//! Rebuilds the library when a file is added to a folder that it embeds, and hashes what these folders hold.
#![allow(clippy::print_stdout)]

use std::io::Result;
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let mut files = Vec::new();
    for folder in ["hardware", "models", "corrections", "bench_data"] {
        println!("cargo::rerun-if-changed={folder}");
        collect(Path::new(folder), &mut files)?;
    }
    files.sort();
    // FNV-1a: it tells builds apart and withstands nobody.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let name: Vec<u8> = file.iter().flat_map(|part| part.as_encoded_bytes()).copied().collect();
        for byte in name.into_iter().chain(std::fs::read(&file)?) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=RIDGEPOINT_DATA_HASH={hash:016x}");
    Ok(())
}

/// The files that predictions may depend on; a package has no others.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|ending| ["csv", "json", "toml"].iter().any(|of| ending == *of)) {
            files.push(path);
        }
    }
    Ok(())
}
