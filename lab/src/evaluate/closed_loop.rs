//! Turns the rows of a closed-loop file into cases.
//!
//! Without a launch argument, the engine's default holds, with these exceptions. A step of TensorRT-LLM has room for one prompt and all
//! decodes, and so has one of vLLM, except in InferenceX's scenarios, where it has 8,192 tokens. KV caches on Blackwell are fp8.
//! `max_model_len` is the length of the longest request. A run has [`REQUESTS_PER_SLOT`] requests for each in flight, and all count, the
//! burst at the start included.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use super::case::{Case, MAX_MEMORY_GIB, Rooflines};
use super::changed_loop::{LoopClient, varying};
use super::closed_loop_row::ClosedLoopRow;
use super::fold::Labels;
use super::measured::{Measured, WHOLE_RUN};
use super::metric::Metric;
use super::report::{Skipped, sort_out};
use super::weight_variant::{has_experts, model_of};
use ridgepoint::hardware::Architecture;
use ridgepoint::{DType, Deployment, Engine, Error, Hardware, Model, Result};
use ridgepoint_replay::server_config::{Beside, ServedEngine, ServerConfig};
use ridgepoint_replay::workload::{ClosedLoop, RequestShape, Workload, check_memory};
use serde_json::{Map, Value};

/// The serving engine whose scheduler is replayed.
const REPLAYED_BACKEND: &str = "vllm";
/// vLLM's default for its server on GPUs of 70 GiB or more; a row with more in flight gets so many.
///
/// # Source
/// vLLM, `EngineArgs.get_batch_defaults` (`vllm/engine/arg_utils.py`).
const MAX_NUM_SEQS: u32 = 1024;
/// vLLM's default for its server on GPUs of 70 GiB or more.
const MAX_NUM_BATCHED_TOKENS: u32 = 8192;
/// Requests of a run for each one in flight.
pub const REQUESTS_PER_SLOT: u64 = 10;

/// The rows that can be run as cases, and the others with their reasons; both in order. Rows of all serving engines are run if
/// `backends` names none, each by the rules of its engine. Files of `data_dir` come before the built-in ones.
pub fn closed_loop_cases(
    rows: &[ClosedLoopRow],
    backends: &[String],
    data_dir: Option<&Path>,
) -> (Vec<Case>, Vec<Skipped>) {
    let mut made = BTreeMap::new();
    let case = |row: &ClosedLoopRow| {
        if !backends.is_empty() && !backends.contains(&row.backend) {
            let reason = format!("is not among the requested {}", backends.join(", "));
            return Err(Error::invalid_argument("backend", &row.backend, reason));
        }
        case(row, data_dir, &mut made)
    };
    let names = rows.iter().map(|row| row.id.clone());
    sort_out(names.zip(rows.iter().map(case)))
}

