//! `ridgepoint models`, `ridgepoint hardware` and `ridgepoint arguments`, and what a data directory adds to them.

use crate::cli_support;

use cli_support::{Folder, predict, run};

const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 512,
    "torch_dtype": "bfloat16"}"#;

#[test]
fn every_built_in_model_is_listed_with_its_size() {
    let json = run(&["models", "--format", "json"]).json();
    let models = json["models"].as_array().unwrap();
    assert_eq!(models.len(), ridgepoint::model::builtin_names().len());
    let llama = models.iter().find(|model| model["name"] == "llama-3.1-8b").unwrap();
    assert_eq!(llama["parameters"]["total"].as_u64(), Some(8_030_261_248));
    assert_eq!(llama["num_layers"].as_u64(), Some(32));
    assert_eq!(llama["hf_ids"][0], "meta-llama/Meta-Llama-3.1-8B");
    let own = ridgepoint::correction::builtin_corrections().unwrap();
    for model in models {
        let has_own = own.iter().any(|correction| model["name"] == correction.name.as_str());
        assert_eq!(model["correction"]["level"], if has_own { "model" } else { "global" }, "{model}");
    }
    let table = run(&["models"]);
    assert!(table.stdout.contains("llama-3.1-8b") && table.stdout.contains("8.030 B"), "{}", table.stdout);
}

#[test]
fn one_model_says_what_a_gpu_holds_of_it() {
    let bytes = |tp: &str| {
        let json = run(&["models", "meta-llama/Llama-3.1-8B-Instruct", "--tp", tp, "--format", "json"]).json();
        json["weight_bytes_per_rank"].as_f64().unwrap()
    };
    // 8,030,261,248 parameters of two bytes; norms (65 of 4,096 elements) are on every rank.
    assert!((bytes("1") - 2.0 * 8_030_261_248.0).abs() < 1.0);
    assert!((bytes("2") - (8_030_261_248.0 + 65.0 * 4096.0)).abs() < 1.0);
    run(&["models", "llama-3.1-8b", "--tp", "3"]).fails(1, &["tensor_parallel_size = 3 does not divide"]);
    run(&["models", "llama-3.1-9b"]).fails(1, &["unknown model 'llama-3.1-9b'"]);
}

#[test]
fn every_built_in_gpu_is_listed_with_peaks_tables_and_sources() {
    let json = run(&["hardware", "--format", "json"]).json();
    let gpus = json["hardware"].as_array().unwrap();
    assert_eq!(gpus.len(), ridgepoint::hardware::builtin_names().len());
    for gpu in gpus {
        assert!(gpu["tables"].is_array() && gpu["corrections"].is_array(), "{gpu}");
        assert_eq!(gpu["correction"], gpu["corrections"] != serde_json::json!([]), "{gpu}");
        assert!(!gpu["sources"].as_array().unwrap().is_empty(), "{gpu}");
    }
    let one = run(&["hardware", "NVIDIA H100 80GB HBM3", "--format", "json"]).json();
    assert_eq!(one["name"], "h100_sxm");
    assert_eq!(one["peaks_dense_flop_per_s"]["bfloat16"].as_f64(), Some(989.4e12));
    assert!(one["table_headers"].is_object());
    run(&["hardware", "h10_sxm"]).fails(1, &["unknown hardware 'h10_sxm'", "h100_sxm"]);
}

#[test]
fn series_are_listed_with_their_errors_and_sources() {
    let json = |more: &[&str]| run(&[&["hardware", "l40s", "--format", "json"], more].concat()).json();
    let page = |more: &[&str]| run(&[&["hardware", "l40s", "--series"], more].concat());
    let count = |json: &serde_json::Value| {
        let tables = json["table_headers"].as_object().unwrap().values();
        tables.map(|table| table["series"].as_object().unwrap().len()).sum::<usize>()
    };
    let all = page(&[]).stdout;
    let whole = json(&[]);
    assert_eq!(whole, json(&["--series"]));
    assert_eq!(all.lines().filter(|line| line.matches(" %").count() == 2).count(), count(&whole), "{all}");
    let fp8 = &whole["table_headers"]["gemm"]["series"]["fp8"];
    let percent = |key: &str| format!("{:.2} %", fp8[key].as_f64().unwrap());
    let line = all.lines().find(|line| line.starts_with("gemm ") && line.contains(" fp8 ")).unwrap();
    for text in [percent("cross_validated_median_ape_pct"), percent("cross_validated_mape_pct"), "vllm-0.24".to_owned()]
    {
        assert!(line.contains(&text), "'{text}' is not in: {line}");
    }
    assert!(all.split_ascii_whitespace().collect::<Vec<_>>().join(" ").contains(fp8["source"].as_str().unwrap()));
    let some = json(&["--series", "MOE", "mxfp4"]);
    assert!((1..count(&whole)).contains(&count(&some)), "{some}");
    page(&["moe", "fp9"]).fails(1, &["--series: 'moe fp9' is in none of the", "series of l40s"]);
    run(&["hardware", "examples/cpu.toml", "--series"]).fails(1, &["cpu' has no tables of its own"]);
    run(&["hardware", "--series", "moe"]).fails(2, &["NAME"]);
}

