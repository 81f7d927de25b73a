//! The shorthand of `--prefill` and `--decode`: `[Nx]Q[@C][:partial]`, and `NxC` or `N@C`.

use crate::ingest::{read_chunks, read_count};
use ridgepoint::Request;

/// Some equal requests, and the flag that asked for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Their number.
    pub count: u32,
    /// One of them.
    pub request: Request,
    /// The flag as it was written.
    pub flag: String,
}

impl Item {
    /// Parses prefill chunks, `[Nx]Q[@C][:partial]`.
    ///
    /// # Errors
    /// A text of another form; the message names the fault and the form.
    pub fn prefill(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (count, request) = read_chunks(text)?;
        Ok(Item { count, request, flag: format!("--prefill {text}") })
    }

    /// Parses decodes, `NxC` or `N@C`.
    ///
    /// # Errors
    /// A text of another form; the message names the fault and the form.
    pub fn decode(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some((count, computed)) = text.split_once(['x', '@']) else {
            return Err(format!(
                "ambiguous: write 1x{text} for one decode with {text} computed tokens, or {text}x2048 for {text} decodes with \
                 2048 computed tokens each"
            ));
        };
        let count = read_count("the number of decodes", count, 1)?;
        // A request without computed tokens is a prompt.
        let computed = read_count("the computed tokens", computed, 1)?;
        Ok(Item { count, request: Request::decode(computed), flag: format!("--decode {text}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefill(text: &str) -> (u32, Request) {
        let item = Item::prefill(text).unwrap();
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
            let item = Item::decode(text).unwrap();
            assert_eq!((item.count, item.request), (64, Request::decode(2048)), "{text}");
        }
    }

    #[test]
    fn a_lone_number_of_decodes_is_refused_with_the_way_to_write_it() {
        let message = Item::decode("2048").unwrap_err();
        assert!(message.contains("1x2048") && message.contains("2048x2048"), "{message}");
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for text in ["", "0", "-5", "2k", "1.5", "4294967296", "0x512", "512@", "@5", "x", "512@-1", "512@1:last"] {
            assert!(Item::prefill(text).is_err(), "{text}");
        }
        for text in ["", "64", "0x5", "5x0", "5x", "x5", "1x2x3", "1@2@3", "5x4294967296", "5x5:partial"] {
            assert!(Item::decode(text).is_err(), "{text}");
        }
        assert!(Item::decode("5x4294967296").unwrap_err().contains("from 1 to 4294967295"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "[0-9x@:,. -]{0,24}|\\PC{0,24}|[0-9]{1,12}[x@][0-9]{1,12}(:partial)?") {
            let _ = (Item::prefill(&text), Item::decode(&text));
        }

        #[test]
        fn every_chunk_reads_back(count in 1u32.., scheduled in 1u32.., computed: u32, samples: bool) {
            let suffix = if samples { "" } else { ":partial" };
            let read = prefill(&format!("{count}x{scheduled}@{computed}{suffix}"));
            prop_assert_eq!(read, (count, Request::new(computed, scheduled, samples)));
        }
    }
}
