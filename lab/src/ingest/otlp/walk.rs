//! Walks through OTLP JSON value by value, so that neither a document nor a span is ever held as a whole.

use std::fmt;

use ridgepoint::input::RecordCount;
use ridgepoint::unstable::error::cut;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::Value;

/// Most keys of an object that are compared although nothing is read from them.
const MOST_OTHERS: usize = 32;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtlpObject {
    /// A document or an element of a list of documents.
    Export,
    ResourceSpans,
    Resource,
    ScopeSpans,
    Scope,
    Span,
    Event,
    /// An attribute of the object that began last, or of the span where its event has ended.
    Attribute,
    AttributeValue,
}

/// A text or number that is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    ScopeName,
    ScopeVersion,
    SpanName,
    SpanId,
    ParentSpanId,
    SpanStart,
    EventName,
    EventTime,
    AttributeKey,
    /// The value of an attribute, with another type than the next.
    AttributeValue,
    /// The value of an attribute that is a floating-point number.
    AttributeDouble,
}

/// Takes the values of a document, in the document's order.
pub(super) trait Handler {
    /// An object begins.
    fn begin(&mut self, node: OtlpObject);
    /// A text, or a number as text.
    fn text(&mut self, field: Field, text: &str);
    /// An object ends.
    fn end(&mut self, node: OtlpObject);
}

/// What the value of a key is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldValue {
    Objects(OtlpObject),
    Scalar(Field),
    Nothing,
}

fn inside(node: OtlpObject, key: &str) -> FieldValue {
    match (node, key) {
        (OtlpObject::Export, "resourceSpans") => FieldValue::Objects(OtlpObject::ResourceSpans),
        (OtlpObject::ResourceSpans, "resource") => FieldValue::Objects(OtlpObject::Resource),
        (OtlpObject::ResourceSpans, "scopeSpans") => FieldValue::Objects(OtlpObject::ScopeSpans),
        (OtlpObject::ScopeSpans, "scope") => FieldValue::Objects(OtlpObject::Scope),
        (OtlpObject::ScopeSpans, "spans") => FieldValue::Objects(OtlpObject::Span),
        (OtlpObject::Span, "events") => FieldValue::Objects(OtlpObject::Event),
        (OtlpObject::Resource | OtlpObject::Span | OtlpObject::Event, "attributes") => {
            FieldValue::Objects(OtlpObject::Attribute)
        }
        (OtlpObject::Attribute, "value") => FieldValue::Objects(OtlpObject::AttributeValue),
        (OtlpObject::Scope, "name") => FieldValue::Scalar(Field::ScopeName),
        (OtlpObject::Scope, "version") => FieldValue::Scalar(Field::ScopeVersion),
        (OtlpObject::Span, "name") => FieldValue::Scalar(Field::SpanName),
        (OtlpObject::Span, "spanId") => FieldValue::Scalar(Field::SpanId),
        (OtlpObject::Span, "parentSpanId") => FieldValue::Scalar(Field::ParentSpanId),
        (OtlpObject::Span, "startTimeUnixNano") => FieldValue::Scalar(Field::SpanStart),
        (OtlpObject::Event, "name") => FieldValue::Scalar(Field::EventName),
        (OtlpObject::Event, "timeUnixNano") => FieldValue::Scalar(Field::EventTime),
        (OtlpObject::Attribute, "key") => FieldValue::Scalar(Field::AttributeKey),
        (OtlpObject::AttributeValue, "doubleValue") => FieldValue::Scalar(Field::AttributeDouble),
        (OtlpObject::AttributeValue, _) => FieldValue::Scalar(Field::AttributeValue),
        _ => FieldValue::Nothing,
    }
}

/// An object, or a list of objects; anything else is passed over unless it stands for a document.
pub(super) struct Objects<'h, H> {
    pub(super) handler: &'h mut H,
    pub(super) node: OtlpObject,
    /// Counts each export, span and event, so that none is longer than a file's objects may be.
    pub(super) count: &'h RecordCount,
}

impl<H: Handler> Objects<'_, H> {
    fn pass_over<E: Error>(&self, found: Unexpected<'_>) -> Result<(), E> {
        if self.node == OtlpObject::Export { Err(E::invalid_type(found, self)) } else { Ok(()) }
    }
}

