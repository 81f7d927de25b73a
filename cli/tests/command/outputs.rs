//! What the command writes, whichever subcommand it is: no input is replaced, nothing of others either, and files are whole.
//! Runs that are killed are in `kills`.

use crate::cli_support::{Folder, Run, run, simulate};
use crate::fit_steps::steps;
use crate::sweep::{GRID, sweep};

const SERVER: &str = "--model llama-3.1-8b --hardware h100 --max-model-len 4096";
const LOOP: &str = "--concurrency 2 --num-requests 4 --input-len 8 --output-len 4";
const MODEL: &str = include_str!("../../../models/llama-3.1-8b.json");
const GPU: &str = include_str!("../../../hardware/h100_sxm.toml");

fn command(line: &str) -> Run {
    run(&line.split_ascii_whitespace().collect::<Vec<_>>())
}

/// A correction without effect.
fn correction() -> String {
    ridgepoint::Correction::neutral().to_toml_string().unwrap()
}

#[cfg(unix)]
fn link(folder: &Folder, from: &str, to: &str) -> String {
    std::os::unix::fs::symlink(folder.path(to), folder.path(from)).unwrap();
    folder.path(from)
}

#[test]
fn ingest_never_replaces_what_it_reads() {
    let folder = Folder::new();
    let raw = steps("chat", 40);
    let trace = folder.write("steps.csv", &raw);
    let here = folder.path("");
    for force in ["", "--force"] {
        command(&format!("ingest {trace} --out {here} --hardware h100 {force}"))
            .fails(1, &["steps.csv: is a file that this run reads", "give another path"]);
    }
    assert_eq!((folder.read("steps.csv"), folder.names()), (raw, vec!["steps.csv".to_owned()]));
    // A table of its own kind is an input too.
    let out = folder.path("out");
    assert_eq!(command(&format!("ingest {trace} --out {out} --hardware h100")).code, 0);
    let table = folder.read("out/steps.csv");
    command(&format!("ingest {out}/steps.csv --out {out} --model llama-2-7b")).fails(1, &["that this run reads"]);
    assert_eq!(folder.read("out/steps.csv"), table);
    // The same call again renews it.
    assert_eq!(command(&format!("ingest {trace} --out {out} --hardware h200")).code, 0);
    assert!(folder.read("out/steps.csv").contains("h200"));
}

#[cfg(unix)]
#[test]
fn an_input_is_known_by_any_of_its_names() {
    let folder = Folder::new();
    let raw = steps("chat", 40);
    let trace = folder.write("raw.csv", &raw);
    for hard in [false, true] {
        let out = folder.path(&format!("out-{hard}"));
        std::fs::create_dir(&out).unwrap();
        let table = format!("{out}/steps.csv");
        if hard {
            std::fs::hard_link(&trace, table).unwrap();
        } else {
            std::os::unix::fs::symlink(&trace, table).unwrap();
        }
        let run = command(&format!("ingest {trace} --out {out} --hardware h100 --force"));
        run.fails(1, &["steps.csv: is a file that this run reads, by the name of ", "raw.csv"]);
    }
    let m = folder.write("m.json", MODEL);
    let by_link = link(&folder, "l.json", "m.json");
    simulate(&format!("--model {by_link} --hardware h100 {LOOP} --output-json {m} --force"))
        .fails(1, &["that this run reads"]);
    assert_eq!((folder.read("raw.csv"), folder.read("m.json")), (raw, MODEL.to_owned()));
}

#[test]
fn tables_of_others_are_kept_and_then_nothing_is_written() {
    let folder = Folder::new();
    let trace = folder.write("raw.csv", steps("chat", 40));
    let out = folder.path("out");
    std::fs::create_dir(&out).unwrap();
    folder.write("out/steps.csv", "step,time\n1,2\n");
    let line = format!("ingest {trace} --out {out} --hardware h100");
    command(&line).fails(1, &["steps.csv: is there already and is not a step table", "--force"]);
    assert_eq!(folder.read("out/steps.csv"), "step,time\n1,2\n");
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
    assert_eq!(command(&format!("{line} --force")).code, 0);
    assert!(folder.read("out/steps.csv").starts_with("experiment,model,"));
    folder.write("out/steps.csv", "");
    assert_eq!(command(&line).code, 0, "an empty file is no loss");
}

