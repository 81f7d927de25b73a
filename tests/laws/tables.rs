//! Damaged table files are refused with the place, and those of a data directory take precedence over the built-in ones.

use crate::compare;
use ridgepoint::{DType, Deployment, Engine, Error, ErrorKind, Hardware, Model, Options, Request, StepModel};

use std::path::{Path, PathBuf};

use compare::is_rel;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::unstable::efficiency::Tables;
use ridgepoint::unstable::efficiency::family::GEMM;
use ridgepoint::unstable::efficiency::split_values;
use tempfile::TempDir;

/// Residuals are kept as `f32`.
const REL_RESIDUAL_ROUNDING: f64 = 1e-6;

fn shipped(gpu: &str, operator: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("bench_data/{gpu}/vllm-0.14/{operator}.csv"));
    std::fs::read_to_string(path).expect("a shipped table")
}

/// A data directory with nothing in it but one table of the H100.
struct DataDir {
    dir: TempDir,
    file: PathBuf,
}

impl DataDir {
    fn new(operator: &str, content: &[u8]) -> DataDir {
        let data = DataDir::without_file(operator);
        std::fs::write(&data.file, content).expect("written");
        data
    }

    fn without_file(operator: &str) -> DataDir {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("bench_data/h100_sxm");
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join(format!("{operator}.csv"));
        DataDir { dir, file }
    }

    fn model(&self, tensor_parallel_size: u32) -> Result<StepModel, Error> {
        on("h100", tensor_parallel_size, Some(self.dir.path()))
    }

    /// The error of a model that needs the table.
    fn fault(&self) -> Error {
        let error = self.model(4).expect_err("the table is damaged");
        let message = error.to_string();
        assert!(message.contains(&self.file.display().to_string()), "names the file: {message}");
        assert!(error.kind() != ErrorKind::MissingTable, "a fault is nothing to fall back from: {message}");
        error
    }
}

fn on(gpu: &str, tensor_parallel_size: u32, data_dir: Option<&Path>) -> Result<StepModel, Error> {
    let model = Model::find("llama-3.1-8b").expect("built in");
    let hardware = Hardware::find(gpu).expect("built in");
    let options =
        Options { data_dir: data_dir.map(Path::to_path_buf), engine: Engine::fitted(), ..Options::uncorrected() };
    StepModel::with_options(&model, &hardware, &Deployment::tensor_parallel(tensor_parallel_size), &options)
}

fn batch() -> Vec<Request> {
    let mut batch = vec![Request::decode(2048); 64];
    batch.push(Request::prefill(512, 0));
    batch
}

/// What stands in front of the line that is damaged: four GPUs inside a graph.
const LINE: &str = "2,4,";

fn row_of(text: &str, start: &str) -> usize {
    let body = text.lines().skip_while(|line| line.starts_with('#'));
    body.enumerate().find(|(_, line)| line.starts_with(start)).expect("such a line").0
}

/// The all-reduce table with one line replaced by lines made from it.
fn with_line(edit: impl Fn(&str) -> String) -> String {
    let text = shipped("h100_sxm", "allreduce");
    let line = text.lines().find(|line| line.starts_with(LINE)).expect("such a line");
    text.replace(line, &edit(line))
}

/// The all-reduce table with the third value of the line replaced.
fn with_value(value: &str) -> String {
    with_line(|line| {
        let (point, values) = line.rsplit_once(',').expect("a point");
        let mut values: Vec<&str> = split_values(values).collect();
        values[2] = value;
        format!("{point},{}", values.join(" "))
    })
}

fn replaced(from: &str, to: &str) -> String {
    let text = shipped("h100_sxm", "allreduce");
    assert!(text.contains(from), "the table has no {from}");
    text.replacen(from, to, 1)
}

fn assert_bad_row(text: &str, column_wanted: &str, row_wanted: usize, found_wanted: &str) {
    let error = DataDir::new("allreduce", text.as_bytes()).fault();
    let place = error.location().unwrap();
    assert_eq!((place.line, place.key.as_deref()), (Some(row_wanted as u64), Some(column_wanted)), "{error}");
    let (found, _) = error.problems()[0].split_once(", expected").unwrap();
    assert!(found.contains(found_wanted), "{found}");
}

fn assert_parse(text: &str, names: &[&str]) {
    let error = DataDir::new("allreduce", text.as_bytes()).fault();
    assert_eq!(error.kind(), ErrorKind::Parse, "{error}");
    assert!(names.iter().all(|name| error.problems()[0].contains(name)), "{names:?}: {error}");
}

