//! The measured calls of a folder, operator by operator. Sizes are those of one rank.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;

use super::columns::Call;

/// A call and its measured time.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed<C> {
    /// The call.
    pub call: C,
    /// Time of the call, µs, finite and above 0.
    pub latency_us: f64,
    /// Index into [`Measurements::sources`](super::Measurements::sources).
    pub source: usize,
}

/// The calls of all operators, by the stem of their files.
#[derive(Debug, Default)]
pub(super) struct AllCalls(BTreeMap<&'static str, Box<dyn Calls>>);

/// The calls of one operator, whatever their type.
trait Calls: Any + Debug {
    /// Adds the rows of another folder, whose sources are numbered from `offset`.
    fn append(&mut self, more: Box<dyn Calls>, offset: usize);
}

impl<C: Call> Calls for Vec<Timed<C>> {
    fn append(&mut self, more: Box<dyn Calls>, offset: usize) {
        let more: Box<dyn Any> = more;
        if let Ok(more) = more.downcast::<Self>() {
            self.extend(more.into_iter().map(|row| Timed { source: row.source + offset, ..row }));
        }
    }
}

impl AllCalls {
    /// The calls of one type.
    pub(super) fn of<C: Call>(&self) -> &[Timed<C>] {
        let calls = self.0.get(C::STEM).map(|calls| &**calls as &dyn Any);
        calls.and_then(|calls| calls.downcast_ref::<Vec<Timed<C>>>()).map_or(&[], Vec::as_slice)
    }

    /// Keeps the calls of one type.
    pub(super) fn insert<C: Call>(&mut self, calls: Vec<Timed<C>>) {
        self.0.insert(C::STEM, Box::new(calls));
    }

    /// Adds those of another folder, whose sources are numbered from `offset`.
    pub(super) fn append(&mut self, other: AllCalls, offset: usize) {
        for (stem, more) in other.0 {
            match self.0.get_mut(stem) {
                Some(calls) => calls.append(more, offset),
                // Nothing was read before, so that no source was either.
                None => drop(self.0.insert(stem, more)),
            }
        }
    }
}
