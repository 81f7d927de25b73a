//! The corpora: every file of every one passes, each target has one, and all stay small.
#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

use std::path::Path;

use ridgepoint::input::FileKind;
use ridgepoint_fuzz::corpus::{MAX_BYTES, MAX_FILE_BYTES, folder, paths};
use ridgepoint_fuzz::{find, of_kind, targets};
use ridgepoint_lab::ingest::formats::FORMATS;

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let names: Vec<String> = targets().iter().map(|target| target.name.to_owned()).collect();
    let folders = paths(&folder("")).unwrap();
    let folders: Vec<String> =
        folders.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(folders, sorted);
    for name in names {
        assert!(!paths(&folder(&name)).unwrap().is_empty(), "{name} has no files");
    }
}

#[test]
fn every_kind_of_file_and_every_format_of_traces_has_a_target() {
    for kind in FileKind::all() {
        let names = of_kind(kind);
        assert!(!names.is_empty() && names.iter().all(|name| find(name).is_some()), "{kind:?} has {names:?}");
    }
    for format in FORMATS {
        let name = format.name.replace('-', "_");
        let is_known = |kind| of_kind(kind).contains(&name.as_str());
        assert!(is_known(FileKind::Trace) || is_known(FileKind::KvEventDump), "{name} has no target");
    }
}

/// A parser that opened files by itself would be bounded by no [`FileKind`], and need no target.
#[test]
fn files_are_opened_by_the_one_reader() {
    // The reader; and the writer, which looks at what it would replace.
    const MAY: [&str; 4] =
        ["src/input/reader.rs", "replay/src/input/gzip.rs", "cli/src/output/file.rs", "cli/src/output/kind.rs"];
    const OPENS: [&str; 4] = ["File::open(", "fs::read(", "fs::read_to_string(", "OpenOptions"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut folders, mut found) =
        (["src", "replay/src", "lab/src", "cli/src"].map(|name| root.join(name)).to_vec(), Vec::new());
    while let Some(folder) = folders.pop() {
        for path in paths(&folder).unwrap() {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            if !name.ends_with("tests.rs") && OPENS.iter().any(|open| code.contains(open)) {
                found.push(name);
            }
        }
    }
    found.sort();
    let mut may = MAY;
    may.sort_unstable();
    assert_eq!(found, may);
}

#[test]
fn corpora_stay_small() {
    let files = targets().iter().flat_map(|target| paths(&folder(target.name)).unwrap());
    let sizes: Vec<_> = files.map(|path| (std::fs::metadata(&path).unwrap().len() as usize, path)).collect();
    for (bytes, path) in &sizes {
        assert!(*bytes <= MAX_FILE_BYTES, "{} has {bytes} bytes", path.display());
    }
    let all: usize = sizes.iter().map(|(bytes, _)| bytes).sum();
    assert!(all <= MAX_BYTES, "{all} bytes");
}

#[test]
fn every_file_of_the_corpora_passes() {
    for target in targets() {
        for path in paths(&folder(target.name)).unwrap() {
            eprintln!("{}", path.display());
            (target.run)(&std::fs::read(&path).unwrap());
        }
    }
}
