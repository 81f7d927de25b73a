//! The requests of a step: one entry per request, or one column per property. Uses `error`.

use std::fmt;
use std::ops::Range;

use bytemuck::NoUninit;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// One request's share of a step, in vLLM's terms.
///
/// Twelve bytes without gaps, so that vectors of words hold several requests: this halves the time of a step of 128 decodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, NoUninit)]
#[serde(deny_unknown_fields)]
#[repr(C)]
pub struct Request {
    /// Tokens already in the KV cache before this step: the KV length (also called `progress_index`).
    #[serde(alias = "progress_index")]
    pub num_computed_tokens: u32,
    /// Tokens processed in this step: 1 for a decode, the chunk for a prefill (also called `num_new_tokens`).
    #[serde(alias = "num_new_tokens")]
    pub num_scheduled_tokens: u32,
    /// Whether the step ends with a token sampled for this request: true for a decode and for a prompt's last chunk,
    /// false for the chunks before it.
    #[serde(default = "samples_by_default")]
    pub samples: bool,
    /// Of the scheduled tokens, those that were drafted for the step to verify (speculative decoding). A token is sampled behind each of
    /// them, too.
    #[serde(default, skip_serializing_if = "crate::units::is_zero")]
    pub num_draft_tokens: u8,
    #[serde(skip)]
    padding: [u8; 2],
}

fn samples_by_default() -> bool {
    true
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("num_computed_tokens", &self.num_computed_tokens)
            .field("num_scheduled_tokens", &self.num_scheduled_tokens)
            .field("samples", &self.samples)
            .field("num_draft_tokens", &self.num_draft_tokens)
            .finish()
    }
}

impl Request {
    /// `num_scheduled_tokens` after `num_computed_tokens` in the cache.
    #[inline]
    pub const fn new(num_computed_tokens: u32, num_scheduled_tokens: u32, samples: bool) -> Self {
        Request { num_computed_tokens, num_scheduled_tokens, samples, num_draft_tokens: 0, padding: [0; 2] }
    }

    /// A decode: one new token after `num_computed_tokens` in the cache.
    #[inline]
    pub const fn decode(num_computed_tokens: u32) -> Self {
        Request::new(num_computed_tokens, 1, true)
    }

    /// A decode that verifies `num_draft_tokens` drafts: its own token and theirs after `num_computed_tokens` in the cache.
    ///
    /// ```
    /// use ridgepoint::Request;
    /// let verification = Request::verification(1000, 3);
    /// assert_eq!((verification.num_scheduled_tokens, verification.is_decode()), (4, true));
    /// ```
    #[inline]
    pub const fn verification(num_computed_tokens: u32, num_draft_tokens: u8) -> Self {
        let scheduled = 1 + num_draft_tokens as u32;
        Request { num_draft_tokens, ..Request::new(num_computed_tokens, scheduled, true) }
    }

    /// The last (or only) prefill chunk of a prompt: `num_scheduled_tokens`, after `num_computed_tokens` in the cache.
    #[inline]
    pub const fn prefill(num_scheduled_tokens: u32, num_computed_tokens: u32) -> Self {
        Request::new(num_computed_tokens, num_scheduled_tokens, true)
    }

    /// A chunk that does not end its prompt: nothing is sampled.
    ///
    /// ```
    /// use ridgepoint::Request;
    /// assert!(!Request::partial_prefill(512, 1024).samples);
    /// ```
    #[inline]
    pub const fn partial_prefill(num_scheduled_tokens: u32, num_computed_tokens: u32) -> Self {
        Request::new(num_computed_tokens, num_scheduled_tokens, false)
    }

    /// True for one scheduled token, and its drafts, on top of a cache: what decode kernels run.
    #[inline]
    pub const fn is_decode(&self) -> bool {
        self.num_scheduled_tokens == 1 + self.num_draft_tokens as u32 && self.num_computed_tokens > 0
    }
}

/// A step's requests as columns: request `i` is the `i`-th value of each.
///
/// ```
/// use ridgepoint::{Request, RequestColumns};
///
/// let columns = RequestColumns::new(&[2048, 0], &[1, 512])?.with_samples(&[true, false])?;
/// let requests: Vec<Request> = columns.iter().collect();
/// assert_eq!(requests, [Request::decode(2048), Request::partial_prefill(512, 0)]);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RequestColumns<'a> {
    num_computed_tokens: &'a [u32],
    num_scheduled_tokens: &'a [u32],
    samples: Option<&'a [u8]>,
}

