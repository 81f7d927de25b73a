//! Request lists: one request a row, csv or jsonl, columns by name; Vidur's csv is one of them. Uses `rows`, `seed`,
//! `units`.

use std::io::{BufRead, Read};
use std::sync::Arc;

use super::WorkloadRequest;
use super::limits::MAX_STAGES;
use super::request::Segment;
use super::rows::{Row, Rows, cell, csv_reader, each_json_line, read_row};
use super::seed::mixed;
use crate::error::{Error, Result};
use crate::input::{csv_error, near_matches};
use crate::units::{NS_PER_MS, NS_PER_S, NS_PER_US};

/// What a column says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Arrival {
        ns_per_unit: u64,
    },
    InputLen,
    OutputLen,
    PrefixGroup,
    PrefixLen,
    Priority,
    Stage,
    /// Known, and without influence on the load.
    NotRead,
}

/// Every name of a column.
const COLUMNS: [(&str, Field); 23] = [
    ("arrival", Field::Arrival { ns_per_unit: NS_PER_S }),
    ("arrival_s", Field::Arrival { ns_per_unit: NS_PER_S }),
    ("arrival_time", Field::Arrival { ns_per_unit: NS_PER_S }),
    ("arrived_at", Field::Arrival { ns_per_unit: NS_PER_S }),
    ("arrival_ms", Field::Arrival { ns_per_unit: NS_PER_MS }),
    ("arrival_us", Field::Arrival { ns_per_unit: NS_PER_US }),
    ("arrival_ns", Field::Arrival { ns_per_unit: 1 }),
    ("input_len", Field::InputLen),
    ("input_tokens", Field::InputLen),
    ("prompt_len", Field::InputLen),
    ("prompt_tokens", Field::InputLen),
    ("num_prefill_tokens", Field::InputLen),
    ("output_len", Field::OutputLen),
    ("output_tokens", Field::OutputLen),
    ("num_decode_tokens", Field::OutputLen),
    ("prefix_group", Field::PrefixGroup),
    ("prefix_len", Field::PrefixLen),
    ("priority", Field::Priority),
    ("stage", Field::Stage),
    ("id", Field::NotRead),
    ("request_id", Field::NotRead),
    // Sums and ratios of the lengths in Vidur's files.
    ("num_total_tokens", Field::NotRead),
    ("pd_ratio", Field::NotRead),
];

const ARRIVALS: &str = "arrival (or arrival_s, arrival_time, arrived_at, arrival_ms, arrival_us, arrival_ns)";
const INPUTS: &str = "input_len (or input_tokens, prompt_len, prompt_tokens, num_prefill_tokens)";
const OUTPUTS: &str = "output_len (or output_tokens, num_decode_tokens)";

/// True for the name of an arrival column: the mark of a request list.
pub(super) fn is_arrival(name: &str) -> bool {
    matches!(field(name), Some(Field::Arrival { .. }))
}

fn field(name: &str) -> Option<Field> {
    COLUMNS.iter().find(|(column, _)| *column == name).map(|(_, field)| *field)
}

/// Columns of a file, checked: each field at most once.
struct Columns {
    /// Name and meaning, in the order of the file.
    named: Vec<(String, Field)>,
}

impl Columns {
    fn new<'a>(origin: &str, names: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut problems = Vec::new();
        let mut named: Vec<(String, Field)> = Vec::new();
        for name in names {
            let Some(field) = field(name) else {
                let near = near_matches(name, COLUMNS.iter().map(|(column, _)| *column));
                let hint = near.first().map_or(String::new(), |column| format!(" (did you mean '{column}'?)"));
                problems.push(format!("unknown column '{}'{hint}", super::rows::cut(name)));
                continue;
            };
            let same = |other: Field| std::mem::discriminant(&other) == std::mem::discriminant(&field);
            if field != Field::NotRead
                && let Some((earlier, _)) = named.iter().find(|(_, other)| same(*other))
            {
                problems.push(format!("columns '{earlier}' and '{name}' say the same: keep one"));
            }
            named.push((name.to_owned(), field));
        }
        let has = |wanted: fn(&Field) -> bool| named.iter().any(|(_, field)| wanted(field));
        for (present, names) in [
            (has(|f| matches!(f, Field::Arrival { .. })), ARRIVALS),
            (has(|f| *f == Field::InputLen), INPUTS),
            (has(|f| *f == Field::OutputLen), OUTPUTS),
        ] {
            if !present {
                problems.push(format!("column {names} is missing"));
            }
        }
        if has(|f| *f == Field::PrefixLen) && !has(|f| *f == Field::PrefixGroup) {
            problems.push("column 'prefix_len' needs 'prefix_group': which requests share it?".to_owned());
        }
        super::limits::check(origin, problems)?;
        Ok(Columns { named })
    }
}

/// A row as far as it has been read.
#[derive(Default)]
struct Cells {
    arrival_ns: u64,
    input_len: u32,
    output_len: u32,
    group: Option<u64>,
    prefix_len: Option<u32>,
    priority: i32,
    stage: u32,
}

