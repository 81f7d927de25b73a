//! The bearer token, compared in constant time.

use std::path::Path;

use hyper::header::{AUTHORIZATION, HeaderMap};
use ridgepoint::input::{FileKind, read_text};
use ridgepoint::{Error, Result};
use subtle::ConstantTimeEq;

/// Name of the variable that may hold the token.
const VARIABLE: &str = "RIDGEPOINT_TOKEN";

/// Shortest token: 16 random letters are beyond guessing.
const MIN_BYTES: usize = 16;

/// A token that requests must carry.
pub struct Token(Vec<u8>);

impl Token {
    /// The token of a file, or else of the variable `RIDGEPOINT_TOKEN`; `None` without either.
    ///
    /// # Errors
    /// A file that cannot be read; a token that is short or not printable.
    pub fn find(file: Option<&Path>) -> Result<Option<Self>> {
        let (text, origin) = match file {
            Some(path) => (read_text(FileKind::PlainText, path)?, path.display().to_string()),
            None => match std::env::var(VARIABLE) {
                Ok(text) if !text.is_empty() => (text, VARIABLE.to_owned()),
                Ok(_) | Err(std::env::VarError::NotPresent) => return Ok(None),
                Err(error) => return Err(Error::invalid(VARIABLE, vec![error.to_string()])),
            },
        };
        Self::new(&text).map(Some).map_err(|problem| Error::invalid(origin, vec![problem]))
    }

    fn new(text: &str) -> std::result::Result<Self, String> {
        let token = text.trim();
        if token.len() < MIN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "the token must be at least {MIN_BYTES} printable ASCII characters without blanks, as `openssl rand -hex 16` prints"
            ));
        }
        Ok(Token(token.as_bytes().to_vec()))
    }

    /// Whether a request carries the token.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let token = given.and_then(|value| {
            let (scheme, token) = value.split_at_checked("Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
        });
        token.is_some_and(|token| token.trim_ascii().ct_eq(&self.0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_counts() {
        let token = Token::new(" 0123456789abcdef\n").unwrap();
        let carries = |value: &'static str| {
            token.is_in(&[(AUTHORIZATION, value.parse().unwrap())].into_iter().collect::<HeaderMap>())
        };
        assert!(carries("Bearer 0123456789abcdef") && carries("bearer  0123456789abcdef"));
        for wrong in
            ["Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Basic 0123456789abcdef", "0123456789abcdef", ""]
        {
            assert!(!carries(wrong), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
        assert!(Token::new("short").is_err() && Token::new("0123456789 abcdef").is_err());
    }
}