#[test]
fn an_efficiency_outside_its_range_is_named_with_row_and_column() {
    let row = row_of(&shipped("h100_sxm", "allreduce"), LINE);
    for value in ["NaN", "nan", "~NaN", "0", "1001", "~1000.1", "-5", "inf", "1e400", "5%", "1,5", "1e-200"] {
        assert_bad_row(&with_value(value), "efficiency", row, value);
    }
}

#[test]
fn a_duplicate_line_is_named_with_its_row() {
    let row = row_of(&shipped("h100_sxm", "allreduce"), LINE);
    assert_bad_row(&with_line(|line| format!("{line}\n{line}")), "num_gpus", row + 1, "4");
    let again_as_eight = with_line(|line| line.to_owned()).replace("\n2,8,", "\n2,4,");
    assert_bad_row(&again_as_eight, "num_gpus", row + 1, "4");
}

#[test]
fn a_missing_line_is_named_with_its_series() {
    let text = shipped("h100_sxm", "allreduce");
    let line = text.lines().find(|line| line.starts_with(LINE)).expect("such a line");
    assert_parse(&text.replace(&format!("{line}\n"), ""), &["series 'graph'", "2 lines", "says 3"]);
    let whole = text.trim_end();
    let (before, _) = whole.rsplit_once('\n').expect("lines");
    assert_parse(&format!("{before}\n"), &["series 'graph'", "2 lines", "says 3"]);
    assert_parse(before, &["cut off"]);
}

#[test]
fn a_line_with_too_many_or_no_values_is_named_with_its_row() {
    let text = shipped("h100_sxm", "allreduce");
    let row = row_of(&text, LINE);
    assert_bad_row(
        &with_line(|line| format!("{line} 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5")),
        "efficiency",
        row,
        "values",
    );
    assert_bad_row(&with_line(|_| LINE.to_owned()), "efficiency", row, "0 values");
    assert_bad_row(&with_line(|_| "2".to_owned()), "num_gpus", row, "");
}

#[test]
fn a_coordinate_that_can_not_be_is_named_with_row_and_column() {
    let row = row_of(&shipped("h100_sxm", "allreduce"), LINE);
    for number in ["0", "-4", "NaN", "inf", "four", ""] {
        assert_bad_row(&with_line(|line| line.replacen(LINE, &format!("2,{number},"), 1)), "num_gpus", row, number);
    }
}

#[test]
fn a_line_of_no_series_is_named_with_its_row() {
    let row = row_of(&shipped("h100_sxm", "allreduce"), LINE);
    assert_bad_row(&with_line(|line| line.replacen("2,", "7,", 1)), "series", row, "7");
    assert_bad_row(&with_line(|line| format!("{line}\n\n")), "series", row + 1, "");
    assert_bad_row(&with_line(|line| format!("{line}\n# operator = \"gemm\"")), "series", row + 1, "operator");
}

#[test]
fn header_keys_are_all_known_and_all_there() {
    assert_parse(&replaced("# unit =", "# colour = 3\n# unit ="), &["line 3", "unknown field `colour`"]);
    assert_parse(&replaced("# rows =", "# pages = 3\n# rows ="), &["unknown field `pages`"]);
    assert_parse(&replaced("# command =", "# kommand ="), &["line 4", "unknown field `kommand`"]);
    assert_parse(&replaced("# hardware = \"h100_sxm\"\n", ""), &["missing field `hardware`"]);
    assert_parse(&replaced("# unit =", "# hardware = \"h100_sxm\"\n# unit ="), &["line 3", "duplicate key"]);
    assert_parse(&replaced("# rows =", "# rows = many #"), &["table header, line"]);
}

#[test]
fn coefficients_are_all_known_all_there_and_positive() {
    let text = shipped("h100_sxm", "allreduce");
    let graph = text.find("# [coefficients.graph]").expect("the group");
    let at = graph + text[graph..].find("# launch_us").expect("a coefficient");
    let end = at + text[at..].find('\n').expect("a line's end");
    let with = |line: &str| format!("{}{line}{}", &text[..at], &text[end..]);
    let place = "coefficients.\"graph\".launch_us";
    assert_parse(&with("#"), &[place, "positive number"]);
    for value in ["0.0", "-3.5", "nan", "inf"] {
        assert_parse(&with(&format!("# launch_us = {value}")), &[place, "positive number"]);
    }
    assert_parse(&with("# launch_us = 3.5\n# lunch_us = 3.5"), &["coefficients.\"graph\".lunch_us", "launch_us"]);
    assert_parse(&with("# launch_us = \"3.5\""), &["table header, line", "invalid type"]);
}

