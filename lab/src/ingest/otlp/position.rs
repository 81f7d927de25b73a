//! Where in a file the parser is, and how much of it one element may take. Uses nothing else of the crate.

use std::cell::Cell;
use std::io::{self, BufRead, Read};

/// Longest event, header of a span or description of a resource, bytes: they are held one at a time.
const MAX_ELEMENT_BYTES: u64 = 16 << 20;

/// What has been read, and what the element in progress may still take.
#[derive(Debug)]
pub(super) struct Position {
    newlines: Cell<u64>,
    bytes: Cell<u64>,
    element_left: Cell<Option<u64>>,
}

impl Position {
    pub(super) fn start() -> Self {
        Position { newlines: Cell::new(0), bytes: Cell::new(0), element_left: Cell::new(None) }
    }

    /// The current line, from 1.
    pub(super) fn line(&self) -> u64 {
        self.newlines.get() + 1
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// An element that is held as a whole begins.
    pub(super) fn begin_element(&self) {
        self.element_left.set(Some(MAX_ELEMENT_BYTES));
    }

    /// It is over.
    pub(super) fn end_element(&self) {
        self.element_left.set(None);
    }

    /// Whether an element was too long.
    pub(super) fn too_long(&self) -> bool {
        self.element_left.get() == Some(0)
    }

    fn advance(&self, read: &[u8]) -> io::Result<()> {
        let newlines = read.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.newlines.set(self.newlines.get() + newlines);
        self.bytes.set(self.bytes.get() + read.len() as u64);
        if let Some(left) = self.element_left.get() {
            let left = left.saturating_sub(read.len() as u64);
            self.element_left.set(Some(left));
            if left == 0 {
                return Err(io::Error::other("one event or span header of more than 16 MiB"));
            }
        }
        Ok(())
    }
}

/// A reader that keeps its position.
pub(super) struct Tracked<'p, R> {
    reader: R,
    position: &'p Position,
}

impl<'p, R: BufRead> Tracked<'p, R> {
    pub(super) fn new(reader: R, position: &'p Position) -> Self {
        Tracked { reader, position }
    }

    /// Steps over blanks; false at the end of the file.
    pub(super) fn skip_blanks(&mut self) -> io::Result<bool> {
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(false);
            }
            let blanks = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let found = blanks < buffer.len();
            self.position.advance(buffer.get(..blanks).unwrap_or_default())?;
            self.reader.consume(blanks);
            if found {
                return Ok(true);
            }
        }
    }

    /// The bytes at hand, for a look at how the file begins.
    pub(super) fn peek(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    /// Steps over bytes that were peeked at.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }
}

impl<R: BufRead> Read for Tracked<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.position.advance(buffer.get(..read).unwrap_or_default())?;
        Ok(read)
    }
}
