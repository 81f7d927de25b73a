//! What is read is bounded: files without end, files that stand for more than they hold, and loads that would fill the memory.

use std::io::Write;
use std::process::Stdio;

use crate::cli_support::{Folder, Run, binary, run, simulate};

/// Runs a command whose standard input never ends.
fn run_endless(line: &str, start: &str) -> Run {
    let mut command = binary();
    command.args(line.split_ascii_whitespace()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let start = start.to_owned();
    // It ends when the command does, because the pipe breaks.
    let feeder = std::thread::spawn(move || {
        let block = [b'x'; 1 << 16];
        let mut written = input.write_all(start.as_bytes());
        while written.is_ok() {
            written = input.write_all(&block);
        }
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[cfg(unix)]
#[test]
fn endless_files_end_in_an_error_that_names_their_kind() {
    let step = "predict-step --model llama-3.1-8b --hardware h100";
    let load = "simulate --model llama-3.1-8b --hardware h100";
    for (line, start, said) in [
        (format!("{step} --batch -"), "", "standard input: has more than 256 MiB, the limit of a batch"),
        (format!("{step} --batch /dev/stdin"), "", "has more than 256 MiB, the limit of a batch"),
        ("models /dev/stdin".to_owned(), "", "has more than 16 MiB, the limit of a model's config.json"),
        (format!("{load} --profile /dev/stdin"), "", "has more than 16 MiB, the limit of a load profile"),
        (format!("{load} --requests /dev/stdin"), "arrival,input_len,output_len\n0,\"", "has a row of more than 1 MiB"),
        ("sweep /dev/stdin --dry-run".to_owned(), "", "has more than 4 MiB, the limit of a grid"),
        ("evaluate closed-loop /dev/stdin".to_owned(), "", "has a row of more than 1 MiB"),
        ("ingest /dev/stdin --out none --input-format step-csv".to_owned(), "", "has a row of more than 1 MiB"),
        ("ingest /dev/stdin --out none".to_owned(), "", "is a pipe or device, whose beginning can't be read twice"),
    ] {
        run_endless(&line, start).fails(1, &[said]);
    }
}

#[cfg(unix)]
#[test]
fn devices_of_zeros_are_no_text() {
    for line in [
        "predict-step --model llama-3.1-8b --hardware h100 --batch /dev/zero",
        "predict-step --model /dev/zero --hardware h100 --decode 8x100",
        "sweep /dev/zero --dry-run",
        "evaluate closed-loop /dev/zero",
    ] {
        run(&line.split(' ').collect::<Vec<_>>()).fails(1, &["/dev/zero: holds zero bytes"]);
    }
}

#[test]
fn files_that_are_no_text_say_what_they_are() {
    let folder = Folder::new();
    let config = include_str!("../../../models/llama-3.1-8b.json");
    let utf16: Vec<u8> = std::iter::once(0xfeff).chain(config.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    for (name, content, said) in [
        ("a.json", b"\x1f\x8b\x08\0\0".to_vec(), "a.json: is gzip: unpack it"),
        ("b.json", utf16, "b.json: is UTF-16 text: save it as UTF-8"),
        ("c.json", config.replacen('{', "{\"hidden_size\": 1, ", 1).into_bytes(), "key 'hidden_size' appears twice"),
    ] {
        run(&["models", &folder.write(name, content)]).fails(1, &[said]);
    }
    assert_eq!(run(&["models", &folder.write("d.json", format!("\u{feff}{config}"))]).code, 0);
}

#[test]
fn the_largest_max_num_seqs_is_exported_like_any_other() {
    let folder = Folder::new();
    let export = |limit: &str, out: &str| {
        let line = format!("export --model llama-3.1-8b --hardware h100 --max-num-seqs {limit} --out {out}");
        assert_eq!(run(&line.split(' ').collect::<Vec<_>>()).code, 0);
    };
    export("8192", &folder.path("a.json"));
    export("4294967295", &folder.path("b.json"));
    // The tables end at 8,192 decodes.
    assert!(folder.read("b.json").len() < folder.read("a.json").len() + 100_000);
}

#[test]
fn loads_that_would_fill_the_memory_are_refused_with_an_estimate() {
    let folder = Folder::new();
    let profile = folder.write(
        "p.yaml",
        "load: {type: constant, stages: [{rate: 1000000, duration: 99}]}\ndata: {type: random, input_distribution: \
         {min: 1, max: 1, mean: 1, std_dev: 0}, output_distribution: {min: 1, max: 1, mean: 1, std_dev: 0}}\n",
    );
    let server = "--model llama-3.1-8b --hardware h100";
    let said = ["max_memory_gib", "23.1 GiB", "99000000 requests", "99 s or longer", "see --max-memory-gib"];
    simulate(&format!("{server} --profile {profile}")).fails(1, &said);
    let closed = "--concurrency 8 --input-len 1 --output-len 1";
    simulate(&format!("{server} {closed} --num-requests 99000000")).fails(1, &said);
    simulate(&format!("{server} {closed} --num-requests 100 --max-memory-gib 0.00001")).fails(1, &["100 requests"]);
    assert_eq!(simulate(&format!("{server} {closed} --num-requests 100 --max-memory-gib 0.1")).code, 0);
    let grid = folder.write(
        "grid.toml",
        "[server]\nmodel = \"llama-3.1-8b\"\nhardware = \"h100\"\n[load]\nrequest_rate_per_s = [1, 2]\n\
         input_len_tokens = 1\noutput_len_tokens = 1\nnum_requests = 99000000\n",
    );
    run(&["sweep", &grid, "--dry-run", "--threads", "2"]).fails(1, &["46.1 GiB that 2 replays at once", "99000000"]);
}

#[test]
fn a_list_of_requests_is_read_as_far_as_the_memory_allows() {
    let server = "simulate --model llama-3.1-8b --hardware h100 --max-memory-gib 0.001 --requests";
    let said = ["has more than 4294 requests", "max_memory_gib"];
    let folder = Folder::new();
    // A row that is at fault is behind those that are too many.
    let list = folder.write("r.csv", format!("arrival,input_len,output_len\n{}x\n", "0,1,1\n".repeat(100_000)));
    run(&[&server.split(' ').collect::<Vec<_>>()[..], &[&list]].concat()).fails(1, &said);
    let few = folder.write("f.csv", format!("arrival,input_len,output_len\n{}", "0,1,1\n".repeat(4_294)));
    let read = run(&[&server.split(' ').collect::<Vec<_>>()[..], &[&few]].concat());
    assert!(!read.stderr.contains("requests, whose replay"), "{}", read.stderr);
    #[cfg(target_os = "linux")]
    {
        let rows = format!("arrival,input_len,output_len\n{}", "0,1,1\n".repeat(1_000_000));
        run_endless(&format!("{server} /dev/stdin"), &rows).fails(1, &said);
    }
}

#[test]
fn measurements_that_share_no_sizes_span_no_grid() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("measured")).unwrap();
    let row = |at: u64| {
        let (m, n, k) = (at * 7, 64 + at * 11, 128 + at * 13);
        let time_us = 5.0 + (2 * m * n * k) as f64 / 500e6;
        format!("bfloat16,{m},{n},{k},{time_us}\n")
    };
    let rows: String = (1..=200).map(row).collect();
    let measured = folder.write("measured/gemm.csv", format!("dtype,m,n,k,latency_us\n{rows}"));
    let folders = [measured.trim_end_matches("/gemm.csv"), &folder.path("out")];
    run(&["calibrate", "--hardware", "h100", "--measurements", folders[0], "--out", folders[1]])
        .fails(1, &["which span a grid of more than four million cells"]);
}

#[test]
fn runs_that_would_fill_the_memory_are_not_judged() {
    let folder = Folder::new();
    let profile = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/profile.yaml")).unwrap();
    let stage = "- {rate: 4, duration: 120}";
    assert!(profile.contains(stage));
    folder.write("profile.yaml", profile.replace(stage, "- {rate: 1000000, duration: 90}"));
    folder.write("exp-config.yaml", "model: llama-3.1-8b\nhardware: h100\n");
    folder.write("measured.csv", "stage,metric,value_ms\n-1,e2e_mean,20\n");
    run(&["evaluate", "serving", &folder.path(".")])
        .fails(1, &["GiB that a replay of 90001440 requests may take", "send fewer requests"]);
    let header = "id,backend,backend_version,model_path,system,precision,isl,osl,gemm_quant_mode,moe_quant_mode,concurrency,\
                  tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,ttft_ms,tpot_ms";
    let row = "a,vllm,0.12.0,Qwen/Qwen3-8B,h100_sxm,,1024,128,,,1000000,1,1,,1,1,84.5,16.25";
    let file = folder.write("loops.csv", format!("{header}\n{row}\n"));
    run(&["evaluate", "closed-loop", &file]).fails(1, &["GiB that a replay of 10000000 requests may take"]);
}
