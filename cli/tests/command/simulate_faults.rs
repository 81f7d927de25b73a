//! Bad input of `ridgepoint simulate`: exit code 1, and file, key or row, value and remedy on stderr. Stdout stays empty, and existing
//! files survive.

use crate::cli_support;

use cli_support::{Folder, simulate};

const SERVER: &str = "--model llama-3.1-8b --hardware h100 --max-model-len 4096";
const LOOP: &str = "--concurrency 2 --num-requests 4 --input-len 8 --output-len 4";
const DATA: &str = "data: {type: mock}";

/// Bytes that are neither text nor any format.
fn garbage() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    [vec![0xff, 0x00, 0xfe], (0..5000).map(next).collect()].concat()
}

#[test]
fn a_bad_profile_names_key_and_value() {
    let folder = Folder::new();
    let stage = |stage: &str| format!("load: {{stages: [{stage}]}}\n{DATA}\n");
    let lengths = |keys: &str| {
        format!(
            "load: {{stages: [{{rate: 1, duration: 5}}]}}\ndata: {{type: shared_prefix, shared_prefix: {{{keys}}}}}\n"
        )
    };
    for (text, said) in [
        (String::new(), &["is empty: a profile has `load` and `data`"][..]),
        ("# nothing but a remark\n".into(), &["is empty"]),
        ("server: {type: vllm}\n".into(), &["load is missing", "data is missing"]),
        (format!("load: {{stages: []}}\n{DATA}\n"), &["load.stages = [] must be a list of 1 to 1000 stages"]),
        (stage("{rate: 0, duration: 5}"), &["load.stages[0].rate = 0 must be a number above 0"]),
        (stage("{rate: -1, duration: 5}"), &["load.stages[0].rate = -1 must be"]),
        (stage("{rate: .nan, duration: .inf}"), &["rate = \".nan\" must be", "duration = \".inf\" must be"]),
        (stage("{rate: 1e308, duration: 1e18}"), &["rate = 1e+308 must be", "duration = 1e+18 must be"]),
        (stage("{rate: 010, duration: 5}"), &["rate = \"010\" must be a number"]),
        (stage("{rate: 0.1, duration: 5}"), &["sends no request"]),
        (stage("{rate: 1, duration: 5, jitter: 2}"), &["load.stages[0].jitter is not a known key"]),
        (stage("{rate: 1, rate: 2, duration: 5}"), &["duplicate mapping key `rate`", "line 1"]),
        (stage(&vec!["{rate: 1, duration: 1}"; 1001].join(", ")), &["must be a list of 1 to 1000 stages"]),
        (stage("{rate: 100, duration: 10000000}"), &["send 1000000000 requests, at most 100000000 are possible"]),
        (
            stage(&vec!["{rate: 1.0e-8, duration: 1.0e+8}"; 300].join(", ")),
            &["take 30000000299 s, at most 1000000000 s"],
        ),
        (
            lengths("system_prompt_len: 0, question_len: 0, output_len: 0"),
            &["output_len = 0 must be a whole number from 1", "make prompts of 0 tokens"],
        ),
        (lengths("output_len: 18446744073709551616"), &["output_len = 1.8446744073709552e+19 must be"]),
        (lengths("question_length: 5"), &["question_length is not a known key: did you mean question_len?"]),
        (format!("load: {}1{}\n{DATA}\n", "[".repeat(5000), "]".repeat(5000)), &["can't be read as YAML or JSON"]),
        (format!("load: &a {{stages: [*a]}}\n{DATA}\n"), &["can't be read as YAML or JSON"]),
        (format!("load: {{}}\n{DATA}\n---\nload: {{}}\n"), &["can't be read as YAML or JSON"]),
    ] {
        let path = folder.write("profile.yaml", text);
        let run = simulate(&format!("{SERVER} --profile {path}"));
        run.fails(1, &[said, &[path.as_str()]].concat());
    }
}