#[test]
fn sweep_never_replaces_what_it_reads() {
    let folder = Folder::new();
    let requests = folder.write("req.csv", "arrival,input_len,output_len\n0,10,5\n");
    let model = folder.write("m.json", MODEL);
    let gpu = folder.write("gpu.toml", GPU);
    let text = format!("[server]\nmodel = '{model}'\nhardware = '{gpu}'\n[load]\nrequests = '{requests}'\n");
    let grid = folder.write("grid.csv", text);
    let before = ["req.csv", "m.json", "grid.csv"].map(|name| folder.read(name));
    for out in [&requests, &model, &grid] {
        for more in ["", "--fresh", "--fresh --force", "--force"] {
            sweep(&grid, &format!("--out {out} {more}")).fails(1, &["is a file that this run reads"]);
        }
    }
    assert_eq!(["req.csv", "m.json", "grid.csv"].map(|name| folder.read(name)), before);
    assert_eq!(folder.names(), ["gpu.toml", "grid.csv", "m.json", "req.csv"]);
}

#[test]
fn sweep_starts_over_in_a_file_of_others_by_force_alone() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    let other = folder.write("other.csv", "arrival,input_len,output_len\n0,10,5\n");
    for more in ["", "--fresh"] {
        sweep(&grid, &format!("--out {other} {more}"))
            .fails(1, &["is there already and is not a table of `ridgepoint sweep`"]);
    }
    assert_eq!(folder.read("other.csv").lines().count(), 2);
    assert_eq!(sweep(&grid, &format!("--out {other} --force --format json")).json()["reused"], 0);
    assert_eq!(sweep(&grid, &format!("--out {other} --format json")).json()["reused"], 12);
}

#[test]
fn simulate_never_replaces_what_it_reads() {
    let folder = Folder::new();
    let model = folder.write("m.json", MODEL);
    let gpu = folder.write("gpu.toml", GPU);
    let fitted = folder.write("k.toml", correction());
    let load = folder.write("load.csv", "arrival,input_len,output_len\n0,5,5\n");
    let config = folder.write("server.yaml", format!("model: {model}\nhardware: {gpu}\n"));
    let names = folder.names();
    let before: Vec<String> = names.iter().map(|name| folder.read(name)).collect();
    let given = format!("--model {model} --hardware {gpu} {LOOP} --max-model-len 4096");
    for (line, read) in [
        (given.clone(), &model),
        (given, &gpu),
        (format!("{SERVER} --requests {load}"), &load),
        (format!("--config {config} {LOOP} --max-model-len 4096"), &config),
        (format!("--config {config} {LOOP} --max-model-len 4096"), &model),
        (format!("--config {config} {LOOP} --max-model-len 4096"), &gpu),
    ] {
        for output in ["--output-json", "--output-csv", "--trace"] {
            simulate(&format!("{line} {output} {read} --force")).fails(1, &["is a file that this run reads"]);
        }
    }
    command(&format!("simulate {SERVER} {LOOP} --correction {fitted} --output-json {fitted} --force"))
        .fails(1, &["is a file that this run reads"]);
    assert_eq!(folder.names(), names);
    assert_eq!(names.iter().map(|name| folder.read(name)).collect::<Vec<_>>(), before);
}

#[test]
fn fit_and_export_never_replace_what_they_read() {
    let folder = Folder::new();
    let trace = folder.write("steps.csv", steps("chat", 40));
    let fitted = folder.write("k.toml", correction());
    let before = folder.read("steps.csv");
    let labels = "--hardware h100 --force";
    let read = ["is a file that this run reads"];
    command(&format!("fit --steps {trace} --out {trace} {labels}")).fails(1, &read);
    command(&format!("fit --steps {trace} --prior {fitted} --out {fitted} {labels}")).fails(1, &read);
    // A folder is read too.
    command(&format!("fit --steps {} --out {trace} {labels}", folder.path(""))).fails(1, &read);
    let served = "export --model llama-3.1-8b --hardware h100";
    command(&format!("{served} --correction {fitted} --out {fitted} --force")).fails(1, &read);
    command(&format!("{served} --out {trace}"))
        .fails(1, &["is there already and is not a file of `ridgepoint export`"]);
    assert_eq!((folder.read("steps.csv"), folder.read("k.toml")), (before, correction()));
}

