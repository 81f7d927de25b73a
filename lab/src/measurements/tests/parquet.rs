//! Public tables, written here with a few invented rows.

use ridgepoint::ErrorKind;
use std::sync::Arc;

use ::parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;

use super::*;
use ridgepoint::model::Window;
use ridgepoint::physics::communication::Collective;

/// A column to be written; `None` is a cell without a value.
enum Values {
    Text(Vec<&'static str>),
    Integer(Vec<i64>),
    Float(Vec<Option<f64>>),
}
use Values::{Float, Integer, Text};

/// A snappy parquet file of one row group with dictionaries, as the public tables are.
fn parquet(columns: &[(&str, Values)]) -> Vec<u8> {
    parquet_with(columns, true, Compression::SNAPPY)
}

fn parquet_with(columns: &[(&str, Values)], dictionary: bool, codec: Compression) -> Vec<u8> {
    let fields: Vec<String> = columns
        .iter()
        .map(|(name, values)| match values {
            Text(_) => format!("optional binary {name} (UTF8);"),
            Integer(_) => format!("optional int64 {name};"),
            Float(_) => format!("optional double {name};"),
        })
        .collect();
    let schema = parse_message_type(&format!("message schema {{ {} }}", fields.concat())).unwrap();
    let properties = WriterProperties::builder().set_compression(codec).set_dictionary_enabled(dictionary).build();
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, Arc::new(schema), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, values) in columns {
        let mut column = group.next_column().unwrap().unwrap();
        match values {
            Text(values) => {
                let bytes: Vec<ByteArray> = values.iter().map(|text| ByteArray::from(*text)).collect();
                let levels = vec![1; values.len()];
                column.typed::<ByteArrayType>().write_batch(&bytes, Some(&levels), None).unwrap();
            }
            Integer(values) => {
                let levels = vec![1; values.len()];
                column.typed::<Int64Type>().write_batch(values, Some(&levels), None).unwrap();
            }
            Float(values) => {
                let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
                let present: Vec<f64> = values.iter().flatten().copied().collect();
                column.typed::<DoubleType>().write_batch(&present, Some(&levels), None).unwrap();
            }
        }
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    file
}

/// The columns that all public tables share, for `rows` rows of one operator.
fn public(op_name: &'static str, rows: usize) -> Vec<(&'static str, Values)> {
    vec![
        ("framework", Text(vec!["vLLM"; rows])),
        ("version", Text(vec!["0.0.1"; rows])),
        ("device", Text(vec!["NVIDIA Imaginary"; rows])),
        ("op_name", Text(vec![op_name; rows])),
        ("kernel_source", Text(vec!["kernel_a"; rows])),
    ]
}

fn gemm(m: Vec<i64>, latency_ms: Vec<Option<f64>>) -> Vec<(&'static str, Values)> {
    let rows = m.len();
    let mut columns = public("gemm", rows);
    columns.extend([
        ("gemm_dtype", Text(vec!["fp8"; rows])),
        ("m", Integer(m)),
        ("n", Integer(vec![2; rows])),
        ("k", Integer(vec![3; rows])),
        ("latency", Float(latency_ms)),
    ]);
    columns
}

fn load_bytes(name: &str, bytes: &[u8]) -> Result<Measurements> {
    let dir = folder(&[]);
    std::fs::write(dir.path().join(name), bytes).unwrap();
    Measurements::load(dir.path())
}

fn load_columns(name: &str, columns: &[(&str, Values)]) -> Result<Measurements> {
    load_bytes(name, &parquet(columns))
}

#[test]
fn milliseconds_become_microseconds_and_sources_are_distinguished() {
    let mut columns = gemm(vec![1, 1, 4], vec![Some(0.25), Some(0.5), Some(2.0)]);
    columns[4].1 = Text(vec!["kernel_a", "kernel_b", "kernel_a"]);
    let measurements = load_columns("gemm_perf.parquet", &columns).unwrap();
    let rows: Vec<(u64, f64, usize)> =
        measurements.calls.gemm.iter().map(|r| (r.call.m, r.latency_us, r.source)).collect();
    assert_eq!(rows, [(1, 250.0, 0), (1, 500.0, 1), (4, 2000.0, 0)]);
    assert_eq!(measurements.calls.gemm[0].call.dtype, MatmulFormat::Fp8);
    assert_eq!(measurements.sources[1].kernel_source.as_deref(), Some("kernel_b"));
    assert_eq!(measurements.sources[1].file, "gemm_perf.parquet");
    assert_eq!(measurements.devices(), ["NVIDIA Imaginary"]);
}

#[test]
fn a_repeated_shape_keeps_its_median_and_is_noted() {
    let columns = gemm(vec![1, 4, 1, 1, 5, 5], [2.0, 9.0, 1.0, 16.0, 1.0, 4.0].map(Some).to_vec());
    let measurements = load_columns("gemm_perf.parquet", &columns).unwrap();
    let rows: Vec<(u64, f64)> = measurements.calls.gemm.iter().map(|r| (r.call.m, r.latency_us)).collect();
    assert_eq!(rows, [(1, 2000.0), (4, 9000.0), (5, 2500.0)]);
    assert_eq!(measurements.notes.len(), 1);
    let note = &measurements.notes[0];
    assert!(note.contains("2 shapes") && note.contains("5 rows"), "{note}");
}

#[test]
fn impossible_cells_of_a_public_table_are_refused() {
    for (time, found) in [(Some(f64::NAN), "NaN"), (Some(0.0), "0"), (Some(-1.0), "-1"), (None, "nothing")] {
        let error = load_columns("gemm_perf.parquet", &gemm(vec![1, 2], vec![Some(1.0), time])).unwrap_err();
        assert!(error.problems()[0].starts_with(&format!("row 2: column 'latency': found {found},")), "{error}");
    }
    let error = load_columns("gemm_perf.parquet", &gemm(vec![1, -7], vec![Some(1.0); 2])).unwrap_err();
    assert!(error.problems()[0].starts_with("row 2: column 'm': found -7,"), "{error}");
}

#[test]
fn absorbed_projections_of_a_public_table_name_their_sides() {
    let columns = |side: &'static str| {
        [
            ("bmm_dtype", Text(vec!["bfloat16"])),
            ("op_name", Text(vec![side])),
            ("num_heads", Integer(vec![16])),
            ("num_tokens", Integer(vec![3])),
            ("latency", Float(vec![Some(0.005)])),
            ("framework", Text(vec!["VLLM"])),
            ("version", Text(vec!["0.24.0"])),
            ("device", Text(vec!["NVIDIA Imaginary"])),
            ("kernel_source", Text(vec!["torch_bmm"])),
        ]
    };
    // Inputs of 128 meet the latent space of 512 before attention, and leave it behind.
    for (side, n, k) in [("mla_gen_pre", 512, 128), ("mla_gen_post", 128, 512)] {
        let measurements = load_columns("mla_bmm_perf.parquet", &columns(side)).unwrap();
        let call = BatchedGemmCall { dtype: MatmulFormat::Bfloat16, copies: 16, m: 3, n, k };
        assert_eq!(measurements.calls.batched_gemm, [Timed { call, latency_us: 5.0, source: 0 }]);
    }
    let error = load_columns("mla_bmm_perf.parquet", &columns("mla_gen")).unwrap_err();
    assert_eq!(error.location().and_then(|place| place.key.as_deref()), Some("op_name"), "{error}");
}