#[test]
fn coefficients_that_explain_nothing_are_refused() {
    let row = row_of(&shipped("h100_sxm", "allreduce"), "2,");
    let text = shipped("h100_sxm", "allreduce");
    let graph = text.find("# [coefficients.graph]").expect("the group");
    let damaged = format!(
        "{}{}",
        &text[..graph],
        text[graph..].replacen("# bandwidth_efficiency = ", "# bandwidth_efficiency = 1e-300 # ", 1)
    );
    assert_bad_row(&damaged, "efficiency", row, "");
}

#[test]
fn a_series_has_a_known_name_an_id_of_its_own_and_ascending_knots() {
    let wanted = &["series 'graph'", "ascending positive knots"];
    assert_parse(&replaced("# id = 2", "# id = 1"), &["ascending positive knots"]);
    assert_parse(&replaced("# [series.graph]", "# [series.cuda]"), &["series 'cuda'"]);
    let text = shipped("h100_sxm", "allreduce");
    let graph = text.find("# [series.graph]").expect("the series");
    for (from, to) in [
        ("knots = [256.0,", "knots = [512.0,"),
        ("knots = [256.0,", "knots = [-256.0,"),
        ("knots = [256.0,", "knots = [nan,"),
        ("knots = [", "knots = [] # ["),
    ] {
        let damaged = format!("{}{}", &text[..graph], text[graph..].replacen(from, to, 1));
        assert_ne!(damaged, text, "the series has no {from}");
        assert_parse(&damaged, wanted);
    }
}

#[test]
fn numbers_of_any_size_in_a_header_do_no_harm() {
    let last = shipped("h100_sxm", "allreduce").rfind("# lines = 3").expect("the last series");
    for lines in ["9223372036854775807", "99999999999999", "0"] {
        let text = shipped("h100_sxm", "allreduce");
        let damaged = format!("{}# lines = {lines}{}", &text[..last], &text[last + "# lines = 3".len()..]);
        assert_parse(&damaged, &["series 'graph'", "3 lines", lines]);
    }
    assert_parse(&replaced("# lines = 3", "# lines = -1"), &["table header, line"]);
    assert_parse(&replaced("# lines = 3", "# lines = 99999999999999999999"), &["table header, line"]);
}

#[test]
fn a_table_of_something_else_is_refused() {
    assert_parse(&shipped("h100_sxm", "gemm"), &["operator 'gemm'", "expected 'allreduce'"]);
    assert_parse(&replaced("per mille of the roofline bound", "share"), &["share"]);
    assert_parse(&shipped("h200_sxm", "allreduce"), &["hardware 'h200_sxm'", "expected 'h100_sxm'"]);
    assert_parse(
        &replaced("series,num_gpus,", "series,ranks,"),
        &["series,ranks,efficiency", "expected 'series,num_gpus,efficiency'"],
    );
    assert_parse(&replaced("\nseries,num_gpus,efficiency\n", "\n"), &["expected 'series,num_gpus,efficiency'"]);
}

#[test]
fn a_file_cut_off_within_its_header_is_refused_wherever_the_cut_is() {
    let text = shipped("h100_sxm", "allreduce");
    let header: usize = text.lines().take_while(|line| line.starts_with('#')).map(|line| line.len() + 1).sum();
    for end in (0..header).step_by(3).chain([header]) {
        let error = DataDir::new("allreduce", &text.as_bytes()[..end]).fault();
        assert!(
            error.kind() == ErrorKind::Parse && error.problems()[0].contains("table header"),
            "cut at {end}: {error}"
        );
    }
}

#[test]
fn a_file_that_is_no_text_or_a_folder_is_named() {
    let mut bytes = shipped("h100_sxm", "allreduce").into_bytes();
    bytes[200] = 0xff;
    let binary = DataDir::new("allreduce", &bytes);
    let is_of = |error: Error, kind: ErrorKind, file: &std::path::Path| {
        error.kind() == kind && error.location().unwrap().path == file.display().to_string()
    };
    assert!(is_of(binary.fault(), ErrorKind::Parse, &binary.file));
    let folder = DataDir::without_file("allreduce");
    std::fs::create_dir(&folder.file).expect("a folder");
    assert!(is_of(folder.fault(), ErrorKind::Io, &folder.file));
}

