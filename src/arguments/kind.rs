//! What the value of an argument is: how it is read, from JSON or from text, how messages describe it, and its JSON schema.

use serde_json::{Map, Value, json};

use crate::input::{Keys, NumberRange, object_or_text, whole_text, whole_value};

/// What a value is. Text is read as the engine's own parser reads it on a command line: `"8192"` is a number, `"true"` a switch, and
/// JSON an object.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// True or false.
    Switch,
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A whole number of tokens from the first to the second; text may have vLLM's suffixes, as in `32k` (32,000) and `32K` (32,768).
    Tokens(u64, u64),
    /// A number in a range.
    Number(NumberRange),
    /// One of these names, in any case.
    Name(&'static [&'static str]),
    /// Text.
    Text,
    /// A list of whole numbers of at least one; text separates them by commas or spaces.
    Wholes,
    /// A whole number from the first to the second, or `auto`.
    WholeOrAuto(u64, u64),
    /// A value that a function brings into its own form. What it expects is the row's `must_be`.
    Own(fn(&Value) -> Option<Value>),
    /// An object or its JSON, whose keys a function reads; the function records faults by itself.
    Object(fn(&Keys<'_>, &'static str) -> Option<Value>),
    /// The path of a file, or what such a file has as JSON; its reader judges it.
    File,
    /// Anything: it has no influence, or its reader judges it.
    Any,
}

impl Kind {
    /// Returns the value in its own form; `None` for a value of another kind.
    pub fn value_of(&self, value: &Value) -> Option<Value> {
        match self {
            Kind::Switch => switch(value).map(Value::Bool),
            Kind::Whole(min, max) => whole(value).filter(|n| (*min..=*max).contains(n)).map(Value::from),
            // The engine's own choice, as vLLM spells it.
            Kind::Tokens(..) if value.as_str() == Some("auto") || value.as_i64() == Some(-1) => Some(Value::Null),
            Kind::Tokens(min, max) => {
                let tokens = value.as_str().and_then(with_suffix).or_else(|| whole(value));
                tokens.filter(|n| (*min..=*max).contains(n)).map(Value::from)
            }
            Kind::Number(range) => number(value).filter(|n| range.contains(*n)).map(Value::from),
            Kind::Name(names) => {
                let text = value.as_str()?;
                names.iter().find(|name| name.eq_ignore_ascii_case(text)).map(|name| Value::from(*name))
            }
            Kind::Text => value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(Value::from),
            Kind::Wholes => wholes(value).map(Value::from),
            Kind::WholeOrAuto(min, max) => match value.as_str() {
                Some("auto") => Some(Value::Null),
                _ => Kind::Whole(*min, *max).value_of(value),
            },
            Kind::Own(read) => read(value),
            Kind::Object(_) => object_or_text(value).map(Value::Object),
            Kind::File | Kind::Any => Some(value.clone()),
        }
    }

    /// Reads what a command line has: text in its form as a value, for the reader of all arguments to judge its range.
    ///
    /// # Errors
    /// What the text must be, for one that is not of this kind at all, as `x` for a number.
    pub fn read_text(&self, text: &str) -> Result<Value, String> {
        let given = Value::from(text);
        let is_number = match self {
            // A number that the argument's type cannot have, as one beyond 32 bits, is none.
            Kind::Whole(_, max) => Kind::Whole(0, widest(*max)).value_of(&given).is_some(),
            Kind::Tokens(_, max) => Kind::Tokens(0, widest(*max)).value_of(&given).is_some(),
            Kind::Number(range) => number(&given).is_some_and(|number| range.is_above_least(number)),
            Kind::Wholes => Kind::Wholes.value_of(&given).is_some(),
            _ => true,
        };
        if !is_number {
            return Err(format!("must be {}", self.expected()));
        }
        // A number is kept as one, so that messages show it without quotes.
        let number = match self {
            Kind::Whole(..) | Kind::Tokens(..) | Kind::WholeOrAuto(..) | Kind::Own(_) => {
                text.parse::<u64>().ok().map(Value::from)
            }
            Kind::Number(_) => number(&given).map(Value::from),
            _ => None,
        };
        Ok(number.unwrap_or(given))
    }