#[test]
fn a_column_that_could_be_part_of_the_shape_is_not_ignored() {
    let mut columns = gemm(vec![1], vec![Some(1.0)]);
    columns.push(("bias", Integer(vec![1])));
    let message = load_columns("gemm_perf.parquet", &columns).unwrap_err().to_string();
    assert!(message.contains("column 'bias' is not known"), "{message}");
    let mut columns = gemm(vec![1], vec![Some(1.0)]);
    columns.push(("power", Float(vec![Some(700.0)])));
    assert!(load_columns("gemm_perf.parquet", &columns).is_ok());
}

#[test]
fn a_table_under_the_name_of_another_is_refused() {
    let mut columns = gemm(vec![1], vec![Some(1.0)]);
    columns[3].1 = Text(vec!["bmm"]);
    let message = load_columns("gemm_perf.parquet", &columns).unwrap_err().to_string();
    assert!(message.contains("op_name") && message.contains("found bmm"), "{message}");
}

fn attention(op_name: &'static str, isl: i64, step: i64) -> Vec<(&'static str, Values)> {
    let mut columns = public(op_name, 1);
    columns.extend([
        ("batch_size", Integer(vec![2])),
        ("isl", Integer(vec![isl])),
        ("num_heads", Integer(vec![8])),
        ("num_key_value_heads", Integer(vec![4])),
        ("head_dim", Integer(vec![64])),
        ("beam_width", Integer(vec![1])),
        ("attn_dtype", Text(vec!["bfloat16"])),
        ("kv_cache_dtype", Text(vec!["fp8"])),
        ("step", Integer(vec![step])),
        ("latency", Float(vec![Some(0.01)])),
    ]);
    columns
}

