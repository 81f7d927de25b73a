//! Collects the faults and the notes of one input, so that a user sees all of them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Display;

use crate::error::{Error, Location, Result};

/// Problems listed of one input; the rest is counted.
pub const MAX_PROBLEMS: usize = 20;

/// Problems collected of one input. Those beyond are counted, as a list may have millions.
const MOST_TEXTS: usize = 1_000;

/// Notes kept of one input; the rest is counted.
const MOST_NOTES: usize = 100;

/// Fails with all problems of an input, if there are any.
///
/// # Errors
/// The problems; of more than 20, the first 20 and the number of the others.
pub fn check(at: impl Into<Location>, problems: Vec<String>) -> Result<()> {
    check_counted(at, problems, 0)
}

/// [`check`] where `left_out` problems more were found.
fn check_counted(at: impl Into<Location>, mut problems: Vec<String>, left_out: usize) -> Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    let more = problems.len().saturating_sub(MAX_PROBLEMS) + left_out;
    if more > 0 {
        problems.truncate(MAX_PROBLEMS);
        problems.push(format!("and {more} more"));
    }
    Err(Error::invalid(at, problems))
}

/// Problems and notes about one input, each kept once and in order.
#[derive(Debug, Default)]
pub struct Log {
    problems: RefCell<Once>,
    /// Key of the first problem that has one.
    key: RefCell<Option<String>>,
    notes: RefCell<Once>,
}

/// Texts in order, each once, and the number of those that were left out.
#[derive(Debug, Default)]
struct Once {
    texts: Vec<String>,
    known: HashSet<String>,
    left_out: usize,
}

impl Once {
    /// Adds a text, unless there are `most`.
    fn push(&mut self, text: String, most: usize) {
        if self.texts.len() >= most && !self.known.contains(&text) {
            self.left_out += 1;
        } else if self.known.insert(text.clone()) {
            self.texts.push(text);
        }
    }
}

impl Log {
    /// Records a fault.
    pub fn problem(&self, text: impl Into<String>) {
        self.problems.borrow_mut().push(text.into(), MOST_TEXTS);
    }

    /// Returns whether so many faults were recorded that no more are collected. A reader of a long list ends then.
    pub fn is_full(&self) -> bool {
        self.problems.borrow().texts.len() >= MOST_TEXTS
    }

    /// Records a fault of `key`, the full name of a key. The first such key is the place of the error.
    pub fn problem_of(&self, key: String, reason: impl Display) {
        self.problem(format!("{key} {reason}"));
        self.key.borrow_mut().get_or_insert(key);
    }

    /// Records something that a user should know, such as an assumption.
    pub fn note(&self, text: impl Into<String>) {
        self.notes.borrow_mut().push(text.into(), MOST_NOTES);
    }

    /// Returns what was read and the notes.
    ///
    /// # Errors
    /// All problems of `origin`, if there are any, or if `found` is `None`.
    pub fn finish<T>(self, origin: &str, found: Option<T>) -> Result<(T, Vec<String>)> {
        let place = Location { key: self.key.into_inner(), ..Location::of(origin) };
        let Once { texts, left_out, .. } = self.problems.into_inner();
        check_counted(place, texts, left_out)?;
        match found {
            Some(found) => {
                let Once { mut texts, left_out, .. } = self.notes.into_inner();
                texts.extend((left_out > 0).then(|| format!("and {left_out} more remarks")));
                Ok((found, texts))
            }
            None => Err(Error::invalid(origin, vec!["lacks required keys".to_owned()])),
        }
    }

    /// Returns the faults in order.
    #[cfg(test)]
    pub(super) fn into_problems(self) -> Vec<String> {
        self.problems.into_inner().texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_problems_are_counted() {
        let problems: Vec<String> = (0..25).map(|i| i.to_string()).collect();
        let message = check("file", problems).unwrap_err().to_string();
        assert!(message.ends_with("19; and 5 more"), "{message}");
        assert!(check("file", Vec::new()).is_ok());
    }
}
