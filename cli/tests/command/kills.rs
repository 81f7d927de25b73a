//! Commands that are stopped while they write: by a signal that they see, and by one that they don't. Whatever the moment, an output
//! is what it was or what it will be. `RIDGEPOINT_KILLS` sets how often each command is killed.
#![cfg(unix)]

use std::hash::{BuildHasher, RandomState};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cli_support::{Folder, binary, write_gemm_measurements};
use crate::evaluate_support::write_plain;
use crate::fit_steps::steps;
use crate::sweep::GRID;

/// A replay of minutes.
const LONG: &str = "simulate --efficiency ideal --model llama-3.1-8b --hardware h100 --max-model-len 4096 --concurrency 4 \
                    --input-len 100 --output-len 400 --num-requests 200000";

fn start(line: &str) -> Child {
    let mut command = binary();
    command.args(line.split_ascii_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn temporary(folder: &Folder) -> Vec<String> {
    folder.names().into_iter().filter(|name| name.starts_with(".ridgepoint-")).collect()
}

/// Waits until a run has a temporary file.
fn wait_for_temporary(folder: &Folder, child: &mut Child) -> String {
    loop {
        if let Some(name) = temporary(folder).pop() {
            return name;
        }
        assert!(child.try_wait().unwrap().is_none(), "the run is over");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(signal: &str, child: &Child) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn signals_leave_no_temporary_file() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let folder = Folder::new();
        folder.write("big.json", "");
        let mut child =
            start(&format!("{LONG} --trace {} --output-csv {}", folder.path("big.json"), folder.path("new")));
        wait_for_temporary(&folder, &mut child);
        send(signal, &child);
        // A shell reports 128 and the signal's number.
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        assert_eq!((folder.names(), folder.read("big.json").len()), (vec!["big.json".to_owned()], 0));
    }
}

#[test]
fn the_next_run_removes_what_a_killed_one_left_and_nothing_of_one_that_lives() {
    let folder = Folder::new();
    let mut killed = start(&format!("{LONG} --trace {}", folder.path("big.json")));
    let left = wait_for_temporary(&folder, &mut killed);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(folder.names(), [left.as_str()]);
    let mut alive = start(&format!("{LONG} --trace {}", folder.path("big.json")));
    // It removes the old one before it makes its own.
    let own = loop {
        let own = wait_for_temporary(&folder, &mut alive);
        if own != left {
            break own;
        }
    };
    let short = LONG.replace("200000", "4");
    assert!(start(&format!("{short} --output-csv {}", folder.path("a.csv"))).wait().unwrap().success());
    assert_eq!(folder.names(), [own, "a.csv".to_owned()]);
    send("-TERM", &alive);
    alive.wait().unwrap();
    assert_eq!(folder.names(), ["a.csv"]);
}

/// The names of everything in a folder and below it.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = entries.flat_map(|path| if path.is_dir() { tree(&path) } else { vec![path] }).collect();
    all.sort();
    all
}

/// Kills a command at random times. `outputs` are its files; each of them is, after every kill, what it was or what `is_whole` says of
/// it. A last run ends well, and leaves nothing else.
fn kill(folder: &Folder, line: &str, outputs: &[&str], is_whole: &dyn Fn(&str, &str, &str) -> bool) {
    let kills: u64 = std::env::var("RIDGEPOINT_KILLS").map_or(4, |number| number.parse().unwrap());
    let begin = Instant::now();
    assert!(start(line).wait().unwrap().success(), "{line}");
    let mut whole_us = u64::try_from(begin.elapsed().as_micros()).unwrap();
    let new: Vec<String> = outputs.iter().map(|name| folder.read(name)).collect();
    let root = PathBuf::from(folder.path(""));
    let all = tree(&root);
    let (mut round, mut killed, mut left) = (0, 0, 0);
    while killed < kills {
        round += 1;
        assert!(round < 20 * kills, "{line} is too fast to be killed");
        // An older file of the same kind, so that no force is needed.
        let old = |new: &String| {
            let head: Vec<&str> = new.lines().take(3).collect();
            head.join("\n") + if head.len() < 3 { "\n\n" } else { "\n" }
        };
        let old: Vec<String> = new.iter().map(old).collect();
        for (name, text) in outputs.iter().zip(&old) {
            folder.write(name, text);
        }
        let mut child = start(line);
        std::thread::sleep(Duration::from_micros(RandomState::new().hash_one(round) % whole_us));
        child.kill().unwrap();
        // The machine may be faster or slower than it was.
        if child.wait().unwrap().signal() == Some(9) {
            killed += 1;
            whole_us += whole_us / 50;
        } else {
            whole_us -= whole_us / 20;
        }
        for ((name, old), new) in outputs.iter().zip(&old).zip(&new) {
            let found = folder.read(name);
            assert!(
                found == *old || is_whole(old, new, &found),
                "round {round}: {name} is neither old nor new: {found}"
            );
        }
        left = left.max(tree(&root).len() - all.len());
    }
    println!("{killed} of {round} were killed within {whole_us} µs, at most {left} files left: {line}");
    for name in outputs {
        std::fs::remove_file(folder.path(name)).unwrap();
    }
    assert!(start(line).wait().unwrap().success(), "{line}");
    assert_eq!(tree(&root), all);
    for (name, new) in outputs.iter().zip(&new) {
        assert_eq!(&folder.read(name), new, "{name}");
    }
}

fn is_new(_old: &str, new: &str, found: &str) -> bool {
    found == new
}

#[test]
fn a_killed_simulate_leaves_whole_files() {
    let folder = Folder::new();
    let [json, csv, trace] = ["a.json", "a.csv", "a.trace"].map(|name| folder.path(name));
    let line = LONG.replace("200000", "600");
    let line = format!("{line} --output-json {json} --output-csv {csv} --trace {trace}");
    kill(&folder, &line, &["a.json", "a.csv", "a.trace"], &is_new);
}

#[test]
fn a_killed_sweep_loses_no_row() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID.replace("num_requests = 40", "num_requests = 20000"));
    let line = format!("sweep --efficiency ideal {grid} --threads 1 --out {}", folder.path("out.csv"));
    kill_sweep(&folder, &line);
    // So does one shard, whose rows are not in a row in the grid.
    std::fs::remove_file(folder.path("out.csv")).unwrap();
    kill_sweep(&folder, &format!("{line} --shard 2/2"));
}