#[test]
fn a_decode_reads_its_cache_and_the_new_token() {
    let mut columns = attention("generation_attention", 1, 1023);
    columns.push(("window_size", Integer(vec![128])));
    let row = load_columns("generation_attention_perf.parquet", &columns).unwrap().calls.decode[0].call.clone();
    assert_eq!((row.kv_tokens_mean(), row.kv_tokens_max, row.heads.window), (1024.0, 1024, Window::Sliding(128)));
    let error =
        load_columns("generation_attention_perf.parquet", &attention("generation_attention", 2, 9)).unwrap_err();
    assert_eq!(error.location().and_then(|place| place.key.as_deref()), Some("isl"), "{error}");
}

#[test]
fn a_prefill_without_a_window_column_is_full_attention() {
    let row =
        load_columns("context_attention_perf.parquet", &attention("context_attention", 512, 0)).unwrap().calls.prefill
            [0]
        .call
        .clone();
    assert_eq!((row.num_scheduled_tokens, row.num_computed_tokens, row.heads.window), (512, 0, Window::Full));
    assert_eq!(row.heads.kv_dtype, ridgepoint::DType::Fp8);
}

#[test]
fn a_message_of_nccl_counts_elements_of_its_format() {
    let read = |dtype, name| {
        let mut columns: Vec<(&str, Values)> = public(name, 1);
        columns.retain(|(column, _)| *column != "kernel_source");
        columns.extend([
            ("kernel_source", Text(vec!["NCCL"])),
            ("nccl_dtype", Text(vec![dtype])),
            ("num_gpus", Integer(vec![4])),
            ("message_size", Integer(vec![1000])),
            ("latency", Float(vec![Some(0.0125)])),
        ]);
        load_columns("nccl_perf.parquet", &columns)
    };
    let half = read("half", "all_gather").unwrap();
    let call = |message_bytes| ExchangeCall { collective: Collective::AllGather, num_gpus: 4, message_bytes };
    assert_eq!((&half.calls.exchange[0].call, half.calls.exchange[0].latency_us), (&call(2000), 12.5));
    assert_eq!(read("int8", "all_gather").unwrap().calls.exchange[0].call, call(1000));
    let error = read("half", "broadcast").unwrap_err();
    assert_eq!(error.location().and_then(|place| place.key.as_deref()), Some("op_name"), "{error}");
}

#[test]
fn quantised_tokens_are_a_small_kernel() {
    let mut columns = public("scale_matrix", 2);
    columns.extend([
        ("m", Integer(vec![16, 16])),
        ("k", Integer(vec![4096, 4096])),
        ("quant_dtype", Text(vec!["fp8", "int8"])),
        ("latency", Float(vec![Some(0.002), Some(0.5)])),
    ]);
    let measurements = load_columns("scale_matrix_perf.parquet", &columns).unwrap();
    let [row] = &measurements.calls.small_kernels[..] else { panic!("one row is fp8's: {measurements:?}") };
    let call = SmallKernelCall { kernel: "quantise_fp8".to_owned(), num_tokens: 16, width: 4096, launches: 1 };
    assert_eq!((&row.call, row.latency_us), (&call, 2.0));
}

#[test]
fn an_all_reduce_counts_elements_of_two_bytes() {
    let mut columns = public("all_reduce", 1);
    columns.extend([
        ("allreduce_dtype", Text(vec!["bfloat16"])),
        ("num_gpus", Integer(vec![2])),
        ("message_size", Integer(vec![128])),
        ("latency", Float(vec![Some(0.005)])),
        ("backend", Text(vec!["vllm_eager"])),
    ]);
    let row = load_columns("custom_allreduce_perf.parquet", &columns).unwrap().calls.all_reduce[0].call.clone();
    assert_eq!((row.message_bytes, row.backend), (256, AllReduceKind::Eager));
}