#[test]
fn a_bad_row_names_row_column_value_and_what_is_allowed() {
    let folder = Folder::new();
    let lengths = "arrival,input_len,output_len\n";
    for (rows, said) in [
        ("", "there are no requests in this csv file"),
        ("-1,5,5\n", "row 1: column 'arrival': found -1, expected a number from 0 to 1000000000"),
        ("NaN,5,5\n", "row 1: column 'arrival': found NaN"),
        ("1e308,5,5\n", "row 1: column 'arrival': found 1e308"),
        ("1000000000000000000,5,5\n", "row 1: column 'arrival': found 1000000000000000000"),
        (
            "2,5,5\n1,5,5\n",
            "row 2: column 'arrival': found 1, expected at least that of the row above, 2 s: sort the rows",
        ),
        ("0,0,5\n", "row 1: column 'input_len': found 0, expected a whole number from 1 to 10000000"),
        ("0,5,0\n", "row 1: column 'output_len': found 0"),
        ("0,18446744073709551617,5\n", "row 1: column 'input_len': found 18446744073709551617"),
        ("0,5\n", "line 2: has 2 cells, the header has 3"),
    ] {
        let path = folder.write("requests.csv", format!("{lengths}{rows}"));
        simulate(&format!("{SERVER} --requests {path}")).fails(1, &[path.as_str(), said]);
    }
    for (text, said) in [
        ("", "is empty; requests come as one of csv, jsonl, mooncake"),
        ("when,how long\n0,1\n", "its columns (when, how long) are those of no known format"),
        (
            "arrival,input_len,output_len,prefixlen\n0,5,5,3\n",
            "column 'prefixlen' is not known: did you mean prefix_len",
        ),
        ("input_len,output_len\n5,5\n", "does not say when its requests arrive: give request_rate or concurrency"),
        (
            "arrival,input_len,output_len,prefix_group,prefix_len\n0,5,5,a,6\n",
            "'prefix_len': found 6, expected at most the length",
        ),
        (
            "arrival,input_len,output_len,priority\n0,5,5,2147483648\n",
            "'priority': found 2147483648, expected a whole number from -2147483648",
        ),
        (
            "[{\"arrival\": 0, \"input_len\": 5, \"output_len\": 5}, {\"arrival\": 0}",
            "ends within its list: is the file cut short?",
        ),
        ("[{\"arrival\": 0, \"input_len\": 5, \"output_len\": 5, \"arrival\": 9}]", "element 1 is no JSON object"),
        ("{\"arrival\": 0, \"input_len\": 5, \"output_len\": 5, \"arrival\": 9}", "key 'arrival' appears twice"),
        (
            "{\"arrival\": 0, \"input_len\": 5, \"output_len\": 5}\n{\"arrival\": 0",
            "line 2 column 13: is not a JSON object",
        ),
        (
            "{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 1, \"hash_ids\": [1]}",
            "found [1], expected 2 ids",
        ),
        ("{\"sub_requests\": []}", "column 'arrival_time_ns' is missing"),
        ("{\"input_lens\": [5], \"request_throughput\": 1}", "output_lens is missing or empty"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,5,5\n", "row 1: column 'TIMESTAMP': found yesterday"),
    ] {
        let path = folder.write("requests", text);
        simulate(&format!("{SERVER} --requests {path}")).fails(1, &[path.as_str(), said]);
    }
}

#[test]
fn figures_of_a_load_without_a_file_have_limits() {
    for (load, said) in [
        (
            "--concurrency 1 --input-len 4294967295 --output-len 1",
            "input_len = 4294967295 must be a whole number of tokens from 1 to 10000000",
        ),
        ("--concurrency 4294967295 --input-len 1 --output-len 1", "number of requests = 42949672950 must be"),
        ("--concurrency 10000001 --input-len 1 --output-len 1", "must be from 1 to 100000000"),
        (
            "--concurrency 1 --num-requests 4294967295 --input-len 1 --output-len 1",
            "num_requests = 4294967295 must be a whole number from 1 to 100000000",
        ),
        (
            "--request-rate 1e308 --num-requests 1 --input-len 1 --output-len 1",
            "request_rate = 1e+308 must be a number above 0 and at most 1000000",
        ),
        (
            "--request-rate 1e-300 --num-requests 1 --input-len 1 --output-len 1",
            "1 requests at 1e-300 per second take longer",
        ),
        (
            "--request-rate 1 --burstiness 1e9 --num-requests 1 --input-len 1 --output-len 1",
            "burstiness = 1000000000.0 must be a number from 0.001 to 1000",
        ),
    ] {
        simulate(&format!("{SERVER} {load}")).fails(1, &[said]);
    }
}

#[test]
fn a_bad_server_names_key_and_value() {
    let folder = Folder::new();
    let server = "model: llama-3.1-8b\nhardware: h100\n";
    for (text, said) in [
        (String::new(), &["is empty: a server has at least `model` and `hardware`"][..]),
        ("model: llama-3.1-8b\n".into(), &["hardware is missing"]),
        ("- model\n".into(), &["must be keys with values"]),
        (
            format!("{server}max_num_seq: 5\nspeculative_config: {{method: medusa, num_speculative_tokens: 3}}\n"),
            &[
                "max_num_seq is not a known key: did you mean max_num_seqs",
                "speculative_config.method = \"medusa\" is not modelled: mtp, eagle, eagle3, draft_model and ngram are",
            ],
        ),
        (
            format!("{server}max_num_seqs: -1\nblock_size: 0\n"),
            &["max_num_seqs = -1 must be a whole number from 1", "block_size = 0 must be"],
        ),
        (
            format!("{server}max_model_len: 18446744073709551616\n"),
            &["max_model_len = 1.8446744073709552e+19 must be a whole number"],
        ),
        (format!("{server}gpu_memory_utilization: 1e308\n"), &["gpu_memory_utilization = 1e+308 must be a share"]),
        (format!("{server}max_num_seqs: 1\nmax-num-seqs: 2\n"), &["are names of one setting: keep one"]),
        (format!("{server}max_num_seqs: 1\nmax_num_seqs: 2\n"), &["duplicate mapping key `max_num_seqs`"]),
        (
            format!("{server}num_gpu_blocks_override: 3\nmax_model_len: 4096\n"),
            &["num_gpu_blocks = 3 holds 32 tokens", "give at least 257 blocks, or max_model_len at most 32"],
        ),
        ((0..5000).map(|key| format!("key{key}: 1\n")).collect(), &["key0 is not a known key", "more"]),
    ] {
        let path = folder.write("server.yaml", text);
        let run = simulate(&format!("--config {path} {LOOP}"));
        run.fails(1, &[said, &[path.as_str()]].concat());
        assert!(run.stderr.len() < 20_000, "{} bytes", run.stderr.len());
    }
}

#[test]
fn a_server_that_does_not_fit_says_by_how_much_and_what_would() {
    let fails = |line: &str, said: &[&str]| simulate(&format!("{line} --engine-version 0.15 {LOOP}")).fails(1, said);
    // 131.4 GiB of weights; 0.9 of 79.2 GiB are 71.3.
    fails(
        "--model llama-3.1-70b --hardware h100",
        &[
            "the weights do not fit: they take 131.4 GiB",
            "60.1 GiB more than gpu_memory_utilization = 0.9 of 79.2 GiB",
            "tensor_parallel_size = 4 would do",
        ],
    );
    fails(
        "--model llama-3.1-70b --hardware h100 --tp 2",
        &[
            "less than one request of max_model_len = 131072",
            "GiB short",
            "max_model_len can be at most",
            "tensor_parallel_size = 4 would do",
        ],
    );
    fails(
        &format!("{SERVER} --max-num-batched-tokens 4294967295"),
        &["no room for a KV cache", "max_num_batched_tokens = 524288 would do"],
    );
    fails(&format!("{SERVER} --block-size 4294967295"), &["less than one request", "block_size = 16 would do"]);
    fails(
        &format!("{SERVER} --block-size 4294967295 --max-num-seqs 4294967295 --max-num-batched-tokens 4294967295"),
        &["no room for a KV cache"],
    );
    fails(
        &format!("{SERVER} --num-gpu-blocks-override 256"),
        &["num_gpu_blocks = 256 holds 4080 tokens", "at least 257 blocks"],
    );
    fails(
        &format!("{SERVER} --num-gpu-blocks-override 4294967295"),
        &["num_gpu_blocks = 4294967295 must be at most 16777216"],
    );
    fails(
        &format!("{SERVER} --no-enable-chunked-prefill --max-num-batched-tokens 4095"),
        &["max_num_batched_tokens = 4095 is less than max_model_len = 4096"],
    );
    fails(
        &format!("{SERVER} --num-gpu-blocks-override 0"),
        &["num_gpu_blocks_override = 0 must be a whole number from 1"],
    );
    fails(&format!("{SERVER} --pp 33"), &["pipeline_parallel_size = 33 is more than the 32 layers"]);
    fails(&format!("{SERVER} --tp 4294967295 --pp 4294967295 --dp 4294967295"), &["GPUs is more than 65536"]);
    fails(&format!("{SERVER} --gpu-memory-utilization 2"), &["gpu_memory_utilization = 2.0 must be a share"]);
    fails("--model llama-3.1-9b --hardware h10_sxm", &["unknown model 'llama-3.1-9b'", "unknown hardware 'h10_sxm'"]);
}

#[test]
fn a_clock_that_runs_out_is_no_result() {
    let folder = Folder::new();
    let gpu = include_str!("../../../hardware/h100_sxm.toml");
    let slow = gpu.replace("hbm_bytes_per_s = 3.35e12", "hbm_bytes_per_s = 1e4");
    let path = folder.write("slow.toml", format!("allow_unusual_figures = true\n{slow}"));
    let out = folder.path("out.json");
    // 16 GB of weights at 10 kB/s: a step takes 18 days, 20,000 of them 1,000 years.
    let load = "--concurrency 1 --num-requests 1 --input-len 10 --output-len 20000";
    let run = simulate(&format!("--model llama-3.1-8b --hardware {path} {load} --output-json {out}"));
    run.fails(1, &["longer than its clock counts, 584 years"]);
    assert_eq!(folder.names(), ["slow.toml"]);
}

#[test]
fn files_that_can_not_be_read_are_named() {
    let folder = Folder::new();
    let garbage = folder.write("garbage", garbage());
    let long = folder.write("long", vec![b'x'; 20 << 20]);
    let directory = folder.path("");
    let missing = folder.path("missing");
    let locked = folder.write("locked", "load: {}\n");
    #[cfg(unix)]
    std::fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    // Some accounts may read everything.
    let is_locked = std::fs::read(&locked).is_err();
    let kinds = ["csv", "jsonl", "mooncake", "azure", "vllm-bench", "llmservingsim"];
    let requests = kinds.map(|kind| format!("{SERVER} --requests-format {kind} --requests"));
    let mut lines = vec![format!("{SERVER} --profile"), format!("{SERVER} --requests"), format!("{LOOP} --config")];
    lines.extend(requests);
    for line in lines {
        for path in [&garbage, &long, &directory, &missing] {
            simulate(&format!("{line} {path}")).fails(1, &[path.trim_end_matches('/')]);
        }
        simulate(&format!("{line} -")).fails(1, &["-: No such file"]);
        if is_locked {
            simulate(&format!("{line} {locked}")).fails(1, &[&locked, "ermission denied"]);
        }
    }
}

#[test]
fn nothing_is_written_where_a_run_fails_and_nothing_is_lost() {
    let folder = Folder::new();
    let empty = folder.write("empty.csv", "arrival,input_len,output_len\n");
    let kept = ["kept.json", "kept.csv", "kept.trace"];
    let [json, rows, trace] = kept.map(|name| folder.path(name));
    assert_eq!(simulate(&format!("{SERVER} {LOOP} --output-json {json} --output-csv {rows} --trace {trace}")).code, 0);
    let of_an_earlier_run = kept.map(|name| folder.read(name));
    let before = folder.names();
    let nowhere = folder.path("no/such/folder/out");
    let new = folder.path("new");
    let all = format!("--output-json {json} --output-csv {rows} --trace {trace}");
    for (line, said) in [
        (format!("{SERVER} --requests {empty} {all}"), "there are no requests"),
        (format!("{SERVER} --profile no.yaml {all}"), "no.yaml: No such file"),
        (format!("--model llama-3.1-405b --hardware h100 {LOOP} {all}"), "do not fit"),
        (
            format!("{SERVER} {LOOP} --output-json {json} --output-csv {rows} --trace {nowhere}"),
            "no/such/folder does not exist; make it",
        ),
        (
            format!("{SERVER} {LOOP} --trace {trace} --output-json {json} --output-csv {nowhere}"),
            "no/such/folder does not exist; make it",
        ),
        (
            format!("{SERVER} {LOOP} --output-csv {rows} --output-json {nowhere}"),
            "no/such/folder does not exist; make it",
        ),
        (format!("{SERVER} {LOOP} --output-csv {new}/"), "is a folder; give the path of a file"),
        (
            format!("{SERVER} {LOOP} --output-json {new} --trace {}", folder.path("")),
            "is a folder; give the path of a file",
        ),
    ] {
        simulate(&line).fails(1, &[said]);
        assert_eq!(folder.names(), before, "{line}");
        assert_eq!(kept.map(|name| folder.read(name)), of_an_earlier_run, "{line}");
    }
}

#[test]
fn no_output_takes_the_place_of_another_file_of_the_run() {
    let folder = Folder::new();
    let load = folder.write("load.csv", "arrival,input_len,output_len\n0,5,5\n");
    let same = folder.path("same");
    let twice = format!("{SERVER} {LOOP} --output-json {same} --output-csv {}", folder.path("./same"));
    simulate(&twice).fails(1, &["same: would be both a ", "--output-csv", "--output-json", "give them two paths"]);
    simulate(&format!("{SERVER} --requests {load} --output-csv {load}"))
        .fails(1, &["load.csv: is a file that this run reads"]);
    simulate(&format!("{SERVER} {LOOP} --output-json -")).fails(1, &["-: is no file", "--format json"]);
    assert_eq!((folder.names(), folder.read("load.csv").len()), (vec!["load.csv".to_owned()], 35));
}

#[test]
fn wrong_usage_exits_with_2() {
    let fails = |line: &str, said: &[&str]| simulate(line).fails(2, said);
    fails(SERVER, &["--profile", "--requests", "--concurrency", "--request-rate"]);
    fails(&format!("{SERVER} {LOOP} --profile p.yaml"), &["cannot be used with"]);
    fails(&format!("{SERVER} --requests r.csv --profile p.yaml"), &["cannot be used with"]);
    fails(LOOP, &["--model", "--hardware"]);
    fails(&format!("{SERVER} --concurrency 4"), &["--input-len", "--output-len"]);
    fails(&format!("{SERVER} --request-rate 4 --input-len 5 --output-len 5"), &["--num-requests"]);
    fails(
        &format!("{SERVER} --request-rate 0 --input-len 5 --output-len 5 --num-requests 5"),
        &["must be a number above 0"],
    );
    fails(
        &format!("{SERVER} --request-rate 1e999 --input-len 5 --output-len 5 --num-requests 5"),
        &["must be a number above 0"],
    );
    fails(&format!("{SERVER} --concurrency 0 --input-len 5 --output-len 5"), &["'0'", "--concurrency"]);
    fails(&format!("{SERVER} --concurrency 1 --input-len 0 --output-len 5"), &["'0'", "--input-len"]);
    fails(&format!("{SERVER} --concurrency 4294967296 --input-len 5 --output-len 5"), &["4294967296"]);
    fails(&format!("{SERVER} {LOOP} --cpu-offload-gb inf"), &["must be a number of GiB, at least 0"]);
    simulate(&format!("{SERVER} {LOOP} --cpu-offload-gb 13.1")).fails(
        1,
        &["cpu_offload_gb", "is more than the 13.0", "GiB of weights that the layers", "see --cpu-offload-gb"],
    );
    fails(&format!("{SERVER} {LOOP} --replicas 5000"), &["5000", "--replicas"]);
    fails(&format!("{SERVER} {LOOP} --seed -1"), &["'-1'", "--seed"]);
    fails(&format!("{SERVER} {LOOP} --save-detailed"), &["--output-json"]);
    fails(&format!("{SERVER} --profile p.yaml --requests-format csv"), &["--requests-format", "cannot be used with"]);
    fails(&format!("{SERVER} {LOOP} --requests-format csv"), &["--requests"]);
    fails(&format!("{SERVER} --requests r.csv --concurrency 2 --request-rate 2"), &["cannot be used with"]);
    fails(&format!("{SERVER} --requests r.csv --requests-format xml"), &["xml", "mooncake"]);
}