impl<'de, H: Handler> DeserializeSeed<'de> for Objects<'_, H> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, H: Handler> Visitor<'de> for Objects<'_, H> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Objects { handler, node, count } = self;
        if matches!(node, OtlpObject::Export | OtlpObject::Span | OtlpObject::Event) {
            count.begin();
        }
        handler.begin(node);
        let (mut known, mut others) = (0, Vec::new());
        while let Some(inside) = map.next_key_seed(Key { node, known: &mut known, others: &mut others })? {
            match inside {
                FieldValue::Nothing => drop(map.next_value::<IgnoredAny>()?),
                FieldValue::Objects(node) => map.next_value_seed(Objects { handler: &mut *handler, node, count })?,
                FieldValue::Scalar(field) => hand_over(handler, field, &map.next_value()?),
            }
        }
        handler.end(node);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Objects { handler, node, count } = self;
        while list.next_element_seed(Objects { handler: &mut *handler, node, count })?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.pass_over(Unexpected::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.pass_over(Unexpected::Signed(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.pass_over(Unexpected::Unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.pass_over(Unexpected::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.pass_over(Unexpected::Str(value))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.pass_over(Unexpected::Unit)
    }
}

/// A key of an object.
struct Key<'k> {
    node: OtlpObject,
    /// A bit for each key before it that is read.
    known: &'k mut u32,
    /// The other keys before it.
    others: &'k mut Vec<Box<str>>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = FieldValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FieldValue, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = FieldValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<FieldValue, E> {
        let inside = inside(self.node, key);
        let bit = match inside {
            FieldValue::Objects(node) => 1 << node as u32,
            FieldValue::Scalar(field) if self.node != OtlpObject::AttributeValue => 1 << 16 << field as u32,
            FieldValue::Scalar(_) | FieldValue::Nothing => 0,
        };
        if *self.known & bit != 0 || self.others.iter().any(|other| **other == *key) {
            return Err(E::custom(format!("key '{}' appears twice", cut(key))));
        }
        *self.known |= bit;
        if bit == 0 && self.others.len() < MOST_OTHERS {
            self.others.push(key.into());
        }
        Ok(inside)
    }
}

/// Hands over a text or number; lists and objects of attributes are passed as JSON.
fn hand_over(handler: &mut impl Handler, field: Field, value: &Value) {
    let is_attribute = matches!(field, Field::AttributeDouble | Field::AttributeValue);
    match value {
        Value::String(text) if field == Field::AttributeDouble => handler.text(Field::AttributeValue, text),
        Value::String(text) => handler.text(field, text),
        // Only attributes and times may be numbers.
        Value::Number(number) if is_attribute || matches!(field, Field::EventTime | Field::SpanStart) => {
            handler.text(field, &number.to_string());
        }
        Value::Number(_) => {}
        other if is_attribute => handler.text(Field::AttributeValue, &other.to_string()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use ridgepoint::input::{FileKind, Input, Record};

    use super::*;

    #[derive(Default)]
    struct Texts(Vec<String>);

    impl Handler for Texts {
        fn begin(&mut self, _: OtlpObject) {}

        fn text(&mut self, field: Field, text: &str) {
            self.0.push(format!("{field:?} {text}"));
        }

        fn end(&mut self, node: OtlpObject) {
            self.0.push(format!("end of {node:?}"));
        }
    }

    fn walk(text: &'static str) -> (Vec<String>, serde_json::Result<()>) {
        let (reader, count) = Input::new(FileKind::Trace, "t", Cursor::new(text)).unwrap().records(Record::Object);
        let mut texts = Texts::default();
        let seed = Objects { handler: &mut texts, node: OtlpObject::Export, count: &count };
        let found = seed.deserialize(&mut serde_json::Deserializer::from_reader(reader));
        (texts.0, found)
    }

    #[test]
    fn events_are_handed_on_before_their_document_ends() {
        let (texts, found) = walk(
            r#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"events": [{"name": "a"}, {"name": "b"}, {"name": "#,
        );
        assert!(found.is_err_and(|error| error.is_eof()));
        assert_eq!(texts, ["EventName a", "end of Event", "EventName b", "end of Event"]);
    }

    #[test]
    fn attributes_of_any_type_are_passed_as_texts() {
        let (texts, found) = walk(
            r#"{"resourceSpans": {"resource": {"attributes": [
                {"key": "a", "value": {"intValue": "7"}}, {"value": {"doubleValue": 1.5}, "key": "b"},
                {"key": "c", "value": {"doubleValue": "NaN"}}, {"key": "d", "value": {"arrayValue": {"values": []}}}, 5]}}}"#,
        );
        found.unwrap();
        let texts: Vec<&String> = texts.iter().filter(|text| text.starts_with("Attribute")).collect();
        let expected = [
            "AttributeKey a",
            "AttributeValue 7",
            "AttributeDouble 1.5",
            "AttributeKey b",
            "AttributeKey c",
            "AttributeValue NaN",
            "AttributeKey d",
            "AttributeValue {\"values\":[]}",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn keys_that_appear_twice_are_refused_whether_they_are_read_or_not() {
        for text in [r#"{"resourceSpans": [], "resourceSpans": []}"#, r#"{"a": 1, "b": 2, "a": 1}"#] {
            let error = walk(text).1.unwrap_err().to_string();
            assert!(error.contains("appears twice"), "{error}");
        }
    }
}
