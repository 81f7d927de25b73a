//! The corpora: a folder of small files per target, made from the project's own examples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Most bytes of a file of a corpus.
pub const MAX_FILE_BYTES: usize = 2048;

/// Most bytes of all corpora together.
pub const MAX_BYTES: usize = 200_000;

/// Longest word that is taken out of a file to be put into others, bytes.
const MAX_TOKEN_BYTES: usize = 40;

/// The files of a target, and the words in them.
#[derive(Debug, Clone, Default)]
pub struct Corpus {
    /// Files, in the order of their names.
    pub files: Vec<Vec<u8>>,
    /// Words and numbers of the files.
    pub tokens: Vec<Vec<u8>>,
}

impl Corpus {
    /// Reads the corpus of a target.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn of_target(name: &str) -> std::io::Result<Self> {
        let files = paths(&folder(name))?.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
        let words = files.iter().flat_map(|file| file.split(|byte| !is_of_word(*byte)));
        let tokens: BTreeSet<&[u8]> = words.filter(|word| (1..=MAX_TOKEN_BYTES).contains(&word.len())).collect();
        let tokens = tokens.into_iter().map(<[u8]>::to_vec).collect();
        Ok(Corpus { files, tokens })
    }
}

/// The folder of a target's corpus.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

/// The files of a folder, sorted; none without the folder.
///
/// # Errors
/// A folder that cannot be read.
pub fn paths(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-+:/@".contains(&byte)
}
