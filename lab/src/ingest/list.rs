//! Lists of numbers in one cell of a table, separated by blanks.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Numbers in a cell; an empty cell has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Numbers(pub Vec<u64>);

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        serializer.serialize_str(&texts.join(" "))
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        numbers.map(Numbers).map_err(|_| D::Error::custom("whole numbers from 0, separated by blanks"))
    }
}
