//! One's own measurements.

use super::*;
use ridgepoint::model::{Recurrence, Window};
use ridgepoint::physics::StateKernel;
use ridgepoint::unstable::efficiency::family::HeadSize;
use ridgepoint::{DType, ErrorKind};

const GEMM: &str = "dtype,m,n,k,latency_us\n";
const PREFILL: &str = "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,num_scheduled_tokens,\
                       num_computed_tokens,latency_us\n";
const DECODE: &str = "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,kv_tokens_total,\
                      kv_tokens_max,latency_us\n";
const MOE: &str = "dtype,num_tokens,hidden_size,intermediate_size,top_k,num_experts,moe_tp_size,moe_ep_size,\
                   distribution,latency_us\n";

fn refused_rows(file: &str, header: &str, rows: &str) -> String {
    refused(&[(file, &format!("{header}{rows}"))])
}

fn bad_gemm(row: &str) -> Error {
    load(&[("gemm.csv", &format!("{GEMM}bfloat16,1,2,3,4.5\n{row}\n"))]).unwrap_err()
}

#[test]
fn every_kind_of_file_is_read_in_its_units() {
    let measurements = load(&[
        ("gemm.csv", "# taken by hand\n#\nlatency_us, k ,dtype,m,n\n4.5,3,fp8_block,1,2\n"),
        ("attention_prefill.csv", &format!("{PREFILL}32,8,128,fp8,0,2,512,1024,77\n")),
        ("attention_decode.csv", &format!("{DECODE}32,8,128,bfloat16,128,4,1000,700,9.25\n")),
        ("moe.csv", &format!("{MOE}int4_wo,64,7168,2048,8,384,1,8,power_law_1.2,300\n")),
        ("allreduce.csv", "num_gpus,message_bytes,backend,latency_us\n8,1048576,graph,21\n"),
        ("small_kernels.csv", "kernel,num_tokens,width,launches,latency_us\nrms_norm,16,4096,1,2.5\n"),
    ])
    .unwrap();
    let heads =
        |kv_dtype, window| Heads { num_heads: 32, num_kv_heads: 8, head_size: HeadSize::Plain(128), kv_dtype, window };
    let gemm = GemmCall { dtype: MatmulFormat::Fp8Block, m: 1, n: 2, k: 3 };
    assert_eq!(measurements.calls.gemm, [Timed { call: gemm, latency_us: 4.5, source: 0 }]);
    let prefill = PrefillCall {
        heads: heads(DType::Fp8, Window::Full),
        batch_size: 2,
        num_scheduled_tokens: 512,
        num_computed_tokens: 1024,
    };
    assert_eq!(measurements.calls.prefill, [Timed { call: prefill, latency_us: 77.0, source: 1 }]);
    let decode = DecodeCall {
        heads: heads(DType::Bfloat16, Window::Sliding(128)),
        batch_size: 4,
        kv_tokens_total: 1000,
        kv_tokens_max: 700,
    };
    assert!((decode.kv_tokens_mean() - 250.0).abs() < 1e-12);
    assert_eq!(measurements.calls.decode, [Timed { call: decode, latency_us: 9.25, source: 2 }]);
    let moe = MoeCall {
        dtype: MatmulFormat::Int4WeightOnly,
        num_tokens: 64,
        hidden_size: 7168,
        intermediate_size: 2048,
        top_k: 8,
        num_experts: 384,
        moe_tp_size: 1,
        moe_ep_size: 8,
        distribution: "power_law_1.2".into(),
    };
    assert_eq!(measurements.calls.moe, [Timed { call: moe, latency_us: 300.0, source: 3 }]);
    let allreduce = AllReduceCall { num_gpus: 8, message_bytes: 1_048_576, backend: AllReduceKind::Graph };
    assert_eq!(measurements.calls.all_reduce, [Timed { call: allreduce, latency_us: 21.0, source: 4 }]);
    let norm = SmallKernelCall { kernel: "rms_norm".into(), num_tokens: 16, width: 4096, launches: 1 };
    assert_eq!(measurements.calls.small_kernels, [Timed { call: norm, latency_us: 2.5, source: 5 }]);
    assert_eq!(measurements.sources.len(), 6);
    assert!(measurements.notes.is_empty());
}