impl<'a> RequestColumns<'a> {
    /// Requests that all sample a token.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for columns of unequal length.
    #[inline]
    pub fn new(num_computed_tokens: &'a [u32], num_scheduled_tokens: &'a [u32]) -> Result<Self> {
        equally_long("num_scheduled_tokens", num_scheduled_tokens.len(), num_computed_tokens.len())?;
        Ok(RequestColumns { num_computed_tokens, num_scheduled_tokens, samples: None })
    }

    /// Sets which requests sample a token in this step.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for a column of another length.
    #[inline]
    pub fn with_samples(self, samples: &'a [bool]) -> Result<Self> {
        self.with_sample_bytes(bytemuck::must_cast_slice(samples))
    }

    /// [`RequestColumns::with_samples`] for flags of other languages: any byte but 0 is true.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for a column of another length.
    #[inline]
    pub fn with_sample_bytes(self, samples: &'a [u8]) -> Result<Self> {
        equally_long("samples", samples.len(), self.len())?;
        Ok(RequestColumns { samples: Some(samples), ..self })
    }

    /// Requests in the step.
    #[inline]
    pub fn len(&self) -> usize {
        self.num_computed_tokens.len()
    }

    /// True for a step without requests.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.num_computed_tokens.is_empty()
    }

    /// Computed tokens, scheduled tokens, and whether they sample, where not all do.
    #[inline]
    pub(crate) fn parts(&self) -> (&'a [u32], &'a [u32], Option<&'a [u8]>) {
        (self.num_computed_tokens, self.num_scheduled_tokens, self.samples)
    }

    /// Request `index`, if there are so many.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<Request> {
        let computed = *self.num_computed_tokens.get(index)?;
        let scheduled = *self.num_scheduled_tokens.get(index)?;
        let samples = self.samples.and_then(|samples| samples.get(index)).is_none_or(|byte| *byte != 0);
        Some(Request::new(computed, scheduled, samples))
    }

    /// The requests of a range; none if it is beyond the columns.
    #[inline]
    pub(crate) fn range(&self, range: Range<usize>) -> Self {
        let tokens = |column: &'a [u32]| column.get(range.clone()).unwrap_or_default();
        RequestColumns {
            num_computed_tokens: tokens(self.num_computed_tokens),
            num_scheduled_tokens: tokens(self.num_scheduled_tokens),
            samples: self.samples.map(|samples| samples.get(range.clone()).unwrap_or_default()),
        }
    }

    /// The requests one by one.
    pub fn iter(&self) -> impl Iterator<Item = Request> + Clone + 'a {
        let columns = *self;
        (0..self.len()).filter_map(move |index| columns.get(index))
    }
}

#[inline]
fn equally_long(what: &str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let reason = format_args!("must have one value for each of the {expected} values of num_computed_tokens");
    Err(Error::invalid_argument(what, format_args!("of length {found}"), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_no_gaps() {
        assert_eq!(size_of::<Request>(), 12);
        let requests = [Request::new(7, 5, true), Request::new(9, 1, false)];
        let words: &[u32] = bytemuck::must_cast_slice(&requests);
        assert_eq!(words, [7, 5, 1u32.to_le(), 9, 1, 0]);
    }

    #[test]
    fn columns_of_unequal_length_are_refused_by_name() {
        let error = RequestColumns::new(&[1, 2], &[1]).unwrap_err().to_string();
        assert!(error.contains("num_scheduled_tokens") && error.contains("2 values"), "{error}");
        let error = RequestColumns::new(&[1, 2], &[1, 1]).unwrap().with_samples(&[true; 3]).unwrap_err().to_string();
        assert!(error.contains("samples") && error.contains("length 3"), "{error}");
    }

    #[test]
    fn any_byte_but_zero_samples() {
        let columns = RequestColumns::new(&[4, 5], &[1, 1]).unwrap().with_sample_bytes(&[255, 0]).unwrap();
        assert_eq!(columns.iter().map(|r| r.samples).collect::<Vec<_>>(), [true, false]);
    }
}
