//! Table files as editors, spreadsheets and broken copies leave them: read as written, or refused with the place.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use ridgepoint::Provenance;
use ridgepoint::unstable::efficiency::curve::CollectiveCurve;
use ridgepoint::unstable::efficiency::family::{ALL_REDUCE, AllReduceKind, SeriesKey};
use ridgepoint::unstable::efficiency::kernel_model::Chip;
use ridgepoint::unstable::efficiency::split_values;
use ridgepoint::unstable::efficiency::table::Table;
use ridgepoint::{DType, Deployment, Engine, Error, Hardware, Model, Options, Request, StepModel};
use tempfile::TempDir;

const BENCH_DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench_data");

fn shipped(gpu: &str, operator: &str) -> String {
    std::fs::read_to_string(format!("{BENCH_DATA}/{gpu}/vllm-0.14/{operator}.csv")).unwrap()
}

fn put(dir: &TempDir, gpu: &str, operator: &str, text: &str) {
    let folder = dir.path().join("bench_data").join(gpu);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{operator}.csv")), text).unwrap();
}

fn steps(model: &str, gpu: &str, gpus: u32, data_dir: Option<&Path>) -> Result<StepModel, Error> {
    let options =
        Options { data_dir: data_dir.map(Path::to_path_buf), engine: Engine::fitted(), ..Options::uncorrected() };
    let (model, hardware) = (Model::find(model).unwrap(), Hardware::find(gpu).unwrap());
    StepModel::with_options(&model, &hardware, &Deployment::tensor_parallel(gpus), &options)
}

/// A model on one H100, with this table in a data directory.
fn with_table(operator: &str, text: &str) -> Result<StepModel, Error> {
    let dir = tempfile::tempdir().unwrap();
    put(&dir, "h100_sxm", operator, text);
    steps("llama-3.1-8b", "h100", 2, Some(dir.path()))
}

fn batches() -> Vec<Vec<Request>> {
    let chunk = Request::prefill(700, 300);
    vec![
        vec![Request::decode(1)],
        vec![Request::decode(2048); 63],
        vec![chunk],
        [vec![Request::decode(900); 17], vec![chunk, Request::partial_prefill(2048, 0)]].concat(),
        vec![Request::prefill(40_000, 0)],
    ]
}

/// Bits of the times by tables and by operators, and all that estimates say but of engines: tables of one's own have none.
fn answers(steps: &StepModel) -> Vec<(u64, u64, String)> {
    let answer = |batch: Vec<Request>| {
        let mut estimate = steps.estimate_unchecked(&batch);
        estimate
            .warnings
            .retain(|warning| ![": kernels of ", ": nearer kernels "].iter().any(|said| warning.contains(said)));
        (steps.step_time_us(&batch).to_bits(), estimate.step_time_us.to_bits(), format!("{estimate:?}"))
    };
    batches().into_iter().map(answer).collect()
}

/// Lines below the header, each changed by `edit`.
fn edited(operator: &str, edit: impl Fn(&str) -> String) -> String {
    let line = |line: &str| if line.starts_with(['#', 's']) { line.to_owned() } else { edit(line) };
    shipped("h100_sxm", operator).lines().map(|text| line(text) + "\n").collect()
}

#[test]
fn the_same_tables_in_a_data_directory_give_the_same_predictions() {
    let dir = tempfile::tempdir().unwrap();
    for gpu in ["a100_sxm", "h100_sxm", "h200_sxm"] {
        for operator in ["gemm", "attention_prefill", "attention_decode", "moe", "allreduce"] {
            put(&dir, gpu, operator, &shipped(gpu, operator));
        }
    }
    for (model, gpu, gpus) in [
        ("llama-3.1-8b", "h100", 1),
        ("llama-3.1-8b", "l40s", 1),
        ("llama-3.1-70b", "a100", 4),
        ("qwen3-32b-fp8", "h100", 2),
        ("qwen3-30b-a3b", "h200", 1),
        ("mixtral-8x7b", "h100", 2),
        ("llama-4-scout", "h200", 8),
        ("gpt-oss-120b", "b200", 1),
        ("gemma-3-27b", "h100", 2),
        ("deepseek-v3", "a100", 8),
    ] {
        let built_in = answers(&steps(model, gpu, gpus, None).unwrap());
        assert_eq!(answers(&steps(model, gpu, gpus, Some(dir.path())).unwrap()), built_in, "{model} on {gpu}");
    }
}

#[test]
fn line_ends_marks_blanks_and_orders_of_editors_change_nothing() {
    let built_in = answers(&steps("llama-3.1-8b", "h100", 2, None).unwrap());
    for operator in ["gemm", "allreduce"] {
        let text = shipped("h100_sxm", operator);
        for same in [
            text.replace('\n', "\r\n"),
            format!("\u{feff}{text}"),
            format!("\u{feff}{}", text.replace('\n', "\r\n")),
            edited(operator, |line| format!("{line} \t ")),
            edited(operator, |line| line.replace(' ', "  ")),
        ] {
            assert_ne!(same, text);
            assert_eq!(answers(&with_table(operator, &same).unwrap()), built_in, "{operator}");
        }
    }
}