#[test]
fn synonyms_whole_floats_and_other_columns_are_taken() {
    let rows = "BF16,1.0,2.0,3.0,4.5,x\nhalf,1,2,3,4.5,y\nfp8_e4m3,1,2,3,4.5,\n";
    let measurements = load(&[
        ("gemm.csv", &format!("dtype,m,n,k,latency_us,comment\n{rows}")),
        ("attention_prefill.csv", &format!("{PREFILL}32.0,8.0,128.0,float8_e4m3fn,0.0,2.0,512.0,0.0,77\n")),
    ])
    .unwrap();
    let formats: Vec<MatmulFormat> = measurements.calls.gemm.iter().map(|row| row.call.dtype).collect();
    assert_eq!(formats, [MatmulFormat::Bfloat16, MatmulFormat::Float16, MatmulFormat::Fp8]);
    assert_eq!(measurements.calls.prefill[0].call.heads.kv_dtype, DType::Fp8);
    let [note] = &measurements.notes[..] else { panic!("{:?}", measurements.notes) };
    assert!(note.ends_with("gemm.csv: columns that are not known, not read: comment"), "{note}");
}

#[test]
fn times_that_are_no_times_are_refused_with_row_and_column() {
    for time in ["NaN", "inf", "0", "-1", "", "4 us", "1e-400", "1e-308", "1e308"] {
        let error = load(&[("gemm.csv", &format!("# note\n{GEMM}bfloat16,1,2,3,4.5\nfp8,1,2,3,{time}\n"))]);
        let found = if time.is_empty() { "nothing" } else { time };
        let expected = format!("gemm.csv: row 2: column 'latency_us': found {found},");
        assert!(error.unwrap_err().to_string().contains(&expected), "{expected}");
    }
}

#[test]
fn sizes_that_are_no_sizes_are_refused() {
    for size in ["0", "-4", "1.5", "18446744073709551616", "9007199254740993", ""] {
        let error = bad_gemm(&format!("fp8,1,{size},3,4"));
        assert!(error.problems()[0].starts_with("row 2: column 'n': "), "{size}: {error}");
    }
}

#[test]
fn an_unknown_dtype_lists_the_known_ones() {
    let message = bad_gemm("fp9,1,2,3,4").to_string();
    assert!(message.contains("fp9") && message.contains("fp8_block"), "{message}");
}

#[test]
fn the_documented_dtypes_are_the_accepted_ones() {
    let message = bad_gemm("none,1,2,3,4").to_string();
    assert!(message.contains(columns::MATMUL_FORMATS), "{message}");
    for name in columns::MATMUL_FORMATS.split(", ") {
        assert_eq!(MatmulFormat::parse(name).unwrap().to_string(), name);
    }
}

#[test]
fn a_repeated_shape_names_both_rows() {
    let message = refused_rows("gemm.csv", GEMM, "fp8,1,2,3,4\nfp8,1,2,4,4\nfp8,1,2,3,5\n");
    assert!(message.contains("row 3") && message.contains("the shape of row 1"), "{message}");
}

#[test]
fn shapes_that_differ_in_one_column_are_not_repetitions() {
    let rows = "8,8,64,fp8,0,1,16,0,1\n8,8,64,fp8,16,1,16,0,1\n8,8,64,fp8,0,1,16,16,1\n8,8,64,bfloat16,0,1,16,0,1\n\
                8,4,64,fp8,0,1,16,0,1\n8,8,128,fp8,0,1,16,0,1\n8,8,64,fp8,0,2,16,0,1\n16,8,64,fp8,0,1,16,0,1\n";
    let measurements = load(&[("attention_prefill.csv", &format!("{PREFILL}{rows}"))]).unwrap();
    assert_eq!(measurements.calls.prefill.len(), 8);
}

