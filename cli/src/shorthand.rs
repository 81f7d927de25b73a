//! The shorthand of `--prefill` and `--decode`: `[Nx]Q[@C][:partial]` and `NxC` or `N@C`.

use ridgepoint::Request;

/// Some equal prompt chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefillItem {
    count: u32,
    request: Request,
    text: String,
}

/// Some equal decodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeItem {
    count: u32,
    request: Request,
    text: String,
}

impl PrefillItem {
    /// Reads `[Nx]Q[@C][:partial]`.
    ///
    /// # Errors
    /// What is wrong and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (body, samples) = match text.trim().split_once(':') {
            None => (text.trim(), true),
            Some((body, "partial")) => (body, false),
            Some((_, suffix)) => {
                return Err(format!("unknown suffix ':{suffix}'; the only one is ':partial', as in 512@1024:partial"));
            }
        };
        let (count, chunk) = match body.split_once('x') {
            None => (1, body),
            Some((count, chunk)) => (number("the number of chunks", count, 1)?, chunk),
        };
        let (scheduled, computed) = match chunk.split_once('@') {
            None => (number("the chunk", chunk, 1)?, 0),
            Some((scheduled, computed)) => {
                (number("the chunk", scheduled, 1)?, number("the computed tokens", computed, 0)?)
            }
        };
        let request = Request::new(computed, scheduled, samples);
        Ok(PrefillItem { count, request, text: format!("--prefill {}", text.trim()) })
    }
}

impl DecodeItem {
    /// Reads `NxC` or `N@C`.
    ///
    /// # Errors
    /// What is wrong and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some((count, computed)) = text.split_once(['x', '@']) else {
            return Err(if text.is_empty() {
                "empty; write 64x2048 for 64 decodes with 2048 computed tokens each".to_owned()
            } else {
                format!(
                    "ambiguous: a number of decodes or the tokens of one? Write 1x{text} for one decode on top of {text} \
                     computed tokens, {text}x2048 for {text} decodes on top of 2048 each"
                )
            });
        };
        let count = number("the number of decodes", count, 1)?;
        let computed = number("the computed tokens", computed, 0)?;
        if computed == 0 {
            return Err(format!(
                "a decode has at least 1 computed token; a request without any is a prompt: --prefill {count}x1"
            ));
        }
        Ok(DecodeItem { count, request: Request::decode(computed), text: format!("--decode {text}") })
    }
}

fn number(what: &str, text: &str, least: u32) -> Result<u32, String> {
    let fault = |reason: &str| Err(format!("{what} '{text}' {reason}"));
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return fault(&format!("must be a whole number from {least} to {}, in digits only", u32::MAX));
    }
    match text.parse::<u32>() {
        Err(_) => fault(&format!("is more than {}", u32::MAX)),
        Ok(value) if value < least => fault(&format!("must be at least {least}")),
        Ok(value) => Ok(value),
    }
}

/// Most requests that the shorthand may stand for: a slip of the finger should not fill the memory.
const MAX_REQUESTS: u64 = 10_000_000;

/// The flags that requests come from: each with the index behind its last request.
pub type Flags = Vec<(usize, String)>;

/// The requests that the flags stand for, chunks first, and the flag that each run of equal requests comes from.
///
/// # Errors
/// A message where they are too many.
pub fn expand(prefill: &[PrefillItem], decode: &[DecodeItem]) -> Result<(Vec<Request>, Flags), String> {
    let items = || {
        let prefill = prefill.iter().map(|item| (item.count, item.request, &item.text));
        prefill.chain(decode.iter().map(|item| (item.count, item.request, &item.text)))
    };
    let total: u64 = items().map(|(count, ..)| u64::from(count)).sum();
    if total > MAX_REQUESTS {
        return Err(format!("--prefill and --decode ask for {total} requests, more than {MAX_REQUESTS}"));
    }
    let mut requests = Vec::new();
    let mut flags = Vec::new();
    for (count, request, text) in items() {
        requests.extend(std::iter::repeat_n(request, count as usize));
        flags.push((requests.len(), text.clone()));
    }
    Ok((requests, flags))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefill(text: &str) -> (u32, Request) {
        let item = PrefillItem::parse(text).unwrap();
        (item.count, item.request)
    }

    fn chunk(num_scheduled_tokens: u32, num_computed_tokens: u32) -> Request {
        Request::prefill(num_scheduled_tokens, num_computed_tokens)
    }

    #[test]
    fn every_part_of_a_chunk_is_read() {
        assert_eq!(prefill("512"), (1, chunk(512, 0)));
        assert_eq!(prefill("512@1024"), (1, chunk(512, 1024)));
        assert_eq!(prefill("4x512@1024"), (4, chunk(512, 1024)));
        assert_eq!(prefill("4x512:partial"), (4, Request::partial_prefill(512, 0)));
    }

    #[test]
    fn both_signs_of_a_decode_mean_the_same() {
        for text in ["64x2048", "64@2048", " 64x2048"] {
            let item = DecodeItem::parse(text).unwrap();
            assert_eq!((item.count, item.request), (64, Request::decode(2048)), "{text}");
        }
    }

    #[test]
    fn a_lone_number_of_decodes_is_refused_with_both_readings() {
        let message = DecodeItem::parse("2048").unwrap_err();
        assert!(message.contains("1x2048") && message.contains("2048x2048"), "{message}");
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for text in ["", "0", "-5", "2k", "1.5", "4294967296", "0x512", "512@", "@5", "x", "512@-1", "512@1:last"] {
            assert!(PrefillItem::parse(text).is_err(), "{text}");
        }
        for text in ["", "64", "0x5", "5x0", "5x", "x5", "1x2x3", "1@2@3", "5x4294967296", "5x5:partial"] {
            assert!(DecodeItem::parse(text).is_err(), "{text}");
        }
        assert!(DecodeItem::parse("5x4294967296").unwrap_err().contains("is more than 4294967295"));
    }

    #[test]
    fn more_requests_than_memory_holds_are_refused() {
        let decode = [DecodeItem::parse("4000000000x2048").unwrap()];
        assert!(expand(&[], &decode).unwrap_err().contains("4000000000 requests"));
    }

    #[test]
    fn each_request_knows_its_flag() {
        let prefill = [PrefillItem::parse("2x7").unwrap()];
        let decode = [DecodeItem::parse("3x9").unwrap()];
        let (requests, flags) = expand(&prefill, &decode).unwrap();
        assert_eq!(requests, [chunk(7, 0), chunk(7, 0), Request::decode(9), Request::decode(9), Request::decode(9)]);
        assert_eq!(flags, [(2, "--prefill 2x7".to_owned()), (5, "--decode 3x9".to_owned())]);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "[0-9x@:,. -]{0,24}|\\PC{0,24}|[0-9]{1,12}[x@][0-9]{1,12}(:partial)?") {
            let _ = (PrefillItem::parse(&text), DecodeItem::parse(&text));
        }

        #[test]
        fn every_chunk_reads_back(count in 1u32.., scheduled in 1u32.., computed: u32, samples: bool) {
            let suffix = if samples { "" } else { ":partial" };
            let read = prefill(&format!("{count}x{scheduled}@{computed}{suffix}"));
            prop_assert_eq!(read, (count, Request::new(computed, scheduled, samples)));
        }
    }
}
