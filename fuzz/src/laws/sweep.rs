//! Laws of a sweep: it resumes to the same bytes, whatever part of its rows was there, and in whatever order.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use ridgepoint_lab::sweep::{Grid, Row, RowFile, Sweep};

use crate::lab_files::ideal;
use crate::scratch;

/// Values of the keys that a case varies; a grid has one or two of each.
const KEYS: [(&str, &str, [&str; 4]); 7] = [
    ("server", "model", ["\"llama-3.1-8b\"", "\"gemma-2-9b\"", "\"llama-3.2-1b\"", "\"qwen3-30b-a3b\""]),
    ("server", "hardware", ["\"h100\"", "\"l40s\"", "\"a100\"", "\"b200\""]),
    ("server", "max_num_seqs", ["1", "2", "8", "64"]),
    ("server", "enable_prefix_caching", ["true", "false", "true", "false"]),
    ("load", "request_rate_per_s", ["0.5", "3", "1e3", "1e-3"]),
    ("load", "input_len_tokens", ["1", "100", "8000", "200000"]),
    ("load", "output_len_tokens", ["1", "2", "40", "9"]),
];

fn grid(from: &mut Unstructured<'_>) -> Result<String> {
    let mut text = String::new();
    let mut section = "";
    for (of, key, values) in KEYS {
        if section != of {
            text += &format!("[{of}]\n");
            section = of;
        }
        let first = from.choose_index(values.len())?;
        let second = if from.ratio(1, 4)? { from.choose_index(values.len())? } else { first };
        text += &match values[first] == values[second] {
            true => format!("{key} = {}\n", values[first]),
            false => format!("{key} = [{}, {}]\n", values[first], values[second]),
        };
    }
    Ok(text + &format!("num_requests = {}\n", from.int_in_range(1..=4)?))
}

static EXAMPLE: LazyLock<String> = LazyLock::new(|| include_str!("../../corpus/law_sweep/grid.toml").to_owned());

/// Checks the law on the grid and the part of its rows that the bytes stand for.
pub fn law(bytes: &[u8]) {
    let mut from = Unstructured::new(bytes);
    let Ok(text) = (if from.is_empty() { Ok(EXAMPLE.clone()) } else { grid(&mut from) }) else { return };
    let grid = Grid::parse("grid.toml", &text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let sweep = Sweep::new(grid, ideal()).unwrap();
    let whole = sweep.run(1, &[], &|_| Ok(())).unwrap();
    assert_eq!(whole.len(), sweep.grid().num_configurations());
    let name = ["rows.csv", "rows.json", "rows.jsonl"][from.choose_index(3).unwrap_or(0)];
    let mut part: Vec<Row> = whole.iter().filter(|_| from.arbitrary().unwrap_or(true)).cloned().collect();
    if from.arbitrary().unwrap_or(false) {
        part.reverse();
    }
    let file = RowFile::new(&scratch::path(name)).unwrap();
    let written = |rows: &[Row]| {
        let mut bytes = Vec::new();
        file.write(&mut bytes, rows).unwrap();
        bytes
    };
    scratch::write(name, &written(&part));
    let known = sweep.known(&file).unwrap_or_else(|error| panic!("own rows are refused: {error}"));
    assert_eq!(known.iter().flatten().count(), part.len());
    let resumed = sweep.run(1, &known, &|_| Ok(())).unwrap();
    let text = |rows: &[Row]| String::from_utf8_lossy(&written(rows)).into_owned();
    assert_eq!(text(&resumed), text(&whole), "a resumed sweep has other rows");
}