#[test]
fn files_of_a_data_directory_are_listed_and_found() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().to_str().unwrap();
    for folder in ["models", "hardware"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let config = include_str!("../../../models/llama-3.1-8b.json");
    std::fs::write(dir.path().join("models/my-llama.json"), config).unwrap();
    let gpu = include_str!("../../../hardware/l40s.toml").replace("aliases", "aliases = []\n# aliases");
    std::fs::write(dir.path().join("hardware/my_gpu.toml"), gpu).unwrap();
    assert!(run(&["models", "--data-dir", data_dir]).stdout.contains("my-llama"));
    assert!(run(&["hardware", "--data-dir", data_dir]).stdout.contains("my_gpu"));
    let step = predict(&format!("--data-dir {data_dir} --model my-llama --hardware my_gpu --decode 1x5 --format json"));
    assert_eq!(step.json()["hardware"], "my_gpu");
}

#[test]
fn tables_where_nothing_reads_them_are_refused() {
    for path in ["h100_sxm/vllm-0.24/gemm.csv", "h100/gemm.csv", "h100_sxm/gemm2.csv"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bench_data").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        let line = format!("--data-dir {} --model llama-3.1-8b --hardware h100 --decode 1x5", dir.path().display());
        predict(&line).fails(1, &[path.to_str().unwrap(), "no prediction reads", "bench_data/<gpu>/<operator>.csv"]);
    }
}

fn predicted(model: &std::path::Path, more: &str) -> serde_json::Value {
    let line = format!("--model {} --hardware h100 --decode 4x100 --format json {more}", model.display());
    predict(&line).json()
}

#[test]
fn the_flag_changes_the_remark_but_no_time() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), CONFIG).unwrap();
    let (auto, vllm) = (predicted(dir.path(), ""), predicted(dir.path(), "--generation-config vllm"));
    let warns = |json: &serde_json::Value| json["warnings"].to_string().contains("generation_config.json is not known");
    assert_eq!((warns(&auto), warns(&vllm)), (true, false));
    assert_eq!(
        (&auto["deployment"]["generation_config"], &vllm["deployment"]["generation_config"]),
        (&"auto".into(), &"vllm".into())
    );
    assert_eq!(auto["step_time_us"], vllm["step_time_us"]);
    std::fs::write(dir.path().join("generation_config.json"), r#"{"top_p": 0.9}"#).unwrap();
    assert!(!warns(&predicted(dir.path(), "")));
    predict("--model llama-3.1-8b --hardware h100 --decode 1x5 --generation-config mine")
        .fails(2, &["mine", "auto", "vllm"]);
}