/// The case of a row. Deployments that rows have in common are compiled once and kept in `made`.
fn case(row: &ClosedLoopRow, data_dir: Option<&Path>, made: &mut BTreeMap<String, Rooflines>) -> Result<Case> {
    if row.osl < 2 {
        return Err(Error::invalid_argument("osl", "1", "a single token has no time per output token"));
    }
    let (model, mut notes) = model_of(row, data_dir)?;
    let hardware = ridgepoint_replay::find_hardware(data_dir, &row.system)?;
    let launched = engine(row);
    let server = server_of(row, &launched, &mut notes)?;
    let deployment = deployment(row, &model, &server)?;
    let kv_cache_dtype = kv_cache_dtype(row, &hardware, &deployment);
    if row.kv_cache_dtype.is_none() && row.launch.is_none() && kv_cache_dtype.is_some() {
        notes.push("kv_cache_dtype is not given, taken as fp8".to_owned());
    }
    let max_model_len = Some(row.isl.saturating_add(row.osl));
    let mut server = ServerConfig { deployment: Deployment { kv_cache_dtype, max_model_len, ..deployment }, ..server };
    server.given.extend(["max_model_len", "kv_cache_dtype"].map(str::to_owned));
    let ServedEngine { config: engine, deployment, notes: of_engine, .. } =
        server.engine_config(&model, &hardware, &launched)?;
    notes.extend(of_engine);
    let deployment = Deployment { max_model_len: None, ..deployment };
    let key = format!("{} {} {launched} {deployment:?}", model.name, hardware.name);
    let rooflines = match made.entry(key) {
        Entry::Occupied(known) => known.get().clone(),
        Entry::Vacant(place) => {
            place.insert(Rooflines::new(&model, &hardware, &deployment, &launched, data_dir)?).clone()
        }
    };
    notes.extend(rooflines.calibrated.steps().notes());

    let num_requests = REQUESTS_PER_SLOT * u64::from(row.concurrency);
    check_memory(num_requests, 1, MAX_MEMORY_GIB)?;
    let client = LoopClient::by_scenario(row.isl, row.osl);
    let equal = ClosedLoop::new(row.concurrency, num_requests, RequestShape::new(row.isl, row.osl))?;
    Ok(Case {
        labels: Labels {
            name: row.id.clone(),
            model: model.name.clone(),
            hardware: hardware.name.clone(),
            tensor_parallel_size: row.tp_size,
            workload: Some(format!("{} in, {} out", row.isl, row.osl)),
            backend_version: version(row),
        },
        measured: Measured::new([
            ((WHOLE_RUN, Metric::TTFT_MEAN), row.ttft_ms),
            ((WHOLE_RUN, Metric::TPOT_MEAN), row.tpot_ms),
        ]),
        engine,
        rooflines,
        load: Box::new(move |seed| -> Box<dyn Workload + Send> { Box::new(varying(equal.clone(), client, seed)) }),
        client_us: client.request_us(),
        concurrency: vec![Some(row.concurrency)],
        curve: Some(row.curve()),
        notes,
    })
}

fn version(row: &ClosedLoopRow) -> Option<String> {
    if row.backend == REPLAYED_BACKEND {
        return row.backend_version.clone();
    }
    Some(format!("{} {}", row.backend, row.backend_version.as_deref().unwrap_or("of unknown version")))
}

/// The engine whose kernels are launched: the row's, or [`Engine::fitted`] where the row names no release of it.
fn engine(row: &ClosedLoopRow) -> Engine {
    let release = row.backend_version.as_deref().and_then(|version| Engine::parse(&row.backend, Some(version)));
    let newest = || Engine::parse(&row.backend, None).filter(|engine| !engine.is_vllm());
    release.or_else(newest).unwrap_or_else(Engine::fitted)
}

/// The row's format of the KV cache, or that of its launch command. A row without either has fp8 on Blackwell, and vLLM's `auto`
/// elsewhere.
///
/// # Source
/// Inferred from public rows on B200: with 16-bit caches, replays queue for memory where the measured servers did not.
fn kv_cache_dtype(row: &ClosedLoopRow, hardware: &Hardware, deployment: &Deployment) -> Option<DType> {
    let assumed = (hardware.architecture == Architecture::Blackwell).then_some(DType::Fp8);
    row.kv_cache_dtype.unwrap_or(if row.launch.is_some() { deployment.kv_cache_dtype } else { assumed })
}

/// `max_num_tokens` for one prompt and a decode of every request in flight.
///
/// # Source
/// `MAX_NUM_TOKENS` of InferenceX's scripts for TensorRT-LLM (843c6254). Identified for other rows of TensorRT-LLM and vLLM whose command is not
/// known: with it the median error of TTFT on H100 is 19 % and 10 %, with 8,192 tokens 52 % and 19 %.
fn prompt_and_decodes(row: &ClosedLoopRow) -> u32 {
    row.concurrency.saturating_add(row.isl).saturating_add(64).next_multiple_of(64)
}

