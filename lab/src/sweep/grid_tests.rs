//! Tests of grids: the product of their values, and all problems of one reported at once.

use super::*;

const LOAD: &str =
    "[load]\nrequest_rate_per_s = [1, 2]\ninput_len_tokens = 10\noutput_len_tokens = 5\nnum_requests = 3\n";

fn grid(server: &str) -> Result<Grid> {
    Grid::parse("grid.toml", &format!("[server]\n{server}\n{LOAD}"))
}

fn problems(text: &str) -> Vec<String> {
    match Grid::parse("grid.toml", text) {
        Err(error) if error.location().is_some_and(|place| place.path == "grid.toml") => error.problems().to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_product_is_in_order_and_hand_counted() {
    let text = "max_num_seqs = [8, 16, 32]\nhardware = [\"h100\", \"h200\"]\nmodel = [\"llama-2-7b\", \"qwen3-8b\"]\nkv_cache_dtype = [\"auto\", \"fp8\"]\ngpu_memory_utilization = 0.8";
    let grid = grid(text).unwrap();
    // 2 models × 2 GPUs × 2 formats × 3 batch limits × 2 rates.
    let found: Vec<Configuration<'_>> = grid.configurations().collect();
    assert_eq!(found.len(), 48);
    let of = |at: usize| {
        let (server, load) = (&found[at].server.value, &found[at].load.value);
        (server.model.as_str(), server.hardware.as_str(), server.deployment.max_num_seqs, load.generated.request_rate)
    };
    assert_eq!(of(0), ("llama-2-7b", "h100", 8, Some(1.0)));
    assert_eq!(of(1), ("llama-2-7b", "h100", 8, Some(2.0)));
    assert_eq!(of(2), ("llama-2-7b", "h100", 16, Some(1.0)));
    assert_eq!(of(6), ("llama-2-7b", "h100", 8, Some(1.0)), "the next format");
    assert_eq!(of(12), ("llama-2-7b", "h200", 8, Some(1.0)));
    assert_eq!(of(47), ("qwen3-8b", "h200", 32, Some(2.0)));
    let share = |one: &Configuration| one.server.value.deployment.gpu_memory_utilization;
    assert!(found.iter().all(|one| (share(one) - 0.8).abs() < 1e-12));
    assert_eq!(
        found[47].varied(),
        "model qwen3-8b, hardware h200, kv_cache_dtype fp8, max_num_seqs 32, request_rate_per_s 2"
    );
    let mut told: Vec<String> = found.iter().map(|one| one.varied()).collect();
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), 48, "every configuration is told from the others");
}

#[test]
fn one_value_of_each_is_one_configuration() {
    let grid = grid("model = \"llama-2-7b\"\nhardware = [\"h100\"]\ntensor-parallel-size = 2").unwrap();
    let found: Vec<Configuration<'_>> = grid.configurations().collect();
    assert_eq!((found.len(), found[0].varied().as_str()), (2, "request_rate_per_s 1"));
    assert_eq!(found[0].server.value.deployment.tensor_parallel_size, 2);
    let all = "model llama-2-7b, hardware h100, tensor-parallel-size 2; num_requests 3, input_len_tokens 10, \
               output_len_tokens 5, burstiness 1, request_rate_per_s 1, seed 0";
    assert_eq!(grid.settings(found[0]), all);
}

#[test]
fn every_problem_is_reported_once() {
    let text = "speed = 3\nslo = true\n[server]\nmodel = [\"llama-2-7b\", \"qwen3-8b\"]\nhardware = []\nmax_num_seqs = [8, 0]\nmax_num_sequences = 4\nblock_size = nan\nkv_cache_dtype = [\"fp8\", \"fp8_e4m3\"]\n[load]\nseed = -1\n[hardware]\nname = \"h100\"\n";
    let found = problems(text);
    for said in [
        "speed is not a known key: known are server, slo, load",
        "slo = true must be an object of keys and values",
        "hardware is not a known key",
        "server.hardware = [] has no value",
        "[server] max_num_seqs = 0 must be a whole number from 1 to 4294967295",
        "[server] max_num_sequences is not a known key: did you mean max_num_seqs",
        "[server] block_size = \"nan\" must be a whole number",
        "load.seed = -1 must be a whole number from 0",
        "load.input_len is missing",
    ] {
        let told = found.iter().filter(|problem| problem.contains(said)).count();
        assert_eq!(told, 1, "'{said}' in {found:#?}");
    }
}

#[test]
fn values_that_are_listed_twice_are_refused() {
    let server = "model = \"llama-2-7b\"\nhardware = \"h100\"\n";
    let error = grid(&format!("{server}max_num_seqs = [8, 16, 8]")).unwrap_err().to_string();
    assert!(error.contains("server.max_num_seqs = 8 is listed twice, at place 3: keep one"), "{error}");
    let twice = "[load]\nconcurrency = 1\ninput_len_tokens = 10\noutput_len_tokens = 5\nseed = [3, -1, 3]\n";
    let found = problems(&format!("[server]\n{server}{twice}"));
    assert_eq!(
        found,
        [
            "load.seed = 3 is listed twice, at place 3: keep one",
            "load.seed = -1 must be a whole number from 0 to 18446744073709551615"
        ]
    );
}

