//! A closed-loop file: one row per measured server, with a fixed number of requests in flight. Files of launch commands may come with it.

use std::collections::BTreeMap;
use std::path::Path;

use super::closed_loop_launch::{Launch, Launches};
use crate::measured_time::MILLISECONDS;
use ridgepoint::input::{FileKind, Input};
use ridgepoint::unstable::error::cut;
use ridgepoint::{DType, Error, Location, Result};
use ridgepoint_replay::input::{Columns, Row, RowReader, head};

const COLUMNS: Columns = Columns {
    optional: "kv_cache_dtype",
    ..Columns::exactly(
        "id,backend,backend_version,model_path,system,precision,isl,osl,gemm_quant_mode,moe_quant_mode,\
            concurrency,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,ttft_ms,tpot_ms",
    )
};

/// Beginnings of columns that describe only the workers of one phase.
const PHASES: [&str; 2] = ["prefill_", "decode_"];

/// A server at a fixed concurrency, and what its clients saw.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedLoopRow {
    /// Name of the row.
    pub id: String,
    /// Serving engine.
    pub backend: String,
    /// Its version; `None` where the row has none.
    pub backend_version: Option<String>,
    /// Hugging Face id of the model.
    pub model_path: String,
    /// The GPU.
    pub system: String,
    /// Number format of the whole, as `fp8`; empty where the checkpoint's own.
    pub precision: String,
    /// Prompt tokens.
    pub isl: u32,
    /// Output tokens.
    pub osl: u32,
    /// Number format of dense matrices; empty where the checkpoint's own.
    pub gemm_quant_mode: String,
    /// Number format of experts; empty where the checkpoint's own.
    pub moe_quant_mode: String,
    /// Requests in flight per replica.
    pub concurrency: u32,
    /// Ranks that share every layer.
    pub tp_size: u32,
    /// Stages.
    pub pp_size: u32,
    /// Replicas of the attention part; 1 where the row has none.
    pub attention_dp_size: u32,
    /// Ranks that share every expert; `None` where the row has none, or 0.
    pub moe_tp_size: Option<u32>,
    /// Ranks that the experts are spread over; `None` where the row has none, or 0.
    pub moe_ep_size: Option<u32>,
    /// Format of the KV cache; `Some(None)` is `auto`, and `None` a row that does not say it.
    pub kv_cache_dtype: Option<Option<DType>>,
    /// Launch arguments of the server; `None` if no file has its command.
    pub launch: Option<Launch>,
    /// Measured mean time to first token, ms.
    pub ttft_ms: f64,
    /// Measured mean time per output token after the first, ms.
    pub tpot_ms: f64,
}

/// Reads closed-loop files one after the other. Files with a column `config_key`, in any place, name the launch commands of rows: `id`,
/// `config_key` and `image` of rows, and `config_key`, `image`, `framework`, `launch` and `config_files` of configurations.
///
/// # Errors
/// `ErrorKind::Io`, `ErrorKind::Parse` for columns that are missing or not known, for columns of servers that prefill and decode on
/// separate workers and for a file without rows, `ErrorKind::BadRow` for a cell that is no number of its kind, and for an id that was
/// there before.
pub fn read_closed_loop(paths: &[impl AsRef<Path>]) -> Result<Vec<ClosedLoopRow>> {
    let mut rows = Vec::new();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut launches = Launches::default();
    for path in paths {
        let input = Input::open(FileKind::ClosedLoop, path.as_ref())?;
        if let Some(columns) = Launches::columns_of(&head(input.head()).names) {
            launches.add(&mut RowReader::csv(input, columns)?, columns)?;
            continue;
        }
        refuse_separate_workers(&input)?;
        let mut reader = RowReader::csv(input, COLUMNS)?;
        let origin = reader.origin().to_owned();
        let before = rows.len();
        while let Some(row) = reader.next_row()? {
            let read = ClosedLoopRow::read(&row)?;
            let place = format!("row {} of {origin}", row.row_number());
            if let Some(earlier) = known.insert(read.id.clone(), place) {
                return Err(row.bad("id", format!("an id that no other row has; {earlier} has it too")));
            }
            rows.push(read);
        }
        if rows.len() == before {
            let message = "has no rows below its header".to_owned();
            return Err(Error::parse(origin, message));
        }
    }
    for row in &mut rows {
        row.launch = launches.of(&row.id, &row.backend, row.concurrency);
    }
    Ok(rows)
}