impl Cells {
    fn set(&mut self, row: Row<'_>, name: &str, field: Field, text: &str, rows: &Rows) -> Result<()> {
        match field {
            Field::Arrival { ns_per_unit } => {
                self.arrival_ns = row.time_ns(name, text, ns_per_unit)?;
                row.in_order(name, text, self.arrival_ns, rows)?;
            }
            Field::InputLen => self.input_len = row.tokens(name, text, 1)?,
            Field::OutputLen => self.output_len = row.tokens(name, text, 1)?,
            Field::PrefixGroup if text.is_empty() => {}
            Field::PrefixGroup => self.group = Some(id_of(text)),
            Field::PrefixLen if text.is_empty() => {}
            Field::PrefixLen => self.prefix_len = Some(row.tokens(name, text, 0)?),
            Field::Priority if text.is_empty() => {}
            Field::Priority => {
                self.priority = text.parse().map_err(|_| {
                    let expected = format!("a whole number from {} to {}, lower ones first", i32::MIN, i32::MAX);
                    row.bad(name, text, expected)
                })?;
            }
            Field::Stage if text.is_empty() => {}
            Field::Stage => {
                let stage = text.parse().ok().filter(|stage| *stage < MAX_STAGES);
                self.stage =
                    stage.ok_or_else(|| row.bad(name, text, format!("a stage from 0 to {}", MAX_STAGES - 1)))?;
            }
            Field::NotRead => {}
        }
        Ok(())
    }

    fn finish(self, row: Row<'_>) -> Result<WorkloadRequest> {
        let shared = match (self.group, self.prefix_len) {
            (None, None) => None,
            (None, Some(length)) => {
                let expected = "no length, or a prefix_group beside it that says which requests share it";
                return Err(row.bad("prefix_len", &length.to_string(), expected));
            }
            (Some(id), None) => Some(Segment { id, num_tokens: self.input_len }),
            (Some(_), Some(length)) if length > self.input_len => {
                let expected = format!("at most the length of the prompt, {}", self.input_len);
                return Err(row.bad("prefix_len", &length.to_string(), expected));
            }
            (Some(id), Some(num_tokens)) => Some(Segment { id, num_tokens }).filter(|s| s.num_tokens > 0),
        };
        Ok(WorkloadRequest {
            arrival_ns: self.arrival_ns,
            num_prompt_tokens: self.input_len,
            num_output_tokens: self.output_len,
            priority: self.priority,
            stage: self.stage,
            content: shared.map(|segment| Arc::from([segment])),
        })
    }
}

/// A group's id from its name.
fn id_of(name: &str) -> u64 {
    name.bytes().fold(mixed(name.len() as u64), |id, byte| mixed(id ^ u64::from(byte)))
}

/// Reads a csv file whose first line names the columns.
pub(super) fn read_csv(origin: &str, reader: impl Read) -> Result<Rows> {
    let mut reader = csv_reader(reader);
    let failed = |error| csv_error(origin, error);
    let columns = Columns::new(origin, reader.headers().map_err(failed)?.iter())?;
    let mut rows = Rows::default();
    let mut record = csv::StringRecord::new();
    for number in 1.. {
        if !read_row(origin, &mut reader, &mut record)? {
            break;
        }
        let row = Row { origin, number };
        let mut cells = Cells::default();
        for ((name, field), text) in columns.named.iter().zip(&record) {
            cells.set(row, name, *field, text, &rows)?;
        }
        rows.requests.push(cells.finish(row)?);
    }
    Ok(rows)
}