    /// Completes the sentence "it must be …".
    pub fn expected(&self) -> String {
        match self {
            Kind::Switch => "true or false".to_owned(),
            Kind::Whole(min, max) | Kind::Tokens(min, max) => format!("a whole number from {min} to {max}"),
            Kind::Number(range) => range.to_string(),
            Kind::Name(names) => match names.split_last() {
                Some((last, [])) => (*last).to_owned(),
                Some((last, others)) => format!("{} or {last}", others.join(", ")),
                None => String::new(),
            },
            Kind::Text => "a text that is not empty".to_owned(),
            Kind::Wholes => "a list of whole numbers, each at least 1".to_owned(),
            Kind::WholeOrAuto(min, max) => format!("a whole number from {min} to {max}, or auto"),
            Kind::Object(_) => "an object or its JSON".to_owned(),
            Kind::File => "the path of a file".to_owned(),
            Kind::Own(_) | Kind::Any => "another value".to_owned(),
        }
    }

    /// Returns the placeholder of a value in help.
    pub(super) const fn value_name(&self) -> &'static str {
        match self {
            Kind::Switch => "",
            Kind::Whole(..) | Kind::Tokens(..) | Kind::Wholes => "N",
            Kind::Number(_) => "X",
            Kind::WholeOrAuto(..) => "N|auto",
            Kind::Name(_) | Kind::Text | Kind::Own(_) | Kind::Any => "VALUE",
            Kind::Object(_) => "JSON",
            Kind::File => "FILE",
        }
    }

    /// Returns the JSON schema of a value.
    pub(super) fn schema(&self) -> Value {
        match self {
            Kind::Switch => json!({"type": "boolean"}),
            Kind::Whole(min, max) | Kind::Tokens(min, max) => {
                json!({"type": "integer", "minimum": min, "maximum": max})
            }
            Kind::Number(range) => {
                let (min, max) = range.bounds();
                let least = if min.is_some() { "minimum" } else { "exclusiveMinimum" };
                let mut schema = Map::from_iter([("type".to_owned(), "number".into())]);
                schema.insert(least.to_owned(), min.unwrap_or(0.0).into());
                if max < f64::MAX {
                    schema.insert("maximum".to_owned(), max.into());
                }
                Value::Object(schema)
            }
            Kind::Name(names) => json!({"type": "string", "enum": names}),
            Kind::Text => json!({"type": "string", "minLength": 1}),
            Kind::Wholes => json!({"type": "array", "items": {"type": "integer", "minimum": 1}}),
            Kind::WholeOrAuto(min, max) => {
                json!({"anyOf": [{"type": "integer", "minimum": min, "maximum": max}, {"const": "auto"}]})
            }
            Kind::Own(_) => json!({"type": ["string", "number", "boolean"]}),
            Kind::Object(_) => json!({"type": ["object", "string"]}),
            Kind::File => json!({"type": ["string", "object", "array"]}),
            Kind::Any => json!({"type": ["string", "number", "boolean", "object", "array"]}),
        }
    }
}

/// The largest number of the type of an argument with this maximum: 32 bits, or 64 if they are needed.
const fn widest(max: u64) -> u64 {
    if max > u32::MAX as u64 { u64::MAX } else { u32::MAX as u64 }
}

/// A switch; text as a command line has it.
fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(on) => Some(*on),
        Value::String(text) => match text.trim().to_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// A whole number, which may be written as `16.0` or as text.
fn whole(value: &Value) -> Option<u64> {
    value.as_str().map_or_else(|| whole_value(value), whole_text)
}

