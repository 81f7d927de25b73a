//! All requests of a step in one cell of a table: items `[Nx]Q@C[:partial]`, separated by blanks, as `predict-step` takes prompt
//! chunks.

use ridgepoint::Request;

/// A step without requests: an empty cell stands for a trace that does not know them.
const NO_REQUESTS: &str = "-";
const PARTIAL: &str = ":partial";

/// Most requests of a table that its items stand for beyond one each: they take 12 bytes, and a judge copies them.
const MAX_REPEATS: u64 = 10_000_000;

/// The cell; equal requests in a row become one item.
pub(super) fn write_cell(requests: &[Request]) -> String {
    if requests.is_empty() {
        return NO_REQUESTS.to_owned();
    }
    let item = |equal: &[Request]| {
        let Request { num_scheduled_tokens, num_computed_tokens, samples, .. } = equal.first()?;
        let times = if equal.len() > 1 { format!("{}x", equal.len()) } else { String::new() };
        let suffix = if *samples { "" } else { PARTIAL };
        Some(format!("{times}{num_scheduled_tokens}@{num_computed_tokens}{suffix}"))
    };
    requests.chunk_by(|a, b| a == b).filter_map(item).collect::<Vec<String>>().join(" ")
}

/// Reads the requests of a cell: `count` of them with `tokens` scheduled tokens together. `repeats` counts what the cells of a
/// table stand for beyond their items.
///
/// # Errors
/// What is expected instead.
pub(super) fn read_cell(text: &str, count: u64, tokens: u64, repeats: &mut u64) -> Result<Vec<Request>, String> {
    let expected = || {
        format!(
            "the {count} requests with {tokens} tokens that the row counts, as items like 512@1024, 64x1@2048 or \
             512@0:partial, each count at least 1, separated by blanks"
        )
    };
    let mut requests = Vec::new();
    for item in text.split_ascii_whitespace().filter(|item| *item != NO_REQUESTS) {
        let chunks = read_chunks(item).ok().filter(|_| item.contains('@'));
        let (times, request) = chunks.map(|(times, request)| (u64::from(times), request)).ok_or_else(expected)?;
        if times > count.saturating_sub(requests.len() as u64) {
            return Err(expected());
        }
        *repeats = repeats.saturating_add(times - 1);
        if *repeats > MAX_REPEATS {
            return Err(format!("at most {MAX_REPEATS} requests by shorthand in one table: split the table"));
        }
        requests.extend(std::iter::repeat_n(request, usize::try_from(times).unwrap_or(0)));
    }
    let sum: u64 = requests.iter().map(|request| u64::from(request.num_scheduled_tokens)).sum();
    if requests.len() as u64 == count && sum == tokens { Ok(requests) } else { Err(expected()) }
}

/// Reads prefill chunks, `[Nx]Q[@C][:partial]`: their number, and one of them.
///
/// # Errors
/// A text of another form; the message names the fault and the form.
pub fn read_chunks(text: &str) -> Result<(u32, Request), String> {
    let (body, samples) = match text.split_once(':') {
        None => (text, true),
        Some((body, "partial")) => (body, false),
        Some((_, suffix)) => {
            return Err(format!("unknown suffix ':{suffix}'; the only one is ':partial', as in 512@1024:partial"));
        }
    };
    let (count, chunk) = body.split_once('x').unwrap_or(("1", body));
    let (scheduled, computed) = chunk.split_once('@').unwrap_or((chunk, "0"));
    let count = read_count("the number of chunks", count, 1)?;
    let scheduled = read_count("the chunk", scheduled, 1)?;
    let computed = read_count("the computed tokens", computed, 0)?;
    Ok((count, Request::new(computed, scheduled, samples)))
}

/// Reads a whole number of at least `least`; `what` names it in the error.
///
/// # Errors
/// The text, and the right way to write it.
pub fn read_count(what: &str, text: &str, least: u32) -> Result<u32, String> {
    // `parse` takes a plus sign too.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse::<u32>().ok().filter(|value| digits && *value >= least);
    value.ok_or_else(|| format!("{what} '{text}' must be a whole number from {least} to {}, in digits only", u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_decodes_and_repeats_are_written_and_read() {
        let partial = Request::partial_prefill(512, 1024);
        let requests = [Request::decode(7), Request::decode(7), Request::decode(9), partial];
        let cell = write_cell(&requests);
        assert_eq!(cell, "2x1@7 1@9 512@1024:partial");
        assert_eq!(read_cell(&cell, 4, 515, &mut 0).unwrap(), requests);
        assert_eq!(read_cell(&write_cell(&[]), 0, 0, &mut 0).unwrap(), []);
    }

    #[test]
    fn a_short_cell_does_not_fill_the_memory() {
        let error = read_cell("100000000x1@5", 100_000_000, 100_000_000, &mut 0).unwrap_err();
        assert!(error.contains("at most 10000000 requests by shorthand"), "{error}");
        // Cells of one table count together; what is written out does not count.
        let mut repeats = 0;
        let cells = (0..200).map(|_| read_cell("60000x1@5", 60_000, 60_000, &mut repeats));
        assert_eq!(cells.take_while(Result::is_ok).count(), 166);
        assert!(read_cell("1@5 2@5 3@5", 3, 6, &mut MAX_REPEATS.clone()).is_ok());
    }

    #[test]
    fn what_the_row_does_not_count_is_refused() {
        for (cell, count, tokens) in [
            ("1@7", 2, 1),
            ("1@7", 1, 2),
            ("4000000000x1@7", 1, 1),
            ("0x1@7", 0, 0),
            ("0@7", 1, 0),
            ("1", 1, 1),
            ("1@", 1, 1),
            ("@1", 1, 1),
            ("1@-7", 1, 1),
            ("1@7:last", 1, 1),
            ("+1@7", 1, 1),
            ("", 1, 1),
        ] {
            assert!(read_cell(cell, count, tokens, &mut 0).is_err(), "{cell}");
        }
    }
}