/// Refuses a file whose rows have workers of their own for each phase: the replayed engine does both phases on the same GPUs.
fn refuse_separate_workers(input: &Input<'_>) -> Result<()> {
    let names = head(input.head()).names;
    let of_phase = |name: &&String| PHASES.iter().any(|phase| name.starts_with(phase));
    let Some(first) = names.iter().find(of_phase) else { return Ok(()) };
    let message = format!(
        "rows of servers whose prefill and decode run on separate workers are not modelled here, and columns that begin with {} \
         describe such workers; '{}' is one of {}: give rows of servers that do both on the same GPUs, as *_agg.csv files hold, \
         with concurrency and tp_size",
        PHASES.join(" or "),
        cut(first),
        names.iter().filter(of_phase).count()
    );
    Err(Error::parse(Location::of(input.origin()).key(first), message))
}

/// Arguments that a launch command has for the most requests of each point.
const OF_EACH_POINT: [&str; 6] = [
    "max_num_seqs",
    "max_running_requests",
    "cuda_graph_max_bs",
    "cuda_graph_config.max_batch_size",
    "max_batch_size",
    "scheduler_recv_interval",
];

impl ClosedLoopRow {
    fn read(row: &Row<'_>) -> Result<Self> {
        let filled = |column: &str, expected: &str| row.read(column, expected, |text| Some(text.to_owned()));
        let text = |column: &str| row.text(column).unwrap_or_default().into_owned();
        let count = |column: &str| row.whole(column, 1..=u32::MAX);
        let optional = |column: &str| {
            let ranks = row.optional(column, |row, column| row.whole(column, 0..=u32::MAX))?;
            Ok::<_, Error>(ranks.filter(|ranks| *ranks > 0))
        };
        let time_ms = |column: &str| row.number(column, MILLISECONDS);
        Ok(ClosedLoopRow {
            id: filled("id", "a name of the row")?,
            backend: filled("backend", "a serving engine, as vllm")?,
            backend_version: row.text("backend_version").map(|version| version.into_owned()),
            model_path: filled("model_path", "a model, as meta-llama/Llama-3.1-70B")?,
            system: filled("system", "a GPU, as h100_sxm")?,
            precision: text("precision"),
            isl: count("isl")?,
            osl: count("osl")?,
            gemm_quant_mode: text("gemm_quant_mode"),
            moe_quant_mode: text("moe_quant_mode"),
            concurrency: count("concurrency")?,
            tp_size: count("tp_size")?,
            pp_size: count("pp_size")?,
            attention_dp_size: optional("attention_dp_size")?.unwrap_or(1),
            moe_tp_size: optional("moe_tp_size")?,
            moe_ep_size: optional("moe_ep_size")?,
            kv_cache_dtype: row.optional("kv_cache_dtype", |row, column| {
                row.read(column, "auto, fp8, bfloat16 or float16", DType::parse_or_auto)
            })?,
            launch: None,
            ttft_ms: time_ms("ttft_ms")?,
            tpot_ms: time_ms("tpot_ms")?,
        })
    }

