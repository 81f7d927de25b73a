//! Runs the `ridgepoint` binary for tests, and makes the files that it reads.
#![allow(dead_code)]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

/// What a run left behind.
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    /// Asserts that the run failed with `code`, printed nothing on stdout, and said each of `said`.
    #[track_caller]
    pub fn fails(&self, code: i32, said: &[&str]) {
        assert_eq!(self.code, code, "stdout {} stderr {}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for text in said {
            assert!(self.stderr.contains(text), "'{text}' is not in: {}", self.stderr);
        }
    }
}

pub fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ridgepoint"));
    command.stdin(Stdio::null()).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    command
}

pub fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Run {
    let output = binary().args(args).output().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `predict-step` on the textbook roofline, which needs no tables; `line` is split at blanks.
pub fn predict(line: &str) -> Run {
    let mut args = vec!["predict-step", "--efficiency", "ideal"];
    args.extend(line.split_ascii_whitespace());
    run(&args)
}

/// Predicts the batch in `text` for a small model.
pub fn predict_batch(text: &str) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("batch.json");
    std::fs::write(&path, text).unwrap();
    predict(&format!("--model llama-3.1-8b --hardware h100 --batch {} --format json", path.display()))
}

/// Runs `simulate` on the textbook roofline; `line` is split at blanks.
pub fn simulate(line: &str) -> Run {
    let mut args = vec!["simulate", "--efficiency", "ideal"];
    args.extend(line.split_ascii_whitespace());
    run(&args)
}

/// A folder of files made by hand.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file; returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Names of everything in the folder, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The GPU of the made-up measurements, as its driver calls it.
pub const DEVICE: &str = "NVIDIA H100 80GB HBM3";

fn roofline_us(flops: f64, bytes: f64) -> f64 {
    (flops / 700e12).max(bytes / 2.8e12) * 1e6
}

/// Writes a folder of made-up measurements of projections.
pub fn write_gemm_measurements(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let mut gemm = "dtype,m,n,k,latency_us\n".to_owned();
    for m in [1.0, 16.0, 64.0, 256.0, 1024.0, 4096.0] {
        for n in [1024.0, 4096.0, 16384.0] {
            for k in [1024.0, 4096.0, 16384.0] {
                let time_us = 3.0 + roofline_us(2.0 * m * n * k, 2.0 * (m * n + m * k + n * k));
                writeln!(gemm, "bfloat16,{m},{n},{k},{time_us:.3}").unwrap();
            }
        }
    }
    std::fs::write(dir.join("gemm.csv"), gemm).unwrap();
    let meta = format!("framework = \"vLLM\"\nversion = \"0.14.0\"\ndevice = \"{DEVICE}\"\n");
    std::fs::write(dir.join("meta.toml"), meta).unwrap();
}

/// Writes a folder of made-up measurements that is enough for a dense model on one GPU.
pub fn write_measurements(dir: &Path) {
    write_gemm_measurements(dir);
    let heads = "32,8,128,bfloat16,0";
    let columns = "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size";
    let mut decode = format!("{columns},kv_tokens_total,kv_tokens_max,latency_us\n");
    let mut prefill = format!("{columns},num_scheduled_tokens,num_computed_tokens,latency_us\n");
    for batch in [1.0, 8.0, 64.0, 256.0] {
        for tokens in [16.0, 128.0, 1024.0, 8192.0] {
            let time_us = 6.0 + roofline_us(0.0, 4096.0 * batch * tokens);
            writeln!(decode, "{heads},{batch},{},{tokens},{time_us:.3}", batch * tokens).unwrap();
            let time_us = 8.0 + roofline_us(3.0 * 8192.0 * batch * tokens * tokens, 20480.0 * batch * tokens);
            writeln!(prefill, "{heads},{batch},{tokens},0,{time_us:.3}").unwrap();
        }
    }
    std::fs::write(dir.join("attention_decode.csv"), decode).unwrap();
    std::fs::write(dir.join("attention_prefill.csv"), prefill).unwrap();
}

/// A data directory with tables for the H100 that are built from made-up measurements: once per test binary, and then copied.
pub fn data_dir_with_tables() -> tempfile::TempDir {
    static BUILT: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        let measurements = dir.path().join("made_up");
        write_measurements(&measurements);
        let (measurements, out) = (measurements.to_str().unwrap(), dir.path().join("bench_data"));
        let line = ["calibrate", "--measurements", measurements, "--hardware", "h100", "--out", out.to_str().unwrap()];
        let run = run(&line);
        assert_eq!(run.code, 0, "{}", run.stderr);
        dir
    });
    let dir = tempfile::tempdir().unwrap();
    for folder in ["made_up", "bench_data/h100_sxm"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        for file in std::fs::read_dir(BUILT.path().join(folder)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), dir.path().join(folder).join(file.file_name())).unwrap();
        }
    }
    dir
}
