//! Recognises files that are no UTF-8 text by their first bytes.

/// Beginnings of files that are not UTF-8 text, and what to do about each.
const NOT_TEXT: [(&[u8], &str); 9] = [
    (b"\x1f\x8b", "is gzip: unpack it"),
    (b"PK\x03\x04", "is a zip archive: unpack it"),
    (b"\x28\xb5\x2f\xfd", "is zstd: unpack it"),
    (b"BZh", "is bzip2: unpack it"),
    (b"\xfd7zXZ\0", "is xz: unpack it"),
    (b"PAR1", "is parquet: convert it to text"),
    (b"\xff\xfe", "is UTF-16 text: save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text: save it as UTF-8"),
    (b"version https://git-lfs", "is a pointer of git LFS: fetch the file with `git lfs pull`"),
];

/// Says why a file with this beginning can't be read as text, if it can't.
pub(super) fn not_text(bytes: &[u8]) -> Option<&'static str> {
    let known = NOT_TEXT.iter().find(|(start, _)| bytes.starts_with(start)).map(|(_, problem)| *problem);
    let has_zeros = || bytes.iter().take(1024).any(|byte| *byte == 0);
    known.or_else(|| has_zeros().then_some("holds zero bytes: it is no UTF-8 text"))
}