/// A number of tokens as vLLM reads it.
///
/// # Source
/// vLLM, `human_readable_int` (`vllm/engine/arg_utils.py`): lower-case suffixes are decimal, upper-case ones binary, and only decimal
/// ones take a fraction.
fn with_suffix(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, suffix) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let (factor, is_decimal) = match suffix {
        "k" => (1e3, true),
        "m" => (1e6, true),
        "g" => (1e9, true),
        "K" => (1024.0, false),
        "M" => (1_048_576.0, false),
        "G" => (1_073_741_824.0, false),
        _ => return None,
    };
    let number = if is_decimal { digits.parse::<f64>().ok()? } else { digits.parse::<u32>().map(f64::from).ok()? };
    whole(&Value::from((number * factor).trunc()))
}

/// A finite number, which may be text.
fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    number.filter(|number| number.is_finite())
}

/// Whole numbers of at least one: a list, a JSON list as text, or text with commas or spaces.
fn wholes(value: &Value) -> Option<Vec<u64>> {
    let positive = |value: &Value| whole(value).filter(|n| (1..=u64::from(u32::MAX)).contains(n));
    match value {
        Value::Array(list) => list.iter().map(positive).collect(),
        Value::String(text) => {
            let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
            let parts = inner.split([',', ' ']).map(str::trim).filter(|part| !part.is_empty());
            parts.map(|part| positive(&part.into())).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(kind: Kind, given: Value, expected: Option<Value>) {
        assert_eq!(kind.value_of(&given), expected, "{given}");
    }

    #[test]
    fn text_is_read_as_a_command_line_has_it() {
        let whole = Kind::Whole(1, 100);
        reads(whole, json!("16"), Some(json!(16)));
        reads(whole, json!(16.0), Some(json!(16)));
        reads(whole, json!("16.5"), None);
        reads(whole, json!(0), None);
        reads(whole, json!(true), None);
        reads(Kind::Switch, json!("False"), Some(json!(false)));
        reads(Kind::Switch, json!(1), None);
        reads(Kind::Number(NumberRange::above_zero(1.0, "")), json!("0.9"), Some(json!(0.9)));
        reads(Kind::Number(NumberRange::POSITIVE), json!("inf"), None);
        reads(Kind::Wholes, json!("1,2, 4 8"), Some(json!([1, 2, 4, 8])));
        reads(Kind::Wholes, json!("[1,2]"), Some(json!([1, 2])));
        reads(Kind::Wholes, json!([1, 0]), None);
        reads(Kind::WholeOrAuto(1, 9), json!("auto"), Some(Value::Null));
        reads(Kind::Name(&["FULL", "NONE"]), json!("none"), Some(json!("NONE")));
    }

    #[test]
    fn suffixes_of_tokens_are_vllms() {
        let tokens = Kind::Tokens(1, u64::from(u32::MAX));
        for (text, expected) in [("32k", 32_000), ("32K", 32_768), ("1.5k", 1_500), ("1m", 1_000_000), ("8192", 8_192)]
        {
            reads(tokens, json!(text), Some(json!(expected)));
        }
        for text in ["1.5K", "k", "", "32kb", "-1k", "é"] {
            reads(tokens, json!(text), None);
        }
    }

    #[test]
    fn a_text_of_another_kind_is_wrong_usage_and_one_out_of_range_is_not() {
        assert_eq!(Kind::Whole(1, 8).read_text("0"), Ok(json!(0)));
        assert_eq!(Kind::Whole(1, 8).read_text("9"), Ok(json!(9)));
        assert!(Kind::Whole(1, 8).read_text("-1").is_err());
        assert!(Kind::Whole(1, 8).read_text("4294967296").is_err());
        assert!(Kind::Number(NumberRange::above_zero(1.0, "")).read_text("0").is_err());
        assert_eq!(Kind::Number(NumberRange::above_zero(1.0, "")).read_text("2"), Ok(json!(2.0)));
        assert_eq!(Kind::Tokens(1, 1 << 20).read_text("32k"), Ok(json!("32k")));
        assert_eq!(Kind::Whole(1, 8).read_text("x"), Err("must be a whole number from 1 to 8".to_owned()));
        assert!(Kind::Number(NumberRange::POSITIVE).read_text("nan").is_err());
    }
}