#[test]
fn grids_that_are_none_say_so() {
    assert_eq!(problems("")[0], "[server] is missing or empty: give at least model and hardware");
    let error = Grid::parse("grid.toml", "[server\nmodel = 1").unwrap_err().to_string();
    assert!(error.starts_with("grid.toml: line 1 column ") && error.contains("is not well-formed TOML"), "{error}");
    let many = |count: usize| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let server = "model = \"llama-2-7b\"\nhardware = \"h100\"";
    let huge = format!("{server}\nmax_num_seqs = [{}]\nmax_num_batched_tokens = [{}]", many(400), many(400));
    let error = grid(&huge).unwrap_err().to_string();
    assert!(error.contains("makes 320000 configurations, at most 100000 are possible"), "{error}");
    let two = format!("{server}\nmax_num_seqs = [{}]\nmax_num_batched_tokens = [{}]", many(300), many(300));
    let error = grid(&two).unwrap_err().to_string();
    assert!(error.contains("makes 180000 configurations, at most 100000 are possible"), "{error}");
    let wrong = (0..50).map(|n| format!("key{n} = 1\n")).collect::<String>();
    let found = problems(&format!("[server]\n{server}\n{wrong}\n{LOAD}"));
    assert!(found.len() <= 22, "{}", found.len());
}

#[test]
fn long_texts_are_not_multiplied_out() {
    // 100,000 servers, each with 60,000 bytes of a name.
    let numbers = |to: u32| (1..=to).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    let server = format!("model = \"{}\"\nhardware = \"h100\"\n", "m".repeat(60_000));
    let long = format!("max_num_batched_tokens = [{}]\nmax_num_seqs = [{}]", numbers(100), numbers(500));
    let error = grid(&format!("{server}{long}")).unwrap_err().to_string();
    assert!(error.contains("repeat long texts of up to"), "{error}");
    let short = "model = \"llama-2-7b\"\nhardware = \"h100\"\n";
    assert_eq!(grid(&format!("{short}{long}")).unwrap().num_configurations(), 100_000);
}

#[test]
fn a_profile_is_not_shared_out_to_replicas() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.yaml");
    std::fs::write(&path, "load: {stages: [{rate: 1, duration: 5}]}\ndata: {type: mock}\n").unwrap();
    let text = format!(
        "[server]\nmodel = \"qwen3-8b\"\nhardware = \"h100\"\ndata_parallel_size = [1, 2]\n[load]\nprofile = '{}'\n",
        path.display()
    );
    let error = problems(&text).join("; ");
    assert!(error.contains("server.data_parallel_size = 2 with load.profile"), "{error}");
    let grid = Grid::parse("grid.toml", &text.replace("[1, 2]", "1")).unwrap();
    assert_eq!(
        (grid.num_configurations(), grid.configurations().next().unwrap().load.value.generated.request_rate),
        (1, None)
    );
}

/// A grid with these lines in `[server]`.
fn with_server(lines: &str) -> String {
    format!(
        "[server]\nmodel = \"llama-3.1-8b\"\nhardware = \"h100\"\n{lines}\n[load]\nrequest_rate_per_s = 1\n\
         input_len_tokens = 1\noutput_len_tokens = 1\nnum_requests = 1\n"
    )
}

#[test]
fn grids_of_many_keys_or_values_are_read_in_one_pass() {
    let values: Vec<String> = (1..=60_000).map(|value| value.to_string()).collect();
    let grid = Grid::parse("g", &with_server(&format!("max_num_seqs = [{}]", values.join(","))));
    assert_eq!(grid.unwrap().num_configurations(), 60_000);
    let twice = "1,".repeat(60_000);
    let error = Grid::parse("g", &with_server(&format!("max_num_seqs = [{twice}]"))).unwrap_err().to_string();
    assert!(error.contains("is listed twice, at place 2") && error.ends_with("and 59979 more"), "{error}");
    // Unknown keys with two values each would be 2^60000 servers.
    for value in ["1", "[1, 2]"] {
        let keys: String = (0..60_000).map(|key| format!("max_num_seqz{key} = {value}\n")).collect();
        let error = Grid::parse("g", &with_server(&keys)).unwrap_err().to_string();
        assert!(error.contains("max_num_seqz0 is not a known key: did you mean max_num_seqs"), "{error}");
        assert!(error.ends_with("more"), "{error}");
    }
}

#[test]
fn only_some_unknown_models_are_looked_up() {
    let names: Vec<String> = (0..50_000).map(|name| format!("\"llama-3.1-{name}x\"")).collect();
    let text = with_server("").replace("\"llama-3.1-8b\"", &format!("[{}]", names.join(",")));
    let grid = Grid::parse("g", &text).unwrap();
    let error = crate::sweep::Sweep::new(grid, ridgepoint::Options::default()).unwrap_err();
    assert_eq!(error.problems().len(), 20);
    assert!(error.to_string().ends_with("no other model or GPU of the grid was looked up"), "{error}");
    assert!(error.to_string().contains("unknown model 'llama-3.1-0x'"), "{error}");
}
