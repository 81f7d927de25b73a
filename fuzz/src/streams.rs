//! Targets of streams that servers send.

use ridgepoint_probe::sse::{Event, EventParser};

/// Server-sent events: the first byte says in how many pieces the others arrive, which must make no difference.
pub fn server_sent_events(bytes: &[u8]) {
    let Some((pieces, bytes)) = bytes.split_first() else { return };
    let whole = read(std::iter::once(bytes));
    let size = (bytes.len() / (usize::from(*pieces) + 1)).max(1);
    assert_eq!(read(bytes.chunks(size)), whole);
}

/// The events, comments and rest of some pieces; `None` where a line is too long.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<(Vec<Event>, u64, Option<Event>)> {
    let (mut parser, mut events) = (EventParser::default(), Vec::new());
    for piece in pieces {
        events.extend(parser.push(piece).ok()?);
    }
    let last = parser.finish();
    Some((events, parser.comments, last))
}