#[test]
fn an_override_replaces_the_models_sampling_parameters() {
    let step = |flags: &str| {
        let line = format!("--model llama-3.1-8b --hardware h100 --decode 128x500 --format json {flags}");
        let json = predict(&line).json();
        let kinds: Vec<String> =
            json["operators"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect();
        (kinds, json["step_time_us"].as_f64().unwrap())
    };
    let (published, published_us) = step("");
    let (greedy, greedy_us) = step("--override-generation-config {\"temperature\":0}");
    let sorts = |kinds: &[String]| kinds.iter().any(|kind| kind == "rejection_sampling");
    assert!(sorts(&published) && !sorts(&greedy), "{published:?} {greedy:?}");
    assert!(greedy_us < published_us, "{greedy_us} {published_us}");
    let (with_vllm, _) = step("--generation-config vllm --override-generation-config {\"top_p\":0.8}");
    assert!(sorts(&with_vllm), "{with_vllm:?}");
    predict("--model llama-3.1-8b --hardware h100 --decode 1x5 --override-generation-config {\"top_q\":1}")
        .fails(1, &["override_generation_config.top_q", "top_p"]);
}

#[test]
fn models_name_shows_the_parameters() {
    let shown = |name: &str| run(&["models", name]).stdout;
    assert!(shown("qwen2.5-7b").contains("repetition_penalty 1.05, temperature 0.7, top_k 20, top_p 0.8"));
    assert!(shown("gpt-oss-20b").contains("sampling    neutral"));
    assert!(shown("glm-4.5").contains("sampling    unknown"));
    let json = |name: &str| run(&["models", name, "--format", "json"]).json();
    let llama = json("llama-3.1-8b");
    assert_eq!((&llama["sampling"]["top_p"], &llama["sampling"]["top_k"]), (&0.9.into(), &serde_json::Value::Null));
    assert_eq!(json("glm-4.5")["sampling"], serde_json::Value::Null);
}

#[test]
fn a_datasheet_in_other_units_is_refused_with_the_unit_it_seems_to_be_in() {
    let folder = Folder::new();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../hardware/h100_sxm.toml")).unwrap();
    let path = folder.write("own.toml", text.replace("3.35e12", "3350"));
    let args = ["predict-step", "--model", "llama-3.1-8b", "--hardware", &path, "--decode", "8x100"];
    run(&args).fails(1, &["own.toml: datasheet.hbm_bytes_per_s = 3350", "from 1e10 to 1e15 B/s", "GB/s"]);
    let slow = text.replace("3.35e12", "3.35e9");
    folder.write("own.toml", &slow);
    run(&args).fails(1, &["allow_unusual_figures = true"]);
    folder.write("own.toml", format!("allow_unusual_figures = true\n{slow}"));
    assert_eq!(run(&args).code, 0);
}

#[test]
fn control_characters_of_a_name_do_not_reach_the_terminal() {
    let folder = Folder::new();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../hardware/h100_sxm.toml")).unwrap();
    let name = "display_name = \"x\\u001b[31mRED\\u0007\\u009b\"";
    let path = folder.write("own.toml", text.replace("display_name = \"NVIDIA H100 SXM5 80 GB\"", name));
    let is_plain = |text: &str| !text.contains(|c: char| c.is_control() && c != '\n');
    for format in ["table", "json"] {
        let run = run(&["hardware", &path, "--format", format]);
        assert!(run.code == 0 && is_plain(&run.stdout) && run.stdout.contains("\\u001b[31mRED"), "{}", run.stdout);
    }
    for args in [["models", "\x1b[31mnone"], ["hardware", "./\x1b]0;title\x07.toml"]] {
        let run = run(&args);
        assert!(run.code > 0 && is_plain(&run.stderr) && run.stderr.contains("\\u00"), "{}", run.stderr);
    }
    let usage = run(&["--\x1b[2J\x07flag"]);
    assert!(usage.code == 2 && is_plain(&usage.stderr), "{}", usage.stderr);
}

/// The configuration and the hardware that papers print.
const PAPERS_CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/papers_config.json");
const PAPERS_HARDWARE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/papers_hardware.json");

#[test]
fn configuration_and_hardware_as_papers_print_them_are_read() {
    let step = |model: &str, hardware: &str| {
        let args = ["predict-step", "--model", model, "--hardware", hardware, "--decode", "8x500", "--format", "json"];
        run(&args).json()
    };
    let (a100, h100) = (format!("{PAPERS_HARDWARE}#A100"), format!("{PAPERS_HARDWARE}#H100"));
    // The A100's figures are those of the built-in one; the H100's peak is rounded, which a decode bound by memory hardly sees.
    assert_eq!(step(PAPERS_CONFIG, &a100), step(PAPERS_CONFIG, "a100"));
    let (own, built_in) = (step(PAPERS_CONFIG, &h100), step(PAPERS_CONFIG, "h100"));
    let ratio = own["step_time_us"].as_f64().unwrap() / built_in["step_time_us"].as_f64().unwrap();
    assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
    let warnings = own["warnings"].to_string();
    assert!(warnings.contains("h100_sxm with compute_tflops_fp16 989 instead of 989.4"), "{warnings}");
    assert_eq!(step("microsoft/Phi-3-mini-4k-instruct", &h100)["hardware"], "h100_sxm");
    let shown = run(&["hardware", &h100]);
    assert!(shown.code == 0 && shown.stdout.contains("989 instead of 989.4"), "{}", shown.stdout);
}

#[test]
fn a_hardware_json_names_its_gpus_and_says_what_others_need() {
    let args =
        |hardware: &str| run(&["predict-step", "--model", "llama-3.1-8b", "--hardware", hardware, "--decode", "8x100"]);
    args(PAPERS_HARDWARE).fails(1, &["has the GPUs A100, H100: choose one, as in", "papers_hardware.json#A100"]);
    args(&format!("{PAPERS_HARDWARE}#H101")).fails(1, &["has no GPU 'H101' but A100, H100: did you mean H100?"]);
    let folder = Folder::new();
    let path = folder.write("own.json", r#"{"TPUv9": {"memory_gb": 80}}"#);
    args(&path).fails(1, &["own.json: unknown hardware 'TPUv9'", "Describe it in a TOML file", "l2_bytes"]);
    args(&folder.path("none.json#H100")).fails(1, &["none.json"]);
    // The file is an input of the run, under whatever name.
    let one = folder.write("one.json", r#"{"H100": {"memory_gb": 80}}"#);
    let export = ["export", "--model", "llama-3.1-8b", "--hardware", &format!("{one}#H100"), "--out", &one, "--force"];
    run(&export).fails(1, &["one.json"]);
}

#[test]
fn a_cpu_needs_no_link_and_says_that_its_times_are_bounds() {
    let folder = Folder::new();
    let config = folder.write("config.json", CONFIG);
    let args = |more: &[&'static str]| {
        let mut args = vec!["--model", &config, "--hardware", "examples/cpu.toml", "--format", "json"];
        args.extend(more);
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let step = |more: &[&'static str]| run(&[&["predict-step".to_owned()], &args(more)[..]].concat());
    let (auto, ideal) =
        (step(&["--decode", "8x100"]).json(), step(&["--decode", "8x100", "--efficiency", "ideal"]).json());
    assert_eq!((&auto["step_time_us"], &auto["step_time_us"]), (&ideal["step_time_us"], &auto["bound_us"]));
    let says_so =
        |json: &serde_json::Value| json["warnings"].to_string().contains("every time is the datasheet's bound");
    assert_eq!((says_so(&auto), says_so(&ideal)), (true, false), "{auto}");
    step(&["--decode", "8x100", "--tp", "2"])
        .fails(1, &["has no interconnect, which tensor_parallel_size = 2 needs", "unidirectional_bytes_per_s"]);
    let load = ["--concurrency", "2", "--input-len", "64", "--output-len", "8", "--num-gpu-blocks-override", "64"];
    let replay = run(&[&["simulate".to_owned()], &args(&load)[..]].concat()).json();
    assert!(says_so(&replay) && replay["latency_model"].to_string().contains("ideal roofline"), "{replay}");
    let shown = run(&["hardware", "examples/cpu.toml"]).stdout;
    assert!(shown.contains("none: the datasheet's bounds"), "{shown}");
    // A GPU's file still has to say what links it to others.
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/cpu.toml")).unwrap();
    let gpu = folder.write("gpu.toml", text.replace("\"cpu\"", "\"hopper\""));
    run(&["hardware", &gpu]).fails(1, &["interconnect is missing"]);
}

/// Sixteen GPUs are two servers of H100, one rack of GB200, and too many for cards without a network.
#[test]
fn groups_beyond_a_link_pay_for_the_network() {
    let step = |gpu: &str| {
        run(&[
            "predict-step",
            "--model",
            "llama-3.1-405b",
            "--hardware",
            gpu,
            "--tp",
            "16",
            "--decode",
            "8x100",
            "--format",
            "json",
        ])
    };
    let warns = |gpu: &str| step(gpu).json()["warnings"].to_string().contains("over 2 groups of linked GPUs");
    assert_eq!((warns("h100_sxm"), warns("gb200")), (true, false));
    step("l40s")
        .fails(1, &["l40s", "link between 8 GPUs and no network", "all_reduce needs over 16 of them", "[network]"]);
    let shown = run(&["hardware", "gb200"]).stdout;
    assert!(shown.contains("joins 72") && shown.contains("network cards 50.00 GB/s"), "{shown}");
}

#[test]
fn names_are_resolved_with_a_note_or_refused_with_a_reason() {
    let notes = |name: &str| run(&["models", name, "--format", "json"]).json()["notes"].to_string();
    assert!(
        notes("Qwen/Qwen3.5-397B-A17B-FP8")
            .contains("fp8 in blocks of 128 x 128, and the base's KV cache, as in Qwen's")
    );
    assert!(notes("nvidia/Llama-3.1-8B-Instruct-FP8").contains("a KV cache in fp8, as in NVIDIA's"));
    assert!(!notes("nvidia/GLM-5.1-NVFP4").contains("not built in"));
    let key = "`hidden_size_per_layer_input` means embeddings per layer";
    run(&["models", "google/gemma-3n-E4B-it"]).fails(1, &["google/gemma-3n-E4B-it: model_type 'gemma3n_text'", key]);
    run(&["models", "moonshotai/Kimi-K2.7-Code"]).fails(1, &["of this model only kimi-k2.7-code-nvfp4 can be named"]);
    let warned =
        |gpu: &str| predict(&format!("--model llama-3.1-8b --decode 1x5 --format json --hardware {gpu}")).json();
    let warned = |gpu: &str| warned(gpu)["warnings"].to_string().contains("is the name of several cards");
    assert_eq!((warned("RTX-PRO-6000"), warned("rtx_pro_6000_server")), (true, false));
    let page = |gpu: &str| run(&["hardware", gpu]).stdout;
    assert!(
        page("H100").contains("not         h100_nvl, h100_pcie, other cards") && !warned("H100"),
        "{}",
        page("H100")
    );
    assert!(page("a100").contains("a100_sxm_40gb, other cards") && !page("b200").contains("other cards"));
}

#[test]
fn a_lone_config_in_a_folder_that_sounds_quantised_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("Tiny-NVFP4");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("config.json"), CONFIG).unwrap();
    let warnings = || predicted(&folder, "")["warnings"].to_string();
    assert!(warnings().contains("put the checkpoint's hf_quant_config.json next to its config.json"), "{}", warnings());
    std::fs::write(folder.join("hf_quant_config.json"), r#"{"quantization": {"quant_algo": "NVFP4"}}"#).unwrap();
    assert!(!warnings().contains("hf_quant_config.json"), "{}", warnings());
}

#[test]
fn a_family_is_asked_for_by_a_flag_and_by_a_servers_file() {
    let dir = tempfile::tempdir().unwrap();
    let (config, server) = (dir.path().join("config.json"), dir.path().join("server.yaml"));
    std::fs::write(
        &config,
        CONFIG.replace("\"llama\"", "\"mystery\"").replace("LlamaForCausalLM", "MysteryForCausalLM"),
    )
    .unwrap();
    let path = config.to_str().unwrap();
    let refused = run(&["models", path]);
    assert!(refused.stderr.contains("as_family") && refused.stderr.len() < 400, "{}", refused.stderr);
    let read = run(&["models", path, "--as-family", "llama"]);
    assert!(read.stdout.contains("as as_family asks"), "{}{}", read.stdout, read.stderr);
    std::fs::write(
        &server,
        format!("model: {path}\nhardware: h100\nas-family: llama\nmax_model_len: 64\nnum_gpu_blocks_override: 100\n"),
    )
    .unwrap();
    let load = ["--concurrency", "1", "--input-len", "8", "--output-len", "2", "--num-requests", "1"];
    let replayed = run(&[&["simulate", "--config", server.to_str().unwrap()], &load[..]].concat());
    assert!(format!("{}{}", replayed.stdout, replayed.stderr).contains("as_family"), "{}", replayed.stderr);
    assert!(!replayed.stderr.contains("error"), "{}", replayed.stderr);
}

#[test]
fn an_argument_is_found_by_any_of_its_names() {
    for name in ["tensor_parallel_size", "--tensor-parallel-size", "-tp", "tp"] {
        let json = run(&["arguments", name, "--format", "json"]).json();
        let found = json["arguments"].as_array().unwrap();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(found[0]["name"], "tensor_parallel_size");
        assert_eq!(found[0]["schema"]["minimum"], 1);
        assert_eq!(found[0]["support"], "modelled");
    }
    let table = run(&["arguments", "scheduler"]);
    assert!(table.stdout.contains("enable_chunked_prefill"), "{}", table.stdout);
    run(&["arguments", "tensor_paralel_size"]).fails(1, &["did you mean", "tensor_parallel_size"]);
}

#[test]
fn every_modelled_flag_of_a_replay_is_listed_as_an_argument() {
    let json = run(&["arguments", "--format", "json"]).json();
    let help = run(&["simulate", "--help"]).stdout;
    for argument in json["arguments"].as_array().unwrap() {
        let (flag, is_modelled) = (argument["flag"].as_str(), argument["support"] == "modelled");
        let Some(flag) = flag.filter(|_| is_modelled) else { continue };
        assert!(help.contains(flag), "simulate has no {flag}");
    }
}
