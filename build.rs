//! Packs the efficiency tables, rebuilds the library when a file is added to a folder that it embeds, and hashes what these
//! folders hold.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where the tables are.
const TABLES: &str = "bench_data";

/// Effort of the compressor, from 1 to 10.
const EFFORT: u8 = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for folder in ["hardware", "models", "corrections", TABLES] {
        println!("cargo::rerun-if-changed={folder}");
        collect(Path::new(folder), &mut files)?;
    }
    files.sort();
    // FNV-1a: it distinguishes builds, and is no cryptographic hash.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in &files {
        let name: Vec<u8> = file.iter().flat_map(|part| part.as_encoded_bytes()).copied().collect();
        for byte in name.into_iter().chain(std::fs::read(file)?) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=RIDGEPOINT_DATA_HASH={hash:016x}");
    pack(&files, Path::new(&std::env::var("OUT_DIR")?))
}

/// The files that predictions may depend on; a package has no others.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
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

/// Writes `tables.bin`, the compressed header and series of every table `<gpu>/<engine>/<operator>.csv`, and `tables.rs`, where
/// they are in it.
fn pack(files: &[PathBuf], out: &Path) -> Result<(), Box<dyn Error>> {
    let (mut packed, mut index) = (Vec::new(), "&[\n".to_owned());
    let mut chunk = |text: &str| {
        let bytes = miniz_oxide::deflate::compress_to_vec(text.as_bytes(), EFFORT);
        let start = packed.len();
        packed.extend_from_slice(&bytes);
        format!("Chunk {{ bytes: {start}..{}, length: {} }}", packed.len(), text.len())
    };
    for file in files {
        let inside = file.strip_prefix(TABLES).unwrap_or(file);
        let parts: Vec<_> = inside.iter().filter_map(|part| part.to_str()).collect();
        let [gpu, engine, name] = parts[..] else { continue };
        let Some(operator) = name.strip_suffix(".csv") else { continue };
        let text = std::fs::read_to_string(file)?;
        // The header and the line of columns below it; then lines, of which the first of a series begins with its number.
        let header: usize = text.split_inclusive('\n').take_while(|line| line.starts_with('#')).map(str::len).sum();
        let columns = text[header..].find('\n').map_or(text.len(), |end| header + end + 1);
        let width = text[header..columns].matches(',').count();
        let mut series: BTreeMap<usize, String> = BTreeMap::new();
        let mut id = 0;
        for line in text[columns..].split_inclusive('\n') {
            // A line of fewer columns belongs to the series of the line above.
            if line.matches(',').count() >= width {
                let first = line.split(',').next().unwrap_or_default();
                id = first.parse().map_err(|_| format!("{}: '{first}' is no number of a series", file.display()))?;
            }
            series.entry(id).or_default().push_str(line);
        }
        writeln!(index, "PackedTable {{ gpu: {gpu:?}, engine: {engine:?}, operator: {operator:?},")?;
        writeln!(index, "header: {}, series: &[", chunk(&text[..columns]))?;
        for (id, lines) in series {
            writeln!(index, "({id}, {}),", chunk(&lines))?;
        }
        index.push_str("] },\n");
    }
    index.push(']');
    std::fs::write(out.join("tables.bin"), packed)?;
    std::fs::write(out.join("tables.rs"), index)?;
    Ok(())
}