#[test]
fn tables_of_a_data_folder_are_inputs_of_predictions_and_outputs_of_calibrate() {
    let folder = crate::cli_support::data_dir_with_tables();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let table = path("bench_data/h100_sxm/gemm.csv");
    command(&format!("simulate {SERVER} {LOOP} --data-dir {} --output-csv {table} --force", path("")))
        .fails(1, &["is a file that this run reads"]);
    // Measurements lie in a folder of their own; tables of the same names must not take their place.
    let own = path("h100_sxm");
    std::fs::rename(path("made_up"), &own).unwrap();
    command(&format!("calibrate --measurements {own} --hardware h100 --out {} --force", path("")))
        .fails(1, &["gemm.csv: is a file that this run reads"]);
    let line =
        format!("calibrate --measurements {own} --hardware h100 --out {} --data-dir {}", path("bench_data"), path(""));
    assert_eq!(command(&line).code, 0);
    let before = std::fs::read(&table).unwrap();
    std::fs::write(path("bench_data/h100_sxm/attention_prefill.csv"), "of another kind").unwrap();
    command(&line).fails(1, &["attention_prefill.csv: is there already and is not an efficiency table"]);
    assert_eq!(std::fs::read(&table).unwrap(), before);
}

#[cfg(unix)]
#[test]
fn nobody_can_foresee_the_name_of_a_temporary_file() {
    let folder = Folder::new();
    folder.write("victim", "precious");
    // `exec` keeps the number of the process.
    let script = format!(
        "cd {} && ln -s victim .o.json.$$.tmp && exec {} simulate {SERVER} {LOOP} --efficiency ideal --output-json o.json",
        folder.path(""),
        env!("CARGO_BIN_EXE_ridgepoint")
    );
    let done = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(folder.read("victim"), "precious");
    assert!(!std::path::Path::new(&folder.path("o.json")).is_symlink());
    assert!(folder.read("o.json").starts_with("{\"backend\":\"ridgepoint\""));
}

#[cfg(unix)]
#[test]
fn a_renewed_file_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let out = folder.write("o.json", "");
    let mode = || std::fs::metadata(&out).unwrap().permissions().mode() & 0o7777;
    for expected in [0o600, 0o640, 0o400] {
        std::fs::set_permissions(&out, PermissionsExt::from_mode(expected)).unwrap();
        assert_eq!(simulate(&format!("{SERVER} {LOOP} --output-json {out}")).code, 0);
        assert_eq!(mode(), expected);
    }
    assert!(folder.read("o.json").len() > 100);
}

#[cfg(unix)]
#[test]
fn a_link_to_nothing_is_refused_and_long_names_are_taken() {
    let folder = Folder::new();
    let dangling = link(&folder, "o.json", "nowhere.json");
    simulate(&format!("{SERVER} {LOOP} --output-json {dangling}"))
        .fails(1, &["o.json: is a link to ", "nowhere.json, which is not there"]);
    assert!(std::path::Path::new(&dangling).is_symlink());
    assert_eq!(folder.names(), ["o.json"]);
    for length in [250, 255] {
        let name = "n".repeat(length);
        assert_eq!(simulate(&format!("{SERVER} {LOOP} --output-json {}", folder.path(&name))).code, 0, "{length}");
        assert!(!folder.read(&name).is_empty());
    }
}

#[test]
fn rows_of_other_built_in_data_are_not_reused() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    let out = folder.path("out.json");
    assert_eq!(sweep(&grid, &format!("--out {out}")).code, 0);
    let rows = folder.read("out.json");
    let version = serde_json::from_str::<serde_json::Value>(&rows).unwrap()[0]["version"].as_str().unwrap().to_owned();
    let (release, data) = version.split_once('+').unwrap();
    assert_eq!((release, data.len()), (env!("CARGO_PKG_VERSION"), 16));
    folder.write("out.json", rows.replace(data, "0000000000000000"));
    sweep(&grid, &format!("--out {out}")).fails(1, &["+0000000000000000", "is not of this sweep", "start anew"]);
}

#[test]
fn repeating_a_command_needs_no_force() {
    let folder = Folder::new();
    let out = |name: &str| folder.path(name);
    let lines = [
        format!(
            "simulate {SERVER} {LOOP} --output-json {} --save-detailed --output-csv {} --trace {}",
            out("a.json"),
            out("a.csv"),
            out("a.trace")
        ),
        format!("export --model llama-3.1-8b --hardware h100 --out {}", out("e.json")),
    ];
    for line in lines {
        for _ in 0..2 {
            let run = command(&line);
            assert_eq!(run.code, 0, "{}", run.stderr);
        }
    }
    for kind in ["--output-json", "--output-csv", "--output-tokens", "--output-otlp", "--trace"] {
        let message = ["is there already and is not", "--force"];
        simulate(&format!("{SERVER} {LOOP} {kind} {}", out("e.json"))).fails(1, &message);
    }
    for help in ["simulate", "sweep", "ingest", "fit", "export", "calibrate"] {
        let text = run(&[help, "--help"]).stdout;
        assert!(text.contains("--force") && text.contains("never replaced"), "{help}");
    }
}