/// The server that the row's launch command starts, with the defaults of a server where the command says nothing.
fn server_of(row: &ClosedLoopRow, engine: &Engine, notes: &mut Vec<String>) -> Result<ServerConfig> {
    let mut arguments: Map<String, Value> = Map::new();
    arguments.insert("model".to_owned(), row.model_path.as_str().into());
    arguments.insert("hardware".to_owned(), row.system.as_str().into());
    match engine.name() {
        "sglang" => drop(arguments.insert("disable_radix_cache".to_owned(), true.into())),
        "trtllm" => {
            arguments.insert("enable_block_reuse".to_owned(), false.into());
            arguments.insert("cuda_graph_padding_enabled".to_owned(), true.into());
            arguments.insert("max_num_tokens".to_owned(), prompt_and_decodes(row).into());
        }
        _ => {
            let tokens = match LoopClient::by_scenario(row.isl, row.osl) {
                LoopClient::Other if row.launch.is_none() => {
                    prompt_and_decodes(row).min(MAX_NUM_BATCHED_TOKENS.max(row.isl))
                }
                LoopClient::Other | LoopClient::InferenceX => MAX_NUM_BATCHED_TOKENS,
            };
            let seqs = MAX_NUM_SEQS.max(row.concurrency);
            arguments.insert("max_num_seqs".to_owned(), seqs.min(tokens.max(row.concurrency)).into());
            arguments.insert("max_num_batched_tokens".to_owned(), tokens.into());
        }
    }
    if let Some(launch) = &row.launch {
        arguments.extend(launch.arguments.clone());
        if !launch.unknown.is_empty() {
            notes.push(format!("the launch command leaves open: {}", launch.unknown.join(", ")));
        }
    }
    let beside = Beside { engine: engine.clone(), ..Beside::default() };
    ServerConfig::from_values_with(&format!("the launch command of {}", row.id), &arguments, &beside)
}

