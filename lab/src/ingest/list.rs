//! Lists of numbers in one cell of a table, separated by blanks.

use std::ops::Deref;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Numbers in a cell; an empty cell has none, and takes 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::box_collection, reason = "a request has five lists, of which most are empty")]
pub struct Numbers(Option<Box<Vec<u64>>>);

impl Deref for Numbers {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl Extend<u64> for Numbers {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, numbers: I) {
        let mut numbers = numbers.into_iter().peekable();
        if numbers.peek().is_some() {
            self.0.get_or_insert_default().extend(numbers);
        }
    }
}

impl FromIterator<u64> for Numbers {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut list = Numbers::default();
        list.extend(numbers);
        list
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts: Vec<String> = self.iter().map(u64::to_string).collect();
        serializer.serialize_str(&texts.join(" "))
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        let numbers: Result<Numbers, _> = text.split_whitespace().map(str::parse).collect();
        numbers.map_err(|_| D::Error::custom("whole numbers from 0, separated by blanks"))
    }
}
