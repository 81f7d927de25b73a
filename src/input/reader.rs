//! The one reader of files: bounded, so that an endless file, pipe or device ends in an error.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

use super::file_kind::{FileKind, Limit};
use super::not_text::not_text;
use crate::error::{Error, Result};

/// Bytes from which the format of a file is detected.
const HEAD_BYTES: u64 = 256 << 10;
/// Most values of JSON in a record, or in a file that is read whole: each takes some 30 bytes, however short its text is.
const MOST_VALUES: u64 = 20_000_000;
/// Values that a compressed file may have whatever its length, and for each of its bytes. Records have less than 1 for a byte.
const VALUES_OF_PACKED: (u64, u64) = (400_000, 8);
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A unit of a file that is read record by record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A row of csv. An unclosed quote makes one row of the rest of a file.
    Row,
    /// A line of jsonl. Ten million token ids fit.
    Line,
    /// A JSON object, of which the fields that matter are kept.
    Object,
}

impl Record {
    /// Most bytes, and the problem of a longer one.
    fn limit(self) -> (u64, &'static str) {
        match self {
            Record::Row => {
                (1 << 20, "has a row of more than 1 MiB: is a quote not closed, or is it another kind of file?")
            }
            Record::Line => (128 << 20, "has a line of more than 128 MiB: write one object per line"),
            Record::Object => (512 << 20, "has a JSON object of more than 512 MiB: write several smaller ones"),
        }
    }
}

/// A file, pipe, device or text that is being read. It never asks how long the file is, and takes a UTF-8 byte order mark.
pub struct Input<'a> {
    origin: String,
    reader: BufReader<Bounded<'a>>,
}

impl Input<'static> {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of [`Input::new`].
    pub fn open(kind: FileKind, path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        Input::new(kind, path.display().to_string(), file)
    }
}

impl<'a> Input<'a> {
    /// Reads from `rest`, which errors call `origin`.
    ///
    /// # Errors
    /// A file that can't be read, or that is compressed, UTF-16 or no text where its kind is text.
    pub fn new(kind: FileKind, origin: impl Into<String>, rest: impl Read + 'a) -> Result<Self> {
        Self::of(kind, origin.into(), rest, None)
    }

    /// [`Input::new`] of a file that `rest` unpacks, of which `packed_bytes` were read. A few bytes become no millions of values.
    ///
    /// # Errors
    /// Those of [`Input::new`].
    pub fn unpacked(
        kind: FileKind,
        origin: impl Into<String>,
        rest: impl Read + 'a,
        packed_bytes: Rc<Cell<u64>>,
    ) -> Result<Self> {
        Self::of(kind, origin.into(), rest, Some(packed_bytes))
    }

    fn of(kind: FileKind, origin: String, rest: impl Read + 'a, packed_bytes: Option<Rc<Cell<u64>>>) -> Result<Self> {
        let mut rest: Box<dyn Read + 'a> = Box::new(rest);
        let mut head = read_head(&origin, &mut rest)?;
        if let Some(problem) = not_text(&head).filter(|_| !kind.is_binary()) {
            return Err(Error::parse(origin, format!("{problem}; expected a {}", kind.name())));
        }
        if head.starts_with(BYTE_ORDER_MARK) {
            head.drain(..BYTE_ORDER_MARK.len());
        }
        let count = Rc::new(RecordCount {
            kind,
            record: Cell::new(Record::Object),
            bytes: Cell::new(0),
            records: Cell::new(0),
            values: Cell::new(0),
            all_values: Cell::new(0),
            packed_bytes,
            most: Cell::new(u64::MAX),
        });
        let reader = BufReader::with_capacity(1 << 16, Bounded { head: Cursor::new(head), rest, count });
        Ok(Input { origin, reader })
    }

    /// Refuses more records than these, if the file's kind allows as many, and returns the counter of the file's records.
    pub fn at_most(&self, records: u64) -> Rc<RecordCount> {
        let count = &self.reader.get_ref().count;
        count.most.set(records);
        Rc::clone(count)
    }

    /// Returns what errors call the file.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the first bytes of the file, up to 256 KiB, whether they were read or not.
    pub fn head(&self) -> &[u8] {
        self.reader.get_ref().head.get_ref()
    }

    /// Reads the whole file as text.
    ///
    /// # Errors
    /// A file that can't be read, is longer than its kind may be, or is not UTF-8.
    pub fn text(self) -> Result<String> {
        let origin = self.origin.clone();
        let not_utf8 = |error: std::string::FromUtf8Error| format!("is not UTF-8 text: {}", error.utf8_error());
        String::from_utf8(self.bytes()?).map_err(|error| Error::parse(origin, not_utf8(error)))
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// A file that can't be read or is longer than its kind may be.
    pub fn bytes(mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes).map_err(|error| read_error(&self.origin, error))?;
        Ok(bytes)
    }

