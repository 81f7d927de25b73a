//! Values of msgpack as those of JSON. Bytes, which JSON lacks, become texts of hexadecimal digits.

use std::fmt::{self, Write};

use ridgepoint::input::RecordCount;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads a value of msgpack, and counts it and those within it: a byte may be one.
#[derive(Clone, Copy)]
pub(super) struct Msgpack<'c>(pub(super) &'c RecordCount);

impl<'de> DeserializeSeed<'de> for Msgpack<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.add_values(1).map_err(D::Error::custom)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Msgpack<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of msgpack")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        let hex = value.iter().fold(String::with_capacity(2 * value.len()), |mut hex, byte| {
            // Texts take everything.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        Ok(hex.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((key, value)) = map.next_entry_seed(self, self)? {
            let key = match key {
                Value::String(text) => text,
                // Their texts would be escaped again at each level, and double in length.
                Value::Array(_) | Value::Object(_) => return Err(A::Error::custom("a key is a list or a map")),
                scalar => scalar.to_string(),
            };
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::input::{FileKind, Input, Record};
    use serde_json::json;

    use super::*;

    fn value(bytes: &[u8]) -> Result<Value, rmp_serde::decode::Error> {
        let (_, count) = Input::new(FileKind::KvEventDump, "t", bytes).unwrap().records(Record::Object);
        Msgpack(&count).deserialize(&mut rmp_serde::Deserializer::from_read_ref(bytes))
    }

    #[test]
    fn keys_are_texts_or_numbers_and_never_maps() {
        let found = value(&[0x82, 0x07, 0xc0, 0xc4, 0x01, 0xff, 0xc3]).unwrap();
        assert_eq!(found, json!({"7": null, "ff": true}));
        // 40 maps, each the key of the one around it: its text had 2^40 characters.
        let nested = [[0x81; 40].as_slice(), &[0x80], &[0xc0; 40]].concat();
        let error = value(&nested).unwrap_err().to_string();
        assert!(error.contains("a key is a list or a map"), "{error}");
    }

    #[test]
    fn values_of_one_byte_are_counted() {
        let (_, count) = Input::new(FileKind::KvEventDump, "t", &[0][..]).unwrap().records(Record::Object);
        count.add_values(19_999_998).unwrap();
        let list = [0x93, 1, 1, 1];
        let read = Msgpack(&count).deserialize(&mut rmp_serde::Deserializer::from_read_ref(&list));
        assert!(read.unwrap_err().to_string().contains("more than 20000000 values"));
    }
}