#[test]
fn a_damaged_table_of_any_operator_is_refused() {
    for (operator, model) in [
        ("gemm", "llama-3.1-8b"),
        ("attention_prefill", "llama-3.1-8b"),
        ("attention_decode", "llama-3.1-8b"),
        ("moe", "mixtral-8x7b"),
    ] {
        let text = shipped("h100_sxm", operator);
        let damaged: String =
            text.lines()
                .map(|line| {
                    if line.starts_with('#') {
                        format!("{line}\n")
                    } else {
                        format!("{}\n", line.replace(' ', " NaN "))
                    }
                })
                .collect();
        let data = DataDir::new(operator, damaged.as_bytes());
        let options = Options { data_dir: Some(data.dir.path().to_path_buf()), ..Options::default() };
        let model = Model::find(model).expect("built in");
        let hardware = Hardware::find("h100").expect("built in");
        let error = StepModel::with_options(&model, &hardware, &Deployment::default(), &options).expect_err("NaN");
        let place = error.location().unwrap();
        let expected = (data.file.display().to_string(), Some("efficiency"));
        assert_eq!((place.path.clone(), place.key.as_deref()), expected, "{error}");
    }
}

#[test]
fn a_fault_in_a_table_that_is_not_needed_does_no_harm() {
    let data = DataDir::new("allreduce", b"nonsense");
    assert!(data.model(1).is_ok(), "one rank has no all-reduce");
    assert!(data.model(2).is_err());
}

#[test]
fn a_data_directory_without_tables_leaves_the_built_in_ones() {
    let built_in = on("h100", 4, None).expect("built in").estimate_unchecked(&batch());
    let empty = tempfile::tempdir().expect("a folder");
    assert_eq!(on("h100", 4, Some(empty.path())).expect("built in").estimate_unchecked(&batch()), built_in);
    let another_gpu = DataDir::new("allreduce", shipped("h100_sxm", "allreduce").as_bytes());
    let h200 = on("h200", 4, None).expect("built in").estimate_unchecked(&batch());
    assert_eq!(on("h200", 4, Some(another_gpu.dir.path())).expect("built in").estimate_unchecked(&batch()), h200);
    assert_eq!(another_gpu.model(4).expect("the same table").estimate_unchecked(&batch()), built_in);
}

#[test]
fn a_table_of_the_data_directory_replaces_the_built_in_one() {
    let halved: String = shipped("h100_sxm", "allreduce")
        .lines()
        .map(|line| match line.rsplit_once(',') {
            Some((point, values)) if line.starts_with("2,") => {
                let halves = split_values(values).map(|v| {
                    let (mark, digits) = v.strip_prefix('~').map_or(("", v), |digits| ("~", digits));
                    digits.parse::<f64>().map_or_else(|_| v.to_owned(), |percent| format!("{mark}{}", percent / 2.0))
                });
                format!("{point},{}\n", halves.collect::<Vec<_>>().join(" "))
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let data = DataDir::new("allreduce", halved.as_bytes());
    let all_reduce = |model: StepModel| {
        let step = model.estimate_unchecked(&batch());
        step.operators.iter().find(|o| o.name == "all_reduce").expect("four ranks").time_us
    };
    let (built_in, slower) =
        (all_reduce(on("h100", 4, None).expect("built in")), all_reduce(data.model(4).expect("halved")));
    assert!(is_rel(slower, 2.0 * built_in, REL_RESIDUAL_ROUNDING), "{slower} µs, twice {built_in} µs");
}

#[test]
fn only_a_table_that_is_not_there_is_a_missing_measurement() {
    let tables = Tables::new(&Hardware::find("h100").expect("built in"), &Engine::fitted(), None);
    let Err(missing) = tables.nearest(&GEMM, |_: &MatmulFormat| f64::INFINITY, 1, &[]) else {
        panic!("no series is at hand")
    };
    assert!(missing.kind() == ErrorKind::MissingTable);
    assert!(missing.to_string().contains("gemm") && missing.to_string().contains("h100_sxm"), "{missing}");
    let peak = Hardware::find("a100").expect("built in").peak_dense_flop_per_s(DType::Fp8);
    assert!(peak.expect_err("an A100 has no fp8").kind() != ErrorKind::MissingTable);
    assert!(Model::find("no-such-model").expect_err("no such model").kind() != ErrorKind::MissingTable);
    assert!(on("h100", 1, None).expect("built in").estimate(&[]).expect_err("empty").kind() != ErrorKind::MissingTable);
}