    /// Returns a reader of the file's records, and the counter that each must be added to.
    pub fn records(self, record: Record) -> (BufReader<Bounded<'a>>, Rc<RecordCount>) {
        let count = self.reader.get_ref().count.clone();
        count.record.set(record);
        (self.reader, count)
    }

    /// Returns a reader of the whole file, for a parser that needs no text.
    pub fn stream(self) -> BufReader<Bounded<'a>> {
        self.reader
    }
}

/// Reads up to 256 KiB. A gzip stream that ends early has the bytes before its end.
fn read_head(origin: &str, rest: &mut dyn Read) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    match rest.take(HEAD_BYTES).read_to_end(&mut head) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(read_error(origin, error)),
        _ => Ok(head),
    }
}

/// Reads a whole file of text.
///
/// # Errors
/// Those of [`Input::open`] and [`Input::text`].
pub fn read_text(kind: FileKind, path: &Path) -> Result<String> {
    Input::open(kind, path)?.text()
}

/// Turns an error of an [`Input`]'s reader into one that names the file.
pub fn read_error(origin: &str, error: io::Error) -> Error {
    // Limits are reported as such errors.
    if error.kind() == io::ErrorKind::InvalidData {
        return Error::parse(origin, error.to_string());
    }
    Error::io(origin, error)
}

/// Bytes and values that were read since the last record began, and records.
pub struct RecordCount {
    kind: FileKind,
    record: Cell<Record>,
    bytes: Cell<u64>,
    records: Cell<u64>,
    values: Cell<u64>,
    /// The values of all records.
    all_values: Cell<u64>,
    packed_bytes: Option<Rc<Cell<u64>>>,
    /// Most records, whatever the kind of file allows.
    most: Cell<u64>,
}

impl RecordCount {
    /// Returns whether the file has more records than its reader was to take.
    pub fn is_passed(&self) -> bool {
        self.records.get() > self.most.get()
    }

    /// Counts a record that begins.
    pub fn begin(&self) {
        if matches!(self.kind.limit(), Limit::Records(_)) {
            self.bytes.set(0);
            self.values.set(0);
        }
        self.records.set(self.records.get().saturating_add(1));
    }

    /// Counts values of a record. Those of text are counted as it is read, a binary file's by its parser.
    ///
    /// # Errors
    /// More than a record, or a file that is so short, can have.
    pub fn add_values(&self, values: u64) -> std::result::Result<(), String> {
        self.values.set(self.values.get().saturating_add(values));
        self.all_values.set(self.all_values.get().saturating_add(values));
        self.values_problem().map_or(Ok(()), Err)
    }

    fn values_problem(&self) -> Option<String> {
        let name = self.kind.name();
        if self.values.get() > MOST_VALUES {
            let what = if matches!(self.kind.limit(), Limit::Bytes(_)) { "" } else { "a record of " };
            return Some(format!(
                "has {what}more than {MOST_VALUES} values, the limit of a {name}: is it the right file?"
            ));
        }
        let packed_bytes = self.packed_bytes.as_ref()?.get();
        let (free, of_byte) = VALUES_OF_PACKED;
        (self.all_values.get() > free.saturating_add(of_byte.saturating_mul(packed_bytes))).then(|| {
            let values = self.all_values.get();
            format!("becomes more than {values} values out of {packed_bytes} bytes of gzip: unpack it if it is the right {name}")
        })
    }

    /// Returns what is too long, if anything is.
    fn problem(&self) -> Option<String> {
        let name = self.kind.name();
        let too_many = |limit: u64, what: &str| {
            format!("has more than {limit} {what}, the limit of a {name}: is it the right file?")
        };
        let (bytes, records) = (self.bytes.get(), self.records.get());
        match (self.kind.limit(), self.record.get().limit()) {
            (Limit::Bytes(limit), _) if bytes > limit => Some(too_many(limit >> 20, "MiB")),
            _ if self.is_passed() => Some(too_many(self.most.get(), "records")),
            (Limit::Records(limit), _) if records > limit => Some(too_many(limit, "records")),
            (Limit::Records(_), (limit, problem)) if bytes > limit => Some(format!("{problem} (read as a {name})")),
            _ => None,
        }
    }
}