/// Reads a jsonl file: an object of the same names in each line; what may be left empty in csv may be null or absent.
pub(super) fn read_jsonl(origin: &str, reader: impl BufRead) -> Result<Rows> {
    let mut rows = Rows::default();
    let mut columns = Columns { named: Vec::new() };
    each_json_line(origin, reader, |row, line| {
        let same_keys =
            line.len() == columns.named.len() && columns.named.iter().all(|(name, _)| line.contains_key(name));
        if !same_keys {
            let origin = format!("{origin}: row {}", row.number);
            columns = Columns::new(&origin, line.keys().map(String::as_str))?;
        }
        let mut cells = Cells::default();
        for (name, field) in &columns.named {
            cells.set(row, name, *field, &cell(line, name).unwrap_or_default(), &rows)?;
        }
        rows.requests.push(cells.finish(row)?);
        Ok::<(), Error>(())
    })?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(text: &str) -> Result<Rows> {
        read_csv("requests.csv", text.as_bytes())
    }

    fn jsonl(text: &str) -> Result<Rows> {
        read_jsonl("requests.jsonl", text.as_bytes())
    }

    fn figures(rows: &Rows) -> Vec<(u64, u32, u32)> {
        rows.requests.iter().map(|r| (r.arrival_ns, r.num_prompt_tokens, r.num_output_tokens)).collect()
    }

    #[test]
    fn both_kinds_of_list_say_the_same() {
        let text = "# a comment\narrival,input_len,output_len,priority,stage\n0,100,10,,\n1.5, 200 ,20,-3,1\n";
        let from_csv = csv(text).unwrap();
        let from_json = jsonl(
            "{\"arrival\": 0, \"input_len\": 100, \"output_len\": 10}\n\
             {\"arrival\": 1.5, \"input_len\": 200, \"output_len\": 20, \"priority\": -3, \"stage\": 1}\n",
        )
        .unwrap();
        assert_eq!(from_csv.requests, from_json.requests);
        assert_eq!(figures(&from_csv), [(0, 100, 10), (1_500_000_000, 200, 20)]);
        assert_eq!((from_csv.requests[1].priority, from_csv.requests[1].stage), (-3, 1));
    }

    #[test]
    fn vidur_files_are_lists() {
        let rows = csv("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,370,40\n4.25,400,110\n").unwrap();
        assert_eq!(figures(&rows), [(0, 370, 40), (4_250_000_000, 400, 110)]);
    }

    #[test]
    fn units_of_arrivals_are_in_the_name_of_the_column() {
        for (column, value) in
            [("arrival_s", "0.0025"), ("arrival_ms", "2.5"), ("arrival_us", "2500"), ("arrival_ns", "2500000")]
        {
            let rows = csv(&format!("{column},prompt_len,output_tokens\n{value},1,1\n")).unwrap();
            assert_eq!(rows.requests[0].arrival_ns, 2_500_000, "{column}");
        }
    }

    #[test]
    fn groups_share_their_prefix_or_their_whole_prompt() {
        let text = "arrival,input_len,output_len,prefix_group,prefix_len\n\
                    0,100,1,a,60\n0,80,1,a,60\n0,90,1,b,\n0,70,1,,\n0,70,1,a,0\n";
        let rows = csv(text).unwrap();
        let content: Vec<Option<Segment>> =
            rows.requests.iter().map(|r| r.content.as_ref().map(|content| content[0])).collect();
        assert_eq!(content[0], content[1]);
        assert_eq!(content[0].map(|segment| segment.num_tokens), Some(60));
        assert_eq!(content[2].map(|segment| segment.num_tokens), Some(90));
        assert_ne!(content[0].map(|segment| segment.id), content[2].map(|segment| segment.id));
        assert_eq!((content[3], content[4]), (None, None));
        let numbers = jsonl("{\"arrival\":0,\"input_len\":5,\"output_len\":1,\"prefix_group\":7}").unwrap();
        let texts = jsonl("{\"arrival\":0,\"input_len\":5,\"output_len\":1,\"prefix_group\":\"7\"}").unwrap();
        assert_eq!(numbers.requests, texts.requests);
    }

    #[test]
    fn headers_list_all_their_problems() {
        let error = csv("arival,arrival,arrival_ms,input_len,colour,prefix_len\n").unwrap_err().to_string();
        for part in [
            "unknown column 'arival' (did you mean 'arrival'?)",
            "columns 'arrival' and 'arrival_ms' say the same",
            "unknown column 'colour'",
            "column output_len (or output_tokens, num_decode_tokens) is missing",
            "'prefix_len' needs 'prefix_group'",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = jsonl("{\"arrival\":0,\"input_len\":1,\"output_len\":1}\n{\"arrival\":0}").unwrap_err().to_string();
        assert!(error.starts_with("requests.jsonl: row 2: column input_len"), "{error}");
    }

    #[test]
    fn bad_rows_name_row_column_value_and_what_is_allowed() {
        let header = "arrival,input_len,output_len,stage,priority,prefix_group,prefix_len\n";
        for (rows, expected) in [
            (
                "2,1,1,,,,\n1.5,1,1,,,,\n",
                "row 2: column 'arrival': found 1.5, expected at least that of the row above, 2 s",
            ),
            ("-1,1,1,,,,\n", "row 1: column 'arrival': found -1, expected a number from 0"),
            ("nan,1,1,,,,\n", "row 1: column 'arrival': found nan"),
            (",1,1,,,,\n", "row 1: column 'arrival': found nothing"),
            ("0,0,1,,,,\n", "row 1: column 'input_len': found 0, expected a whole number of tokens from 1 to 10000000"),
            ("0,1,1.5,,,,\n", "row 1: column 'output_len': found 1.5"),
            ("0,1,1,1000,,,\n", "row 1: column 'stage': found 1000, expected a stage from 0 to 999"),
            ("0,1,1,,high,,\n", "row 1: column 'priority': found high"),
            ("0,5,1,,,g,6\n", "row 1: column 'prefix_len': found 6, expected at most the length of the prompt, 5"),
            ("0,5,1,,,,5\n", "row 1: column 'prefix_len': found 5, expected no length, or a prefix_group"),
            ("0,5,1\n", "line 2 has 3 cells, the header has 7"),
        ] {
            let error = csv(&format!("{header}{rows}")).unwrap_err().to_string();
            assert!(error.starts_with("requests.csv: ") && error.contains(expected), "{error}");
        }
    }
}
