//! Rows of csv, of jsonl and of JSON lists.

use std::io::Read;

use ridgepoint::input::FileKind;

use super::*;

const COLUMNS: Columns = Columns {
    required: "arrival,input_len",
    optional: "stage",
    aliases: &[("arrival_ms", "arrival"), ("prompt_len", "input_len")],
    has_others: false,
    by_role: None,
};

fn csv(text: &str) -> Result<Vec<(String, u32)>> {
    rows(RowReader::csv(Input::new(FileKind::Trace, "r.csv", text.as_bytes())?, COLUMNS)?)
}

fn jsonl(text: &str) -> Result<Vec<(String, u32)>> {
    rows(RowReader::jsonl(Input::new(FileKind::Trace, "r.jsonl", text.as_bytes())?, COLUMNS))
}

fn rows(mut reader: RowReader<'_>) -> Result<Vec<(String, u32)>> {
    let mut found = Vec::new();
    while let Some(row) = reader.next_row()? {
        found.push((row.text("arrival").unwrap_or_default().into_owned(), row.whole("input_len", 1..=100)?));
    }
    Ok(found)
}

#[test]
fn csv_and_jsonl_hold_the_same_rows() {
    let from_csv = csv("# made by hand\narrival,prompt_len,stage\n0, 100 ,\n1.5,16.0,1\n").unwrap();
    let from_jsonl = jsonl(
        "\u{feff}{\"arrival\": 0, \"input_len\": 100, \"stage\": null}\r\n\n{\"arrival_ms\": \"1.5\", \"input_len\": 16}\n",
    );
    assert_eq!(from_csv, [("0".to_owned(), 100), ("1.5".to_owned(), 16)]);
    assert_eq!(from_jsonl.unwrap(), from_csv);
}

#[test]
fn a_list_holds_the_rows_of_its_lines() {
    let lines = ["{\"arrival\": 0, \"input_len\": 100}", "{\"arrival\": \"1]\",\n \"input_len\": 16, \"stage\": null}"];
    for separator in [",", " ,\n", ",\r\n\n  "] {
        let list = format!("\u{feff} [{}\n]\n", lines.join(separator));
        assert_eq!(jsonl(&list).unwrap(), [("0".to_owned(), 100), ("1]".to_owned(), 16)], "{list}");
    }
    assert!(jsonl("[]").unwrap().is_empty());
    for (text, expected) in [
        ("[{\"arrival\": 0, \"input_len\": 1}, 2]", "element 2 is no JSON object: found 2"),
        ("[{\"arrival\": 0, \"input_len\": 1},]", "element 2 is no JSON object"),
        ("[{\"arrival\": 0, \"input_len\": 1}", "ends within its list"),
        ("[{\"arrival\": 0, \"input_len\": 1}] 3", "goes on behind its list"),
        ("[{\"arrival\": 0, \"input_len\": 0}]", "input_len"),
    ] {
        let error = jsonl(text).unwrap_err().to_string();
        assert!(error.starts_with("r.jsonl") && error.contains(expected), "{error}");
    }
}

#[test]
fn headers_list_all_their_problems() {
    let error = csv("arival,arrival,arrival,arrival_ms,colour\n").unwrap_err().to_string();
    for part in [
        "column 'arival' is not known: did you mean arrival, arrival_ms?",
        "column 'arrival' appears twice: keep one",
        "columns 'arrival' and 'arrival_ms' mean the same: keep one",
        "column 'colour' is not known;",
        "column 'input_len' is missing (other names: prompt_len)",
        "the columns are arrival, input_len and, optionally, stage",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(csv(" \n").unwrap_err().to_string().contains("is empty: the first line must name the columns arrival"));
    let error = jsonl("{\"arrival\":0,\"input_len\":1}\n{\"arrival\":0}").unwrap_err().to_string();
    assert!(error.starts_with("r.jsonl: line 2: column 'input_len' is missing"), "{error}");
}

#[test]
fn cells_and_lines_name_their_place() {
    let error = csv("arrival,prompt_len\n0,1\n1,0\n").unwrap_err();
    let message = "r.csv: row 2: column 'prompt_len': found 0, expected a whole number from 1 to 100";
    assert_eq!(error.to_string(), message);
    assert_eq!(error.location().and_then(|place| place.key.clone()).as_deref(), Some("prompt_len"));
    assert!(csv("arrival,prompt_len\n0,\n").unwrap_err().to_string().contains("found nothing"));
    assert_eq!(csv("arrival,prompt_len\n0\n").unwrap_err().to_string(), "r.csv: line 2: has 1 cells, the header has 2");
    for text in ["\n\n1\n", "\n\n\u{fe}\n", "\n\n{\"a\":1} {\"a\":2}\n"] {
        let error = jsonl(text).unwrap_err().to_string();
        assert!(error.starts_with("r.jsonl: line 3 column "), "{error}");
    }
    let error = jsonl("{\"arrival\":1,\"arrival\":1}\n").unwrap_err().to_string();
    assert!(error.contains("key 'arrival' appears twice"), "{error}");
}

#[test]
fn a_row_does_not_grow_without_end() {
    let endless = b"arrival,input_len\n1,\"".as_slice().chain(std::io::repeat(b'x'));
    let input = Input::new(FileKind::Trace, "r.csv", endless).unwrap();
    let mut reader = RowReader::csv(input, COLUMNS).unwrap();
    let error = reader.next_row().map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("r.csv: has a row of more than 1 MiB"), "{error}");
    // Many short rows are no long row.
    assert_eq!(csv(&format!("arrival,input_len\n{}", "1,2\n".repeat(1 << 19))).unwrap().len(), 1 << 19);
}