/// A table text with the series and all coordinates at the beginning of each line.
fn in_full(text: &str) -> String {
    let (mut above, mut full) = (Vec::new(), String::new());
    for line in text.lines() {
        if line.starts_with(['#', 's']) {
            full += &format!("{line}\n");
            continue;
        }
        let (own, values) = line.rsplit_once(',').unwrap();
        let own: Vec<&str> = own.split(',').collect();
        above.truncate(above.len().saturating_sub(own.len()));
        above.extend(own);
        full += &format!("{},{values}\n", above.join(","));
    }
    full
}

#[test]
fn a_line_may_leave_out_what_the_line_above_begins_with() {
    let built_in = answers(&steps("llama-3.1-8b", "h100", 2, None).unwrap());
    for operator in ["gemm", "allreduce"] {
        let text = shipped("h100_sxm", operator);
        let full = in_full(&text);
        assert_eq!(full != text, operator == "gemm", "a line of one coordinate shares none");
        let rows = full.find("efficiency\n").unwrap() + "efficiency\n".len();
        let reversed: String = full[rows..].lines().rev().flat_map(|line| [line, "\n"]).collect();
        for same in [&full, &format!("{}{reversed}", &full[..rows])] {
            assert_eq!(answers(&with_table(operator, same).unwrap()), built_in, "{operator}");
        }
    }
}

#[test]
fn a_line_that_shares_coordinates_with_none_above_is_refused() {
    let text = shipped("h100_sxm", "gemm");
    let rows = text.find("efficiency\n").unwrap() + "efficiency\n".len();
    let (first, rest) = text[rows..].split_once('\n').unwrap();
    let without_n = first.splitn(3, ',').nth(2).unwrap();
    let message = fault("gemm", &format!("{}{without_n}\n{rest}", &text[..rows])).to_string();
    assert!(message.contains("row 1") && message.contains("series"), "{message}");
}

/// The fault of a table, which names its file.
fn fault(operator: &str, text: &str) -> Error {
    let error = with_table(operator, text).expect_err("the table is damaged");
    assert!(error.to_string().contains(&format!("bench_data/h100_sxm/{operator}.csv")), "{error}");
    error
}

#[test]
fn fields_as_spreadsheets_write_them_are_refused_with_row_and_column() {
    let first_value = |line: &str, value: &str| {
        let (head, values) = line.rsplit_once(',').unwrap();
        format!("{head},{value} {}", values.split_once(' ').unwrap().1)
    };
    let first = |line: &str, separator: char| line.split(separator).next().unwrap().to_owned();
    for (edit, column, found) in [
        (&(|line: &str| format!("\"{}", line.replace(',', "\",\""))) as &dyn Fn(&str) -> String, "series", "\"1\""),
        (&|line| line.replace(',', ";"), "series", "1;"),
        (&|line| format!(" {line}"), "series", " 1"),
        (&|line| format!("{}.0{}", &line[..1], &line[1..]), "series", "1.0"),
        (&|line| line.replacen(',', ",,", 1), "num_gpus", "nothing"),
        (&|line| line.replacen(',', ", ", 1), "num_gpus", " 2"),
        (&|line| line.replacen(',', ",1_00", 1), "num_gpus", "1_002"),
        (&|line| line.replace(' ', ","), "efficiency", ","),
        (&|line| format!("{line},"), "efficiency", ","),
        (&|line| first_value(line, "1_0"), "efficiency", "1_0"),
        (&|line| first_value(line, "0x1"), "efficiency", "0x1"),
        (&|line| first_value(line, "1e400"), "efficiency", "1e400"),
        (&|line| first_value(line, "infinity"), "efficiency", "infinity"),
        (&|line| first_value(line, "+nan"), "efficiency", "+nan"),
        (&|line| first_value(line, "="), "efficiency", "="),
        (&|line| first_value(line, "~"), "efficiency", "~"),
        (&|line| line.rsplit_once(' ').unwrap().0.to_owned() + " =", "efficiency", "a line that ends with"),
        (&|line| first(line, ','), "num_gpus", "nothing"),
        (&|line| line.rsplit_once(',').unwrap().0.to_owned() + ",", "efficiency", "0 values"),
    ] {
        let error = fault("allreduce", &edited("allreduce", edit));
        let place = error.location().unwrap();
        assert!(place.key.as_deref() == Some(column) && place.line > Some(0), "{error} for {column} {found}");
        let (cell, _) = error.problems()[0].split_once(", expected").unwrap();
        assert!(cell.contains(found), "{error} for {column} {found}");
    }
}

