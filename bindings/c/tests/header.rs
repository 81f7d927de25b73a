//! The committed header is the one that the sources give.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

/// In the order in which the header should be read.
const SOURCES: [&str; 8] = ["status", "text", "handle", "options", "create", "steps", "delays", "describe"];

fn generated() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root.join("src").join(source).with_extension("rs"));
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    // What Rust's documentation says under "Safety" is said once for all functions at the top.
    let mut text = String::new();
    let mut is_safety = false;
    for line in String::from_utf8(header).unwrap().lines() {
        is_safety = line.trim() == "* # Safety" || (is_safety && !line.trim().starts_with("*/"));
        if !is_safety {
            text.push_str(line);
            text.push('\n');
        }
    }
    text.replace(" *\n */", " */")
}

#[test]
fn the_committed_header_is_what_the_sources_give() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/ridgepoint.h");
    let generated = generated();
    if std::env::var_os("RIDGEPOINT_WRITE_HEADER").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == generated,
        "include/ridgepoint.h is not what the sources give; RIDGEPOINT_WRITE_HEADER=1 cargo test -p ridgepoint-c --test header renews it"
    );
}

#[test]
fn every_exported_function_is_in_the_header_with_words() {
    let header = generated();
    let exported = SOURCES.iter().flat_map(|source| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(source).with_extension("rs");
        let text = std::fs::read_to_string(path).unwrap();
        let named = |line: &str| Some(line.split_once("extern \"C\" fn ")?.1.split_once('(')?.0.to_owned());
        text.lines().filter_map(named).collect::<Vec<_>>()
    });
    let exported: Vec<String> = exported.collect();
    assert_eq!(exported.len(), 16, "{exported:?}");
    for name in exported {
        let at = header.find(&format!("{name}(")).unwrap_or_else(|| panic!("{name} is not in the header"));
        let before = header.get(..at).unwrap();
        let words = before.rfind("*/").unwrap();
        assert!(!before.get(words..).unwrap().contains(';'), "{name} has no comment");
    }
}
