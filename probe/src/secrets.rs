//! Takes the API key, and headers that hold one, out of what a server says: some repeat it in an error, an event or the output.

use crate::environment::Snapshot;
use crate::record::RequestRecord;
use crate::report::Report;
use crate::settings::Settings;

/// What stands in place of a secret.
const MASK: &str = "[secret]";
/// Fewest characters of a secret. Shorter ones, such as the `EMPTY` that vLLM's examples send, are words of ordinary texts.
const MIN_LEN: usize = 6;
/// Fewest characters of a secret's beginning that are masked where a text was cut.
const MIN_CUT: usize = 4;
/// Parts of the names of headers whose values are secrets.
const SECRET_HEADERS: [&str; 6] = ["auth", "cookie", "key", "password", "secret", "token"];

/// The secrets of a run, in the ways in which replies may have them; the longest first.
#[derive(Debug, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn of(settings: &Settings) -> Self {
        let is_secret = |name: &str| SECRET_HEADERS.iter().any(|part| name.to_ascii_lowercase().contains(part));
        let headers = settings.headers.iter().filter(|(name, _)| is_secret(name)).flat_map(|(_, value)| {
            // Of `Basic abc`, the scheme is no secret.
            let parts = value.split_ascii_whitespace().map(str::to_owned);
            parts.chain([value.clone()])
        });
        let given: Vec<String> = settings.api_key.iter().map(|key| key.trim().to_owned()).chain(headers).collect();
        let long = given.into_iter().filter(|secret| secret.chars().count() >= MIN_LEN);
        let mut found: Vec<String> = long.flat_map(|secret| encodings(&secret)).collect();
        found.sort_by_key(|text| std::cmp::Reverse(text.len()));
        found.dedup();
        Secrets(found)
    }

    /// The text without the secrets. Cases do not count, as some texts are put into lower case.
    pub(crate) fn masked(&self, text: &str) -> String {
        let (mut masked, mut rest) = (String::new(), text);
        while let Some((at, len)) = self.first(rest) {
            masked.push_str(rest.get(..at).unwrap_or_default());
            masked.push_str(MASK);
            rest = rest.get(at + len..).unwrap_or_default();
        }
        masked.push_str(rest);
        // A text that was cut may end within one.
        let end = masked.trim_end_matches('…').len();
        let starts = self.0.iter().flat_map(|secret| (MIN_CUT..secret.len()).rev().filter_map(|len| secret.get(..len)));
        let cut = starts.filter(|start| {
            let tail = end.checked_sub(start.len()).and_then(|from| masked.get(from..end));
            tail.is_some_and(|tail| tail.eq_ignore_ascii_case(start))
        });
        if let Some(longest) = cut.map(str::len).max() {
            masked.replace_range(end - longest..end, MASK);
        }
        masked
    }

    /// Returns the position and length of the first secret in a text, ignoring ASCII case. Of several at one position it takes the longest.
    fn first(&self, text: &str) -> Option<(usize, usize)> {
        let place = |secret: &String| {
            let mut windows = text.as_bytes().windows(secret.len());
            Some((windows.position(|window| window.eq_ignore_ascii_case(secret.as_bytes()))?, secret.len()))
        };
        self.0.iter().filter_map(place).min_by_key(|(at, len)| (*at, std::cmp::Reverse(*len)))
    }

    fn mask(&self, text: &mut String) {
        if !self.0.is_empty() {
            *text = self.masked(text);
        }
    }

    /// Masks all that a report keeps of the server's words.
    pub(crate) fn mask_report(&self, report: &mut Report) {
        let Report { model, server, cold, warm_1, warm, ladder, stopped, notes, .. } = report;
        self.mask(model);
        server.version.iter_mut().chain(&mut server.missing).for_each(|text| self.mask(text));
        server.models.iter_mut().for_each(|model| self.mask(&mut model.id));
        stopped.iter_mut().chain(notes).for_each(|text| self.mask(text));
        let records = cold.iter_mut().chain(warm_1).chain(warm).chain(ladder.iter_mut().flat_map(|of| &mut of.records));
        records.for_each(|record| self.mask_record(record));
        let Report { before, after_cold, after_warm, after_ladder, .. } = report;
        for Snapshot { missing, .. } in [before, after_cold, after_warm].into_iter().chain(after_ladder) {
            missing.iter_mut().for_each(|text| self.mask(text));
        }
    }

    fn mask_record(&self, record: &mut RequestRecord) {
        let RequestRecord { detail, finish_reason, preview, fault, .. } = record;
        detail.iter_mut().chain(finish_reason).chain([preview]).for_each(|text| self.mask(text));
        fault.iter_mut().for_each(|fault| self.mask(&mut fault.detail));
    }
}

/// A secret as it is, in JSON, and in a URL.
fn encodings(secret: &str) -> Vec<String> {
    let json = serde_json::to_string(secret).unwrap_or_default();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let percent =
        secret.bytes().map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    vec![secret.to_owned(), json.trim_matches('"').to_owned(), percent.collect()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn secrets(key: &str, headers: &[(&str, &str)]) -> Secrets {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let settings = Settings::new(Target::parse("http://h").unwrap());
        Secrets::of(&Settings { api_key: Some(key.to_owned()), headers, ..settings })
    }

    #[test]
    fn a_key_is_masked_in_any_case_and_encoding_and_where_it_is_cut() {
        let of = secrets("sk-SECRET/1\"2", &[("X-Api-Key", "other-key-77"), ("X-Colour", "vermilion")]);
        for (text, masked) in [
            ("bad key Bearer sk-SECRET/1\"2.", "bad key Bearer [secret]."),
            ("SK-secret/1\"2, sk-SECRET/1\\\"2", "[secret], [secret]"),
            ("to /?k=sk-SECRET%2F1%222&x", "to /?k=[secret]&x"),
            ("other-key-77 is vermilion", "[secret] is vermilion"),
            ("é: sk-SECR…", "é: [secret]…"),
            ("ask-", "ask-"),
        ] {
            assert_eq!(of.masked(text), masked);
        }
    }

    #[test]
    fn words_that_stand_for_no_key_are_not_masked() {
        assert_eq!(secrets("EMPTY", &[]).masked("the queue is EMPTY"), "the queue is EMPTY");
        assert_eq!(secrets("secret", &[]).masked("a secret [Secret]"), "a [secret] [[secret]]");
    }
}