    /// Everything but the name, the number of requests in flight and what was measured.
    pub fn curve(&self) -> String {
        let (id, (ttft_ms, tpot_ms)) = (String::new(), (0.0, 0.0));
        let mut launch = self.launch.clone();
        // A server is launched for the most requests of each point.
        if let Some(launch) = &mut launch {
            OF_EACH_POINT.iter().for_each(|name| drop(launch.arguments.remove(*name)));
        }
        format!("{:?}", ClosedLoopRow { id, concurrency: 0, launch, ttft_ms, tpot_ms, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{HEADER, read_text};
    use ridgepoint::DType;

    const GOOD: &str = "a,vllm,0.12.0,Qwen/Qwen3-8B,h100_sxm,,1024,128,,,16.0,1.0,1.0,,1.0,0.0,84.5,16.25\n";

    #[track_caller]
    fn refused(text: &str, said: &[&str]) {
        let message = read_text(text).expect_err("refused").to_string();
        for part in said {
            assert!(message.contains(part), "'{part}' is not in: {message}");
        }
    }

    #[test]
    fn counts_may_be_written_with_a_point() {
        let rows = read_text(&format!("{HEADER}{GOOD}")).expect("read");
        let row = &rows[0];
        assert_eq!((row.concurrency, row.tp_size, row.attention_dp_size), (16, 1, 1));
        assert_eq!((row.moe_tp_size, row.moe_ep_size), (Some(1), None));
        assert_eq!(row.backend_version.as_deref(), Some("0.12.0"));
    }

    #[test]
    fn bad_cells_are_named_by_row_and_column() {
        let with = |from: &str, to: &str| {
            format!("{HEADER}{GOOD}{}", GOOD.replacen("a,vllm", "b,vllm", 1).replacen(from, to, 1))
        };
        refused(&with(",16.0,", ",16.5,"), &["loops.csv", "row 2", "'concurrency'", "found 16.5"]);
        refused(&with(",16.0,", ",0,"), &["row 2", "'concurrency'", "found 0"]);
        refused(&with(",84.5,", ",,"), &["row 2", "'ttft_ms'", "found nothing", "a number from 1e-6 to 1e9 ms"]);
        for time in ["NaN", "1e-308", "1e300"] {
            refused(&with(",16.25", &format!(",{time}")), &["row 2", "'tpot_ms'", "found"]);
        }
        refused(&with("h100_sxm", ""), &["row 2", "'system'", "found nothing"]);
        refused(&with(",1024,", ",-1,"), &["row 2", "'isl'", "found -1"]);
        refused(&with("b,vllm", "a,vllm"), &["row 2", "'id'", "found a", "row 1 of"]);
        refused(&with("b,vllm", "b,vllm,x"), &["line 3: has 19 cells, the header has 18"]);
    }

    #[test]
    fn workers_of_one_phase_are_refused_by_their_columns() {
        let header = HEADER.replace("concurrency,tp_size", "prefill_tp_size,decode_batch_size");
        let error = read_text(&header).expect_err("refused");
        assert_eq!(error.location().and_then(|place| place.key.as_deref()), Some("prefill_tp_size"));
        refused(&header, &["loops.csv: ", "separate workers", "'prefill_tp_size' is one of 2", "*_agg.csv"]);
        refused(&HEADER.replace("isl", "prefills"), &["column 'prefills' is not known"]);
    }

    #[test]
    fn the_format_of_the_cache_may_be_given() {
        let header = HEADER.replace(",ttft_ms", ",kv_cache_dtype,ttft_ms");
        let read = |cell: &str| read_text(&format!("{header}{}", GOOD.replace(",84.5", &format!(",{cell},84.5"))));
        let format = |cell: &str| read(cell).expect("read")[0].kv_cache_dtype;
        assert_eq!((format(""), format("auto"), format("fp8")), (None, Some(None), Some(Some(DType::Fp8))));
        let message = read("fp7").expect_err("no such format").to_string();
        assert!(message.contains("'kv_cache_dtype'") && message.contains("found fp7"), "{message}");
    }

    #[test]
    fn files_of_another_shape_are_refused() {
        refused(HEADER, &["has no rows"]);
        refused("id,backend\na,vllm\n", &["'ttft_ms' is missing"]);
        refused(&HEADER.replace("ttft_ms", "ttft_s"), &["'ttft_s' is not known", "'ttft_ms' is missing"]);
    }
}
