//! The memory equation against the block counts that real servers report. Needs `RIDGEPOINT_DATA`: servers in
//! `serving/*/exp-config.yaml`, step traces in `steps/*.csv`.

use std::path::{Path, PathBuf};

use ridgepoint::kv_capacity::OVERHEAD_BYTES;
use ridgepoint::units::GIB;
use ridgepoint::{Deployment, Engine};
use ridgepoint_replay::server_config::ServerConfig;

use crate::data_pack::data_pack;

/// Largest error of a server whose model is text alone, percent.
const MAX_ERROR_PCT: f64 = 1.0;

struct Server {
    name: String,
    config: ServerConfig,
    measured: u32,
}

fn entries(dir: PathBuf) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).expect("a folder").flatten().map(|e| e.path()).collect();
    paths.sort();
    paths
}

fn server(dir: &Path) -> Server {
    let config = ServerConfig::read(&dir.join("exp-config.yaml")).expect("a server");
    Server {
        name: dir.file_name().expect("a folder").to_string_lossy().into_owned(),
        measured: config.num_gpu_blocks_override.expect("its blocks"),
        config: ServerConfig { num_gpu_blocks_override: None, ..config },
    }
}

/// The traces name model, ranks and blocks in every row; the other arguments are those of the servers' files.
fn traced(path: &Path) -> Server {
    let text = std::fs::read_to_string(path).expect("a trace");
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let row: Vec<&str> = lines.next().expect("a row").split(',').collect();
    let value = |column: &str| row[header.iter().position(|name| *name == column).expect("a column")];
    let deployment = Deployment {
        max_model_len: Some(4096),
        max_num_batched_tokens: 2048,
        max_num_seqs: 128,
        ..Deployment::tensor_parallel(value("tp").parse().expect("a number"))
    };
    Server {
        name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
        config: ServerConfig::new("the trace", value("model"), "H100").with_deployment(deployment),
        measured: value("kv.blocks_total_gpu").parse().expect("a number"),
    }
}

#[test]
fn predicted_blocks_are_those_that_servers_report() {
    let Some(data) = data_pack("kv_capacity") else { return };
    let mut servers: Vec<Server> = entries(data.join("serving")).iter().map(|dir| server(dir)).collect();
    servers.extend(entries(data.join("steps")).iter().map(|path| traced(path)));
    println!("{:55} {:>9} {:>9} {:>7} {:>24}", "server", "reported", "predicted", "error", "left for the rest, GiB");
    let mut errors = Vec::new();
    for server in &servers {
        let config = &server.config;
        let (model, notes) = config.find_model(None).expect("a known model");
        assert!(notes.is_empty(), "{}: {notes:?}", server.name);
        let hardware = config.find_hardware(None).expect("a known GPU");
        let capacity =
            config.engine_config(&model, &hardware, &Engine::fitted()).expect("a server that started").capacity;
        // The tower of a multimodal model and its share of the profiling run are not in the equation.
        let is_multimodal = model.model_type.contains("llama4");
        let error_pct = 100.0 * (f64::from(capacity.num_gpu_blocks) / f64::from(server.measured) - 1.0);
        let measured_bytes = f64::from(server.measured) * capacity.block_bytes();
        let rest = (capacity.kv_cache_bytes - measured_bytes + OVERHEAD_BYTES) / GIB;
        let kind = if is_multimodal { " (vision tower)" } else { "" };
        println!(
            "{:55} {:>9} {:>9} {:>+6.2}% {rest:>9.2}{kind}",
            server.name, server.measured, capacity.num_gpu_blocks, error_pct
        );
        if is_multimodal {
            assert!(error_pct > 0.0, "{}", server.name);
        } else {
            errors.push(error_pct.abs());
        }
    }
    assert!(errors.len() >= 11, "{} servers", errors.len());
    let largest = errors.iter().copied().fold(0.0, f64::max);
    assert!(largest <= MAX_ERROR_PCT, "largest error {largest:.2} %");
}
