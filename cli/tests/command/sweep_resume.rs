//! `ridgepoint sweep` that resumes: after a stop, a kill, from its own output, and rows that it refuses.

use serde_json::Value;

use crate::cli_support::{Folder, binary, run};
use crate::sweep::{GRID, rows, sweep};

/// Leaves some rows of a finished sweep, as one that was stopped does, in the order in which they were finished.
fn stop(folder: &Folder, rows: usize) {
    let all: Vec<Value> = serde_json::from_str(&folder.read("out.json")).unwrap();
    let finished: Vec<&Value> = all.iter().take(rows).rev().collect();
    folder.write("out.json", serde_json::to_string(&finished).unwrap());
}

#[test]
fn a_stopped_sweep_goes_on_where_it_was() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    let line = format!("--out {} --format json", folder.path("out.json"));
    assert_eq!(sweep(&grid, &line).json()["reused"], 0);
    let whole = folder.read("out.json");
    assert_eq!(folder.names(), ["grid.toml", "out.json"], "nothing else is left");
    stop(&folder, 5);
    let listed = sweep(&grid, &format!("{line} --dry-run")).json();
    let known = listed["configurations"].as_array().unwrap().iter().filter(|of| of["is_known"] == true).count();
    assert_eq!((&listed["number"], known), (&12.into(), 5));
    assert_eq!(sweep(&grid, &line).json()["reused"], 5);
    assert_eq!(folder.read("out.json"), whole);
    assert_eq!(sweep(&grid, &line).json()["reused"], 12);
    // A longer grid runs what is new.
    let longer = folder.write("longer.toml", GRID.replace("[4, 16]", "[2, 4, 16]"));
    assert_eq!(sweep(&longer, &line).json()["reused"], 12);
    assert_eq!(rows(&folder, "out.json").len(), 18);
    assert_eq!(sweep(&grid, &format!("{line} --fresh")).json()["reused"], 0);
    assert_eq!(folder.read("out.json"), whole);
    assert_eq!(folder.names(), ["grid.toml", "longer.toml", "out.json"]);
}

#[test]
fn rows_of_csv_and_json_lines_are_known_again() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    for name in ["out.csv", "out.jsonl"] {
        let line = format!("--out {} --format json", folder.path(name));
        assert_eq!(sweep(&grid, &line).json()["reused"], 0);
        let whole = folder.read(name);
        assert_eq!(sweep(&grid, &line).json()["reused"], 12);
        assert_eq!(folder.read(name), whole);
    }
}

#[test]
fn rows_of_another_sweep_are_refused() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    let line = format!("--out {}", folder.path("out.json"));
    assert_eq!(sweep(&grid, &line).code, 0);
    let whole = folder.read("out.json");
    let out = folder.path("out.json");
    let other = folder.write("other.toml", GRID.replace("num_requests = 40", "num_requests = 41"));
    sweep(&other, &line).fails(1, &[&out, "is not of this sweep, whose grid has no such settings", "start anew"]);
    let spread = folder.write("spread.toml", GRID.replace("std_dev = 50", "std_dev = 60"));
    sweep(&spread, &line).fails(1, &["is not of this sweep"]);
    let tables = run(&format!("sweep {grid} {line}").split(' ').collect::<Vec<_>>());
    tables.fails(1, &["efficiency ideal", "is not of this sweep", "efficiency tables"]);
    for engine in ["--engine sglang", "--engine-version 0.14"] {
        sweep(&grid, &format!("{line} {engine}")).fails(1, &["engine vllm-0.24", "is not of this sweep, which is of"]);
    }
    assert_eq!(folder.read("out.json"), whole);
    assert_eq!(sweep(&other, &format!("{line} --fresh")).code, 0);
    let version = folder.read("out.json").replace(env!("CARGO_PKG_VERSION"), "0.0.1");
    folder.write("out.json", version);
    sweep(&other, &line).fails(1, &["version 0.0.1", "is not of this sweep"]);
}

#[test]
fn rows_that_are_older_than_their_input_are_refused() {
    let folder = Folder::new();
    let requests = folder.write("requests.csv", "arrival,input_len,output_len\n0,100,5\n1,200,5\n");
    let server = "[server]\nmodel = \"llama-3.1-8b\"\nhardware = \"h100\"\n";
    let grid = folder.write("grid.toml", format!("{server}[load]\nrequests = '{requests}'\n"));
    let line = format!("--out {} --format json", folder.path("out.csv"));
    assert_eq!(sweep(&grid, &line).json()["reused"], 0);
    assert_eq!(sweep(&grid, &line).json()["reused"], 1);
    std::thread::sleep(std::time::Duration::from_millis(20));
    folder.write("requests.csv", "arrival,input_len,output_len\n0,100,5\n1,900,5\n");
    sweep(&grid, &line).fails(1, &["holds rows that are older than", &requests]);
    assert_eq!(sweep(&grid, &format!("{line} --fresh")).json()["reused"], 0);
}

/// Starts a sweep of one thread, kills it once it has saved rows, and returns their number.
pub fn killed(grid: &str, out: &str, more: &[&str]) -> usize {
    let rows = || std::fs::read_to_string(out).unwrap_or_default().matches('\n').count().saturating_sub(1);
    let args = ["sweep", "--efficiency", "ideal", grid, "--out", out, "--threads", "1"];
    let mut child = binary().args(args).args(more).stdout(std::process::Stdio::null()).spawn().unwrap();
    while rows() == 0 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    rows()
}

#[test]
fn a_killed_sweep_keeps_what_was_saved() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID.replace("num_requests = 40", "num_requests = 20000"));
    let out = folder.path("out.csv");
    let saved = killed(&grid, &out, &[]);
    assert!(saved > 0);
    assert_eq!(sweep(&grid, &format!("--out {out} --format json")).json()["reused"], saved);
    let other = folder.path("other.csv");
    assert_eq!(sweep(&grid, &format!("--out {other}")).code, 0);
    assert_eq!(folder.read("out.csv"), folder.read("other.csv"));
}

#[cfg(unix)]
#[test]
fn links_between_folders_of_data_are_walked_once() {
    let folder = Folder::new();
    let tables = folder.path("data/bench_data");
    std::fs::create_dir_all(&tables).unwrap();
    for name in ["a", "b"] {
        std::os::unix::fs::symlink(".", format!("{tables}/{name}")).unwrap();
    }
    let grid = folder.write("grid.toml", GRID);
    let line = format!("--data-dir {} --out {} --format json", folder.path("data"), folder.path("out.csv"));
    assert_eq!(sweep(&grid, &line).json()["reused"], 0);
    assert_eq!(sweep(&grid, &line).json()["reused"], 12);
    std::thread::sleep(std::time::Duration::from_millis(20));
    folder.write("data/bench_data/new.txt", "");
    sweep(&grid, &line).fails(1, &["holds rows that are older than", "new.txt"]);
}

#[test]
fn figures_that_no_replay_gives_are_not_taken_over() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    let line = format!("--out {}", folder.path("out.csv"));
    sweep(&grid, &line);
    let text = folder.read("out.csv");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let column = lines[0].split(',').position(|name| name == "output_tokens_per_s").unwrap();
    let mut cells: Vec<&str> = lines[1].split(',').collect();
    cells[column] = "inf";
    lines[1] = cells.join(",");
    folder.write("out.csv", lines.join("\n") + "\n");
    sweep(&grid, &line).fails(1, &["column 'output_tokens_per_s': found inf, expected a finite number from 0"]);
}