#[test]
fn all_wrong_columns_are_named_in_one_error() {
    let message = refused(&[("gemm.csv", "dtype,m,n,kk,latency,m\nfp8,1,2,3,4,5\n")]);
    for part in ["'k' is missing", "'latency_us' is missing", "column 'kk' is not known", "'m' appears twice"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(message.contains("did you mean latency_us?"), "{message}");
}

#[test]
fn empty_files_are_refused() {
    for text in ["", "# only a comment\n"] {
        let message = refused(&[("gemm.csv", text)]);
        assert!(message.contains("gemm.csv") && message.contains("is empty"), "{message}");
    }
    assert!(refused(&[("gemm.csv", GEMM)]).contains("no rows"));
}

#[test]
fn a_row_of_the_wrong_length_names_its_line() {
    let message = refused_rows("gemm.csv", GEMM, "fp8,1,2,3,4\nfp8,1,2,3\n");
    assert!(message.contains("line 3: has 4 cells, the header has 5"), "{message}");
}

#[test]
fn a_file_that_is_not_text_is_refused() {
    let dir = folder(&[]);
    std::fs::write(dir.path().join("gemm.csv"), b"dtype,m,n,k,latency_us\n\xff\xfe,1,2,3,4\n").unwrap();
    let message = Measurements::load(dir.path()).unwrap_err().to_string();
    assert!(message.contains("line 2: is not UTF-8"), "{message}");
}

#[test]
fn a_known_name_that_is_a_folder_is_an_io_error() {
    let dir = folder(&[]);
    std::fs::create_dir(dir.path().join("gemm.csv")).unwrap();
    assert!(matches!(Measurements::load(dir.path()), Err(error) if error.kind() == ErrorKind::Io));
}

#[test]
fn heads_that_kv_heads_do_not_divide_are_refused() {
    let message = refused_rows("attention_prefill.csv", PREFILL, "32,6,128,fp8,0,2,512,0,77\n");
    assert!(message.contains("num_kv_heads") && message.contains("divisor of num_heads = 32"), "{message}");
}

#[test]
fn contexts_that_can_not_add_up_are_refused() {
    // Four requests, the longest of 700: from 700 + 3 · 1 to 4 · 700 tokens.
    for (total, possible) in [(702, false), (703, true), (2800, true), (2801, false)] {
        let text = format!("{DECODE}32,8,128,bfloat16,0,4,{total},700,9\n");
        assert_eq!(load(&[("attention_decode.csv", &text)]).is_ok(), possible, "{total}");
    }
}

#[test]
fn impossible_expert_shapes_are_refused() {
    for (row, column) in [
        ("fp8,64,7168,2048,9,8,1,1,balanced,300", "top_k"),
        ("fp8,64,7168,2048,2,8,1,3,balanced,300", "moe_ep_size"),
        ("fp8,64,7168,2048,2,8,3,1,balanced,300", "moe_tp_size"),
        ("fp8,64,7168,2048,2,8,1,1,power_law,300", "distribution"),
        ("fp8,64,7168,2048,2,8,1,1,power_law_nan,300", "distribution"),
    ] {
        let error = load(&[("moe.csv", &format!("{MOE}{row}\n"))]).unwrap_err();
        assert_eq!(error.location().and_then(|place| place.key.as_deref()), Some(column), "{row}: {error}");
    }
}

const STATE: &str = "recurrence,kernel,num_key_heads,num_heads,key_head_dim,head_dim,conv_kernel,batch_size,\
    num_scheduled_tokens,latency_us\n";

#[test]
fn kernels_of_layers_with_a_state_are_read_and_impossible_ones_refused() {
    let rows =
        load(&[("linear_attention.csv", &format!("{STATE}gated_delta_net,chunk_scan,16,64,128,128,4,2,512,41.3\n"))]);
    let call = StateCall {
        recurrence: Recurrence::GatedDeltaNet,
        kernel: StateKernel::ChunkScan,
        num_key_heads: 16,
        num_heads: 64,
        key_head_dim: 128,
        head_dim: 128,
        conv_kernel: 4,
        batch_size: 2,
        num_scheduled_tokens: 512,
    };
    assert_eq!(rows.unwrap().calls.state, [Timed { call, latency_us: 41.3, source: 0 }]);
    for (row, column) in [
        ("delta_net,chunk_scan,16,64,128,128,4,2,512,41.3", "recurrence"),
        ("gated_delta_net,scan,16,64,128,128,4,2,512,41.3", "kernel"),
        ("gated_delta_net,chunk_scan,16,24,128,128,4,2,512,41.3", "num_key_heads"),
        ("mamba2,state_update,8,64,128,64,4,2,512,41.3", "num_scheduled_tokens"),
        ("mamba2,state_update,8,64,128,64,4,0,1,41.3", "batch_size"),
    ] {
        let error = load(&[("linear_attention.csv", &format!("{STATE}{row}\n"))]).unwrap_err();
        assert_eq!(error.location().and_then(|place| place.key.as_deref()), Some(column), "{row}: {error}");
    }
}

#[test]
fn an_all_reduce_of_one_gpu_is_refused() {
    let message = refused(&[("allreduce.csv", "num_gpus,message_bytes,backend,latency_us\n1,4,graph,2\n")]);
    assert!(message.contains("num_gpus") && message.contains("at least 2"), "{message}");
}

#[test]
fn a_byte_order_mark_before_the_header_is_no_part_of_it() {
    assert_eq!(load(&[("gemm.csv", &format!("\u{feff}{GEMM}fp8,1,2,3,4\n"))]).unwrap().calls.gemm.len(), 1);
}
