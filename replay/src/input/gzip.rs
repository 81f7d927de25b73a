//! Opens files that may be gzip, as captures, reports and request files often are.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use ridgepoint::input::{FileKind, Input, read_error};
use ridgepoint::{Error, Result};

const GZIP: &[u8] = b"\x1f\x8b";

/// Opens a file, which may be gzip if [`may_be_gzip`] is true of its kind.
///
/// # Errors
/// Those of [`Input::new`].
pub fn open(kind: FileKind, path: &Path) -> Result<Input<'static>> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    read(kind, path.display().to_string(), file)
}

/// Reads from `rest`, which errors call `origin` and which may be gzip if [`may_be_gzip`] is true of its kind.
///
/// # Errors
/// Those of [`Input::new`].
pub fn read<'a>(kind: FileKind, origin: impl Into<String>, mut rest: impl Read + 'a) -> Result<Input<'a>> {
    let origin = origin.into();
    if !may_be_gzip(kind) {
        return Input::new(kind, origin, rest);
    }
    let mut start = Vec::new();
    (&mut rest).take(GZIP.len() as u64).read_to_end(&mut start).map_err(|error| read_error(&origin, error))?;
    let is_gzip = start == GZIP;
    let whole = Cursor::new(start).chain(rest);
    if !is_gzip {
        return Input::new(kind, origin, whole);
    }
    let packed_bytes = Rc::new(Cell::new(0));
    let packed = Packed { rest: whole, bytes: Rc::clone(&packed_bytes) };
    Input::unpacked(kind, origin, MultiGzDecoder::new(packed), packed_bytes)
}

/// Counts the bytes of a compressed file.
struct Packed<R> {
    rest: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Packed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.rest.read(buffer)?;
        self.bytes.set(self.bytes.get().saturating_add(read as u64));
        Ok(read)
    }
}

/// Returns whether files of a kind may be compressed by gzip.
pub fn may_be_gzip(kind: FileKind) -> bool {
    matches!(kind, FileKind::Trace | FileKind::Requests | FileKind::KvEventDump)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_may_be_gzip() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut packed, b"\xef\xbb\xbf{\"meta\": {}}\n").unwrap();
        let packed = packed.finish().unwrap();
        for kind in FileKind::all().filter(|kind| may_be_gzip(*kind)) {
            let input = read(kind, "f.gz", packed.as_slice()).unwrap();
            assert_eq!(input.head(), b"{\"meta\": {}}\n");
            assert_eq!(input.text().unwrap(), "{\"meta\": {}}\n");
        }
        let cut = read(FileKind::Trace, "f.gz", &packed[..packed.len() - 4]).unwrap();
        assert!(cut.head().starts_with(b"{"), "the complete part counts for the format");
        assert!(cut.text().unwrap_err().to_string().contains("f.gz"));
    }

    #[test]
    fn other_files_are_not_unpacked() {
        for kind in FileKind::all().filter(|kind| !may_be_gzip(*kind) && !kind.is_binary()) {
            let error = read(kind, "f", b"\x1f\x8b\x08\0".as_slice()).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("f: is gzip: unpack it"), "{error}");
        }
    }
}