/// A reader that fails where a limit is exceeded.
pub struct Bounded<'a> {
    head: Cursor<Vec<u8>>,
    rest: Box<dyn Read + 'a>,
    count: Rc<RecordCount>,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let from_head = self.head.read(buffer)?;
        let read = if from_head > 0 { from_head } else { self.rest.read(buffer)? };
        self.count.bytes.set(self.count.bytes.get().saturating_add(read as u64));
        if !self.count.kind.is_binary() {
            let values = buffer.iter().take(read).filter(|byte| matches!(byte, b',' | b'{' | b'[')).count();
            self.count
                .add_values(values as u64)
                .map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, problem))?;
        }
        match self.count.problem() {
            Some(problem) => Err(io::Error::new(io::ErrorKind::InvalidData, problem)),
            None => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn message<T>(found: Result<T>) -> String {
        found.map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn an_endless_file_of_any_kind_ends_in_an_error_that_names_it() {
        for kind in FileKind::all() {
            let mut endless = Input::new(kind, "endless", io::repeat(b'x')).unwrap().stream();
            let error = read_error("endless", io::copy(&mut endless, &mut io::sink()).unwrap_err());
            assert_eq!(error.kind(), ErrorKind::Parse);
            let message = error.to_string();
            assert!(message.starts_with("endless: has ") && message.contains(kind.name()), "{message}");
        }
    }

    #[test]
    fn records_without_end_are_counted() {
        let (mut endless, count) =
            Input::new(FileKind::ClosedLoop, "endless", io::repeat(b'x')).unwrap().records(Record::Row);
        let failed = (0..2_000_000).find_map(|_| {
            count.begin();
            endless.read_exact(&mut [0; 100]).err()
        });
        let message = read_error("endless", failed.unwrap()).to_string();
        assert!(message.contains("more than 1000000 records, the limit of a file of closed-loop runs"), "{message}");
    }

    #[test]
    fn a_record_and_a_short_packed_file_have_a_limit_of_values() {
        let message = |kind, packed_bytes: Option<u64>| {
            let (origin, rest) = ("f", io::repeat(b','));
            let packed = packed_bytes.map(|bytes| Rc::new(Cell::new(bytes)));
            let (mut reader, _) = Input::of(kind, origin.to_owned(), rest, packed).unwrap().records(Record::Object);
            read_error(origin, io::copy(&mut reader, &mut io::sink()).unwrap_err()).to_string()
        };
        let said = "f: has a record of more than 20000000 values, the limit of a trace or report";
        assert!(message(FileKind::Trace, None).starts_with(said));
        assert!(message(FileKind::Trace, Some(u64::MAX)).starts_with(said));
        assert!(message(FileKind::Batch, None).starts_with("f: has more than 20000000 values, the limit of a batch"));
        let message = message(FileKind::Trace, Some(60_000));
        assert!(message.contains("values out of 60000 bytes of gzip: unpack it if"), "{message}");
    }

    #[test]
    fn files_that_are_no_text_or_too_long_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.yaml");
        let read = || read_text(FileKind::Profile, &path);
        std::fs::write(&path, b"a: \xff").unwrap();
        assert!(message(read()).contains("file.yaml: is not UTF-8 text"));
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(message(read()).contains("holds zero bytes"));
        std::fs::write(&path, " ".repeat((16 << 20) + 1)).unwrap();
        assert!(message(read()).contains("has more than 16 MiB, the limit of a load profile"));
        let of_folder = read_text(FileKind::Profile, folder.path());
        assert!(matches!(of_folder, Err(error) if error.kind() == ErrorKind::Io));
    }

    #[test]
    fn what_is_no_text_is_named_with_the_way_out() {
        for (start, expected) in [
            (b"\x1f\x8b\x08\0".as_slice(), "is gzip: unpack it"),
            (b"PK\x03\x04", "is a zip archive: unpack it"),
            (b"PAR1\x15", "is parquet: convert it to text"),
            (b"\xff\xfe{\0}\0", "is UTF-16 text: save it as UTF-8"),
            (b"{\0}\0", "holds zero bytes"),
        ] {
            for kind in FileKind::all().filter(|kind| !kind.is_binary()) {
                let message = message(Input::new(kind, "f", start));
                assert!(message.starts_with(&format!("f: {expected}")) && message.contains(kind.name()), "{message}");
            }
        }
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        let input = Input::new(FileKind::ModelConfig, "f", b"\xef\xbb\xbf{}".as_slice()).unwrap();
        assert_eq!(input.head(), b"{}");
        assert_eq!(input.text().unwrap(), "{}");
    }
}