fn kill_sweep(folder: &Folder, line: &str) {
    // Rows are saved as they come, in any order, and after those that were there.
    let rows = |old: &str, new: &str, found: &str| {
        let known: Vec<&str> = new.lines().collect();
        found.starts_with(old) && found.lines().all(|line| known.contains(&line)) || found == new
    };
    kill(folder, line, &["out.csv"], &rows);
}

#[test]
fn a_killed_ingest_leaves_whole_tables() {
    let folder = Folder::new();
    let trace = folder.write("chat.csv", steps("chat", 20_000));
    let out = folder.path("out");
    kill(&folder, &format!("ingest {trace} --hardware h100 --out {out}"), &["out/steps.csv"], &is_new);
}

#[test]
fn a_killed_fit_leaves_a_whole_correction() {
    let folder = Folder::new();
    let trace = folder.write("chat.csv", steps("chat", 60));
    let line = format!("fit --steps {trace} --hardware h100 --force --out {}", folder.path("my.toml"));
    kill(&folder, &line, &["my.toml"], &is_new);
}

#[test]
fn a_killed_export_leaves_whole_tables() {
    let folder = Folder::new();
    let line = format!("export --model llama-3.1-8b --hardware h100 --force --out {}", folder.path("t.json"));
    kill(&folder, &line, &["t.json"], &is_new);
}

#[test]
fn a_killed_calibrate_leaves_whole_tables() {
    let folder = Folder::new();
    write_gemm_measurements(folder.path("runs").as_ref());
    let (runs, out) = (folder.path("runs"), folder.path("out"));
    let line = format!("calibrate --measurements {runs} --hardware h100 --out {out}");
    kill(&folder, &line, &["out/h100_sxm/gemm.csv"], &is_new);
}

#[test]
fn a_killed_evaluation_leaves_whole_plots() {
    let folder = Folder::new();
    let run = write_plain(folder.path("").as_ref(), "a");
    let out = folder.path("plots");
    let line = format!("evaluate serving {} --correction none --plot {out}", run.display());
    kill(&folder, &line, &["plots/serving-predicted-over-measured.svg"], &is_new);
}
