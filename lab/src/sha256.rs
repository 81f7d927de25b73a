//! Hashes bytes: which rows a correction was fitted on, which configurations of a sweep are known.

use sha2::{Digest, Sha256};

/// SHA-256 of `chunks` one after the other, in hexadecimal digits.
pub fn sha256_hex<C: AsRef<[u8]>>(chunks: impl IntoIterator<Item = C>) -> String {
    let mut hasher = Sha256::new();
    chunks.into_iter().for_each(|chunk| hasher.update(chunk));
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