fn deployment(row: &ClosedLoopRow, model: &Model, server: &ServerConfig) -> Result<Deployment> {
    let ranks = u64::from(row.tp_size) * u64::from(row.attention_dp_size);
    let expert_parallel = row.moe_ep_size.filter(|size| has_experts(model) && *size > 1);
    if let Some(size) = expert_parallel
        && (u64::from(size) != ranks || row.moe_tp_size.is_some_and(|shared| shared > 1))
    {
        let reason = format!(
            "with moe_tp_size = {}: vLLM spreads whole experts over all tp_size × attention_dp_size = {ranks} ranks",
            row.moe_tp_size.unwrap_or(1)
        );
        return Err(Error::invalid_argument("moe_ep_size", size.to_string(), reason));
    }
    Ok(Deployment {
        tensor_parallel_size: row.tp_size,
        pipeline_parallel_size: row.pp_size,
        data_parallel_size: row.attention_dp_size,
        enable_expert_parallel: expert_parallel.is_some(),
        ..server.deployment.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::super::closed_loop_launch::Launch;
    use super::super::fixtures::{HEADER, read_text};
    use super::*;
    use ridgepoint::Request;
    use ridgepoint_replay::EngineRules;

    fn made(rows: &[&str]) -> (Vec<Case>, Vec<Skipped>) {
        made_of(rows, &[])
    }

    fn made_of(rows: &[&str], backends: &[&str]) -> (Vec<Case>, Vec<Skipped>) {
        let rows = read_text(&format!("{HEADER}{}\n", rows.join("\n"))).expect("rows");
        closed_loop_cases(&rows, &backends.iter().map(|b| (*b).to_owned()).collect::<Vec<_>>(), None)
    }

    fn reason(row: &str) -> String {
        let (cases, skipped) = made(&[row]);
        assert!(cases.is_empty());
        skipped[0].reason.clone()
    }

    fn server(row: &ClosedLoopRow) -> ServerConfig {
        server_of(row, &engine(row), &mut Vec::new()).expect("a server")
    }

    const QWEN: &str = "a,vllm,0.12.0,Qwen/Qwen3-8B,h100_sxm,,1024,128,,,16,1,1,,1,1,84.5,16.25";

    #[test]
    fn what_a_row_does_not_say_is_the_default_of_a_server() {
        let (cases, _) = made(&[QWEN, &QWEN.replace("a,vllm", "b,vllm").replace(",16,1,1,", ",2000,2,1,")]);
        let engine = &cases[0].engine;
        // One prompt beside 16 decodes: 1,024 + 16 + 64 = 1,104, up to a multiple of 64.
        assert_eq!((engine.max_num_seqs, engine.max_num_batched_tokens), (1024, 1152));
        assert_eq!((engine.max_model_len, cases[0].client_us), (1024 + 128, 1000.0));
        let (inferencex, _) = made(&[&QWEN.replace(",1024,128,", ",1024,1024,")]);
        assert_eq!((inferencex[0].engine.max_num_batched_tokens, inferencex[0].client_us), (8192, 5000.0));
        assert_eq!((cases[1].engine.max_num_seqs, cases[1].labels.tensor_parallel_size), (2000, 2));
        let mut load = (cases[0].load)(0);
        assert_eq!(std::iter::from_fn(|| load.next_request()).count(), 16);
        assert_eq!((load.expected_requests(), &cases[0].concurrency), (Some(160), &vec![Some(16)]));
        assert_eq!(cases[0].labels.workload.as_deref(), Some("1024 in, 128 out"));
        assert_eq!(cases[0].measured.get(WHOLE_RUN, Metric::TPOT_MEAN), Some(16.25));
    }

    #[test]
    fn rows_of_other_engines_run_by_their_rules_unless_others_are_asked_for() {
        let row = QWEN.replace("vllm,0.12.0", "trtllm,1.0");
        let (none, refused) = made_of(&[&row], &["vllm"]);
        assert_eq!((none.len(), refused[0].reason.as_str()), (0, "backend: 'trtllm' is not among the requested vllm"));
        let (cases, skipped) = made(&[&row]);
        assert!(skipped.is_empty());
        let engine = &cases[0].engine;
        assert!(matches!(engine.rules, EngineRules::Trtllm(_)), "{:?}", engine.rules);
        assert_eq!((engine.max_num_seqs, engine.max_num_batched_tokens, engine.block_size), (1152, 1152, 32));
        assert!(!engine.scheduler.enable_chunked_prefill && !engine.scheduler.enable_prefix_caching);
        let sglang = &made(&[&QWEN.replace("vllm,0.12.0", "sglang,0.5.9")]).0[0].engine;
        assert!(
            matches!(sglang.rules, EngineRules::Sglang(options) if options.chunked_prefill_size == 8192),
            "{:?}",
            sglang.rules
        );
        assert_eq!(cases[0].labels.backend_version.as_deref(), Some("trtllm 1.0"));
    }

    #[test]
    fn the_scheduler_is_that_of_the_rows_version() {
        let ahead = |version: &str| made(&[&QWEN.replace("0.12.0", version)]).0[0].engine.scheduler.async_scheduling;
        assert!(!ahead("0.12.0") && !ahead("0.11.2") && !ahead("0.13.0") && !ahead("v0.13.0"));
        assert!(ahead("0.14.0") && ahead("0.18.1") && ahead("1.0") && ahead(""));
        assert!(made(&[&QWEN.replace("vllm,0.12.0", "sglang,0.5.1")]).0[0].engine.scheduler.async_scheduling);
    }

    #[test]
    fn kernels_are_those_of_the_rows_version() {
        let of = |text: &str| {
            let row = read_text(&format!("{HEADER}{text}\n")).expect("a row").remove(0);
            engine(&row).to_string()
        };
        assert_eq!(of(QWEN), "vllm-0.12");
        assert_eq!(of(&QWEN.replace("vllm,0.12.0", "sglang,0.5.9")), "sglang-0.5");
        let unknown = ["vllm,", "vllm,nightly-5b8c30d62b754b57"];
        assert!(unknown.iter().all(|backend| of(&QWEN.replace("vllm,0.12.0", backend)) == "vllm-0.14"));
        // Qwen3's own parameters truncate: 0.12 sorts every row, 0.19 searches those of eight requests.
        let step_us = |version: &str| {
            let case = made(&[&QWEN.replace("0.12.0", version)]).0.remove(0);
            case.rooflines.calibrated.steps().step_time_us(&vec![Request::decode(1000); 8])
        };
        assert!(step_us("0.19.0") < 0.99 * step_us("0.12.0"), "{} {}", step_us("0.19.0"), step_us("0.12.0"));
    }

    #[test]
    fn caches_on_blackwell_are_fp8_unless_said() {
        let dtype = |system: &str, given: Option<Option<DType>>| {
            let row = read_text(&format!("{HEADER}{QWEN}\n")).expect("a row").remove(0);
            let row = ClosedLoopRow { kv_cache_dtype: given, ..row };
            kv_cache_dtype(&row, &Hardware::find(system).expect("a GPU"), &Deployment::default())
        };
        assert_eq!((dtype("h100_sxm", None), dtype("b200_sxm", None)), (None, Some(DType::Fp8)));
        assert_eq!(
            (dtype("h100_sxm", Some(Some(DType::Fp8))), dtype("b200_sxm", Some(None))),
            (Some(DType::Fp8), None)
        );
        let on_b200 = made(&[&QWEN.replace("h100_sxm", "b200_sxm")]).0;
        assert!(on_b200[0].notes.iter().any(|note| note == "kv_cache_dtype is not given, taken as fp8"));
    }

    #[test]
    fn a_launch_command_replaces_what_is_assumed() {
        let mut row = read_text(&format!("{HEADER}{QWEN}\n").replace("h100_sxm", "b200_sxm")).expect("a row").remove(0);
        let case_of = |row: &ClosedLoopRow| closed_loop_cases(std::slice::from_ref(row), &[], None).0.remove(0);
        assert!(!case_of(&row).engine.scheduler.async_scheduling);
        let launch = serde_json::json!({"max_num_seqs": 16, "async_scheduling": true, "gpu_memory_utilization": 0.5});
        let unknown = vec!["block_size = $SIZE".to_owned()];
        row.launch = launch.as_object().cloned().map(|arguments| Launch { arguments, unknown });
        let (case, served) = (case_of(&row), server(&row).deployment);
        assert!(case.notes.iter().any(|note| note == "the launch command leaves open: block_size = $SIZE"));
        assert_eq!((case.engine.max_num_seqs, case.engine.max_num_batched_tokens), (16, 8192));
        assert!(case.engine.scheduler.async_scheduling && !case.notes.iter().any(|note| note.contains("taken as fp8")));
        let b200 = Hardware::find("b200").expect("a GPU");
        assert_eq!((kv_cache_dtype(&row, &b200, &served), served.gpu_memory_utilization), (None, 0.5));
    }

    #[test]
    fn rows_that_cannot_be_run_say_why() {
        assert!(reason(&QWEN.replace("1024,128", "1024,1")).contains("osl: '1'"));
        assert!(reason(&QWEN.replace("h100_sxm", "h101")).contains("unknown hardware 'h101'"));
        assert!(reason(&QWEN.replace("Qwen3-8B", "Qwen3-9B")).contains("unknown model"));
        assert!(reason(&QWEN.replace(",16,1,1,", ",16,3,1,")).contains("tensor_parallel_size = 3"));
        let large = "a,vllm,,meta-llama/Llama-3.1-405B,h100_sxm,,1024,128,,,16,1,1,,1,1,84.5,16.25";
        assert!(reason(large).contains("GiB"), "{}", reason(large));
    }

    #[test]
    fn experts_are_spread_over_all_ranks_or_not_at_all() {
        let moe = "a,vllm,0.18.0,MiniMaxAI/MiniMax-M2.5,h100_sxm,fp8,1024,128,fp8,fp8,16,4,1,2,1,8,84.5,16.25";
        let deployment_of = |row: &str| {
            let row = read_text(&format!("{HEADER}{row}\n")).expect("a row").remove(0);
            deployment(&row, &Model::find(&row.model_path).expect("a model"), &server(&row))
        };
        let spread = deployment_of(moe).expect("a deployment");
        assert_eq!((spread.data_parallel_size, spread.enable_expert_parallel), (2, true));
        assert!(!deployment_of(&moe.replace(",2,1,8,", ",1,4,1,")).expect("a deployment").enable_expert_parallel);
        let part = deployment_of(&moe.replace(",2,1,8,", ",2,2,4,")).expect_err("half of the ranks").to_string();
        assert!(part.contains("moe_ep_size: '4' with moe_tp_size = 2") && part.contains("= 8 ranks"), "{part}");
        // n GPUs that an export files as tp_size = attention_dp_size = n with experts over n² ranks are n² GPUs here.
        let squared = deployment_of(&moe.replace(",4,1,2,1,8,", ",4,1,4,1,16,")).expect("taken as written");
        assert_eq!((squared.tensor_parallel_size, squared.data_parallel_size), (4, 4));
        // A dense model has no experts to spread.
        assert!(!deployment_of(&QWEN.replace(",,1,1,84.5", ",,1,4,84.5")).expect("dense").enable_expert_parallel);
    }
}