#[test]
fn experts_carry_their_kernel() {
    let mut columns = public("moe", 1);
    columns.extend([
        ("moe_dtype", Text(vec!["int4_wo"])),
        ("num_tokens", Integer(vec![16])),
        ("hidden_size", Integer(vec![64])),
        ("inter_size", Integer(vec![32])),
        ("topk", Integer(vec![2])),
        ("num_experts", Integer(vec![8])),
        ("moe_tp_size", Integer(vec![1])),
        ("moe_ep_size", Integer(vec![4])),
        ("distribution", Text(vec!["balanced"])),
        ("latency", Float(vec![Some(0.02)])),
    ]);
    let measurements = load_columns("moe_perf.parquet", &columns).unwrap();
    assert_eq!(measurements.sources[0].kernel_source.as_deref(), Some("kernel_a"));
    let row = &measurements.calls.moe[0].call;
    assert_eq!((row.top_k, row.intermediate_size, row.distribution.as_str()), (2, 32, "balanced"));
}

#[test]
fn a_table_cut_anywhere_is_an_error() {
    let bytes = parquet(&gemm(vec![1, 2], vec![Some(1.0); 2]));
    for length in 0..bytes.len() {
        let error = load_bytes("gemm_perf.parquet", &bytes[..length]).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{length} bytes: {error}");
    }
}

#[test]
fn a_footer_that_claims_elements_without_bytes_is_refused_at_once() {
    // Field 1 is a map of 2^34 switches. The crate's decoder would count them all.
    let footer = b"\x1b\x80\x80\x80\x80\x40\x12";
    let mut bytes = b"PAR1".to_vec();
    bytes.extend(footer);
    bytes.extend([footer.len() as u8, 0, 0, 0]);
    bytes.extend(b"PAR1");
    let message = load_bytes("gemm_perf.parquet", &bytes).unwrap_err().to_string();
    assert!(message.contains("its footer is damaged"), "{message}");
}

#[test]
fn pages_of_every_codec_are_read() {
    let columns = gemm(vec![1, 2], vec![Some(1.0); 2]);
    let rows_of =
        |codec| load_bytes("gemm_perf.parquet", &parquet_with(&columns, true, codec)).unwrap().calls.gemm.to_vec();
    let plain = rows_of(Compression::UNCOMPRESSED);
    assert_eq!(plain.len(), 2);
    for codec in [
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4_RAW,
    ] {
        assert_eq!(rows_of(codec), plain, "{codec}");
    }
}

#[test]
fn a_table_without_rows_is_refused() {
    let message = load_columns("gemm_perf.parquet", &gemm(vec![], vec![])).unwrap_err().to_string();
    assert!(message.contains("no rows"), "{message}");
}

#[test]
fn a_changed_byte_never_panics() {
    let dir = folder(&[]);
    let file = dir.path().join("gemm_perf.parquet");
    for dictionary in [true, false] {
        let bytes = parquet_with(&gemm(vec![1, 2], vec![Some(1.0); 2]), dictionary, Compression::SNAPPY);
        assert!(load_bytes("gemm_perf.parquet", &bytes).is_ok());
        for position in 0..bytes.len() {
            // Every other mask was tried once too; these turned encodings, lengths and offsets.
            for mask in [0x08, 0x10, 0x55] {
                let mut damaged = bytes.clone();
                damaged[position] ^= mask;
                std::fs::write(&file, &damaged).unwrap();
                let read = std::panic::catch_unwind(|| Measurements::load(dir.path()).is_ok());
                assert!(read.is_ok(), "dictionary {dictionary}: byte {position} changed by {mask:#x}");
            }
        }
    }
}

#[test]
fn a_certificate_beside_public_tables_alone_is_noted_as_not_theirs() {
    let dir = folder(&[("meta.toml", "device = \"NVIDIA Other\"\n")]);
    let columns = gemm(vec![1], vec![Some(0.25)]);
    std::fs::write(dir.path().join("gemm_perf.parquet"), parquet(&columns)).unwrap();
    let measurements = Measurements::load(dir.path()).unwrap();
    assert_eq!(measurements.devices(), ["NVIDIA Imaginary"]);
    assert_eq!(measurements.notes.len(), 1);
    assert!(measurements.notes[0].contains("meta.toml: is about csv files"), "{}", measurements.notes[0]);
    std::fs::write(dir.path().join("meta.toml"), "kind = \"not a measurement\"\n").unwrap();
    assert!(matches!(Measurements::load(dir.path()), Err(error) if error.kind() == ErrorKind::Invalid));
}