#[test]
fn numbers_may_be_written_any_way_that_keeps_their_value() {
    let built_in = answers(&steps("llama-3.1-8b", "h100", 2, None).unwrap());
    let rewritten = |rewrite: &dyn Fn(&str) -> String| {
        let number = |field: &str| match field.strip_prefix('~') {
            Some(digits) => format!("~{}", rewrite(digits)),
            None if field == "-" => field.to_owned(),
            None => rewrite(field),
        };
        edited("allreduce", |line| {
            let (point, values) = line.rsplit_once(',').unwrap();
            let (id, gpus) = point.split_once(',').unwrap();
            let values: Vec<String> = split_values(values).map(number).collect();
            format!("{id},{},{}", rewrite(gpus), values.join(" "))
        })
    };
    for text in [
        rewritten(&|number| format!("+{number}")),
        rewritten(&|number| format!("0{number}")),
        rewritten(&|number| format!("{number}e0")),
        rewritten(&|number| {
            if number.contains('.') { format!("{number}0000000000000000") } else { format!("{number}.") }
        }),
    ] {
        assert_eq!(answers(&with_table("allreduce", &text).unwrap()), built_in);
    }
}

#[test]
fn a_file_cut_off_within_its_lines_is_refused_wherever_the_cut_is() {
    let text = shipped("h100_sxm", "allreduce");
    let rows = text.find("efficiency\n").unwrap();
    for end in (rows..text.len()).filter(|end| text.is_char_boundary(*end)) {
        let cut = &text[..end];
        let message = fault("allreduce", cut).to_string();
        let is_told = ["cut off", "its header says", "stands below", "an id of the header"];
        assert!(is_told.iter().any(|told| message.contains(told)), "cut at {end}: {message}");
    }
}

#[test]
fn a_series_without_lines_is_refused_even_where_its_header_says_so() {
    let text = shipped("h100_sxm", "allreduce");
    let lines = text.rfind("# lines = 3").unwrap();
    let text = format!("{}# lines = 0{}", &text[..lines], &text[lines + "# lines = 3".len()..]);
    let without: String = text.lines().filter(|line| !line.starts_with("2,")).flat_map(|line| [line, "\n"]).collect();
    let message = fault("allreduce", &without).to_string();
    assert!(message.contains("series 'graph' has 0 lines") && message.contains("one at least"), "{message}");
}

#[test]
fn a_series_whose_name_is_written_another_way_is_refused_as_it_would_never_be_found() {
    let text = shipped("h100_sxm", "attention_decode");
    let name = text.lines().find(|line| line.starts_with("# [series.") && line.contains("/d128/full")).unwrap();
    for other in ["/d0128/full", "/d+128/full"] {
        let other = name.replace("/d128/full", other);
        let message = fault("attention_decode", &text.replacen(name, &other, 1)).to_string();
        assert!(message.contains("needs a known name"), "{message}");
    }
}

/// Damages a table text: fields swapped for nasty ones, or bytes overwritten, deleted and doubled.
fn damaged(mut text: Vec<u8>, edits: &[(Index, u8, u8, usize)]) -> String {
    const NASTY: [&str; 14] =
        ["NaN", "-", "~", "", "0", "-1", "1e308", "1e-308", "9223372036854775807", "inf", "[", "\"", "\n", ","];
    for (place, kind, byte, length) in edits {
        if text.is_empty() {
            break;
        }
        let at = place.index(text.len());
        let end = (at + length).min(text.len());
        match kind % 4 {
            0 => text[at] = 32 + byte % 95,
            1 => drop(text.drain(at..end)),
            2 => drop(text.splice(at..at, text[at..end].to_vec())),
            _ => {
                let is_digit = |b: &u8| b.is_ascii_digit() || *b == b'.';
                let start = text[..at].iter().rposition(|b| !is_digit(b)).map_or(0, |before| before + 1);
                let stop = text[at..].iter().position(|b| !is_digit(b)).map_or(text.len(), |after| at + after);
                drop(text.splice(start.min(stop)..stop, NASTY[usize::from(*byte) % NASTY.len()].bytes()));
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_randomly_damaged_table_is_refused_or_gives_finite_times(
        edits in prop::collection::vec((any::<Index>(), any::<u8>(), any::<u8>(), 1usize..60), 1..6),
    ) {
        let text = damaged(shipped("h100_sxm", "allreduce").into_bytes(), &edits);
        let h100 = Hardware::find("h100").expect("built in");
        let chip = Chip::new(&h100, DType::Bfloat16).expect("has the unit");
        let Ok(table) = Table::parse(&ALL_REDUCE, "h100_sxm", "damaged", text) else { return Ok(()) };
        for kind in [AllReduceKind::Graph, AllReduceKind::Eager] {
            let Ok(Some(series)) = table.series(&SeriesKey::AllReduce(kind), &chip, &[]) else { continue };
            for gpus in [2.0, 3.0, 4.0, 64.0] {
                let curve = CollectiveCurve::all_reduce(&series, gpus, chip, Provenance::Measured);
                for message_bytes in [2.0, 8192.0, 1e6, 1e9, 1e15] {
                    let (time_us, _) = curve.time(message_bytes);
                    prop_assert!(time_us.is_finite() && time_us > 0.0, "{time_us} µs for {message_bytes} bytes on {gpus}");
                }
            }
        }
    }
}
