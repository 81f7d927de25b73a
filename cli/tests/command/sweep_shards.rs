//! `ridgepoint sweep --shard` and `--merge`: shards give the bytes of a run in one go, and what is lost or mixed is refused.

use serde_json::Value;

use crate::cli_support::Folder;
use crate::sweep::{GRID, sweep};
use crate::sweep_resume::killed;

/// Runs the shards of the grid but for some; returns their files.
fn run_shards(folder: &Folder, grid: &str, of: usize, ending: &str, lost: &[usize]) -> Vec<String> {
    let run = |number: usize| {
        let out = folder.path(&format!("part-{number}.{ending}"));
        let run = sweep(grid, &format!("--shard {number}/{of} --fresh --out {out}"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(run.stderr, "");
        assert!(run.stdout.contains(&format!("This is shard {number}/{of} of a grid of")), "{}", run.stdout);
        out
    };
    (1..=of).filter(|number| !lost.contains(number)).map(run).collect()
}

#[test]
fn merged_shards_are_the_bytes_of_one_run() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    for (of, ending) in [(1, "jsonl"), (2, "csv"), (3, "json"), (7, "csv"), (15, "json"), (15, "csv")] {
        let whole = folder.path(&format!("whole.{ending}"));
        let in_one_go = sweep(&grid, &format!("--out {whole} --format json")).json();
        let files = run_shards(&folder, &grid, of, ending, &[]).join(" ");
        let merged = format!("merged-{of}.{ending}");
        let line = format!("--merge {files} --out {} --format json", folder.path(&merged));
        let mut summary = sweep(&grid, &line).json();
        assert_eq!(folder.read(&merged), folder.read(&format!("whole.{ending}")), "{of} shards as {ending}");
        assert_eq!(summary["reused"], 12);
        for key in ["reused", "out"] {
            summary[key] = in_one_go[key].clone();
        }
        assert_eq!(summary, in_one_go);
    }
    // Of three, each has four rows; of fifteen, the last three have none.
    assert_eq!(folder.read("part-15.json"), "[]\n");
    assert_eq!(folder.read("part-15.csv").lines().count(), 1);
    for ending in ["csv", "json"] {
        let again = sweep(&grid, &format!("--shard 15/15 --out {}", folder.path(&format!("part-15.{ending}"))));
        assert_eq!((again.code, again.stderr.as_str()), (0, ""), "an empty file is one of rows");
    }
    // The formats of shards may differ from that of the whole, and shards may run again.
    let files = run_shards(&folder, &grid, 15, "csv", &[]).join(" ");
    assert_eq!(sweep(&grid, &format!("--merge {files} --out {}", folder.path("other.jsonl"))).code, 0);
    assert_eq!(folder.read("other.jsonl"), folder.read("whole.jsonl"));
}

#[test]
fn a_shard_lists_and_counts_its_configurations() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    let mut all: Vec<u64> = Vec::new();
    for number in 1..=5 {
        let listed = sweep(&grid, &format!("--shard {number}/5 --dry-run --format json")).json();
        let indexes: Vec<u64> = listed["configurations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|of| of["configuration"].as_u64().unwrap())
            .collect();
        assert!([2, 3].contains(&indexes.len()), "twelve on five");
        assert_eq!(listed["number"], indexes.len());
        assert_eq!(listed["shard"], serde_json::json!({ "number": number, "of": 5, "grid_configurations": 12 }));
        let out = folder.path("part.json");
        let ran = sweep(&grid, &format!("--shard {number}/5 --fresh --out {out} --format json")).json();
        assert_eq!((&ran["configurations"], &ran["best"]), (&indexes.len().into(), &Value::Array(Vec::new())));
        let rows: Vec<Value> = serde_json::from_str(&folder.read("part.json")).unwrap();
        assert_eq!(rows.iter().map(|row| row["configuration"].as_u64().unwrap()).collect::<Vec<_>>(), indexes);
        all.extend(indexes);
    }
    all.sort_unstable();
    assert_eq!(all, (0..12).collect::<Vec<_>>());
    let table = sweep(&grid, "--shard 7/20 --dry-run").stdout;
    assert!(
        table.contains("1 configuration, 0 of them known") && table.contains("shard 7/20 of a grid of 12"),
        "{table}"
    );
    let none = sweep(&grid, "--shard 20/20 --dry-run").stdout;
    assert!(none.contains("0 configurations"), "{none}");
    for wrong in ["0/3", "4/3", "2", "a/b"] {
        sweep(&grid, &format!("--shard {wrong} --dry-run")).fails(2, &["--shard", "must be i/n"]);
    }
    sweep(&grid, "--shard 1/2 --merge a.csv --dry-run").fails(2, &["cannot be used with"]);
}

#[test]
fn a_killed_shard_goes_on_where_it_was() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID.replace("num_requests = 40", "num_requests = 20000"));
    let out = folder.path("part-2.csv");
    let saved = killed(&grid, &out, &["--shard", "2/2"]);
    assert!((1..=6).contains(&saved));
    // What is missing is known before and after.
    let (first, merged) = (folder.path("part-1.csv"), folder.path("merged.csv"));
    assert_eq!(sweep(&grid, &format!("--shard 1/2 --out {first}")).code, 0);
    if saved < 6 {
        let command = format!("ridgepoint sweep {grid} --shard 2/2 --efficiency ideal --out {out}");
        sweep(&grid, &format!("--merge {first} {out} --out {merged}"))
            .fails(1, &[&format!("{} of 12 configurations have no row", 6 - saved), &command]);
    }
    assert_eq!(sweep(&grid, &format!("--shard 2/2 --out {out} --format json")).json()["reused"], saved);
    assert_eq!(sweep(&grid, &format!("--merge {first} {out} --out {merged}")).code, 0);
    assert_eq!(sweep(&grid, &format!("--out {}", folder.path("whole.csv"))).code, 0);
    assert_eq!(folder.read("merged.csv"), folder.read("whole.csv"));
}

#[test]
fn a_lost_shard_is_found_and_the_command_fills_it_in() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    run_shards(&folder, &grid, 3, "csv", &[2]);
    let out = folder.path("merged.csv");
    let [first, second, third] = [1, 2, 3].map(|number| folder.path(&format!("part-{number}.csv")));
    let expected = format!("ridgepoint sweep {grid} --shard 2/3 --efficiency ideal --out {second}");
    // By a pattern, which leaves the lost one out, and by name.
    for files in [format!("{first} {third}"), format!("{first} {second} {third}")] {
        sweep(&grid, &format!("--merge {files} --out {out}"))
            .fails(1, &["4 of 12 configurations have no row in what is merged", "merge again", &expected]);
        assert!(!std::path::Path::new(&out).exists());
        let listed = sweep(&grid, &format!("--merge {files} --dry-run --format json")).json();
        let unknown = listed["configurations"].as_array().unwrap().iter().filter(|of| of["is_known"] == false);
        assert_eq!(unknown.count(), 4);
    }
    let words: Vec<&str> = expected.split(' ').skip(1).collect();
    assert_eq!(crate::cli_support::run(&words).code, 0);
    assert_eq!(sweep(&grid, &format!("--merge {first} {second} {third} --out {out}")).code, 0);
    assert_eq!(sweep(&grid, &format!("--out {}", folder.path("whole.csv"))).code, 0);
    assert_eq!(folder.read("merged.csv"), folder.read("whole.csv"));
    // A file more than there are.
    let none = folder.path("none.csv");
    sweep(&grid, &format!("--merge {first} {second} {third} {none} --out {}", folder.path("new.csv")))
        .fails(1, &[&none, "No such file"]);
}

#[test]
fn rows_that_do_not_go_together_are_refused() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", GRID);
    let files = run_shards(&folder, &grid, 2, "json", &[]);
    let line = format!("--merge {} {} --out {}", files[0], files[1], folder.path("merged.json"));
    let (first, second) = (folder.read("part-1.json"), folder.read("part-2.json"));
    let refused = |name: &str, text: &str, said: &[&str]| {
        folder.write(name, text);
        sweep(&grid, &line).fails(1, said);
        folder.write("part-1.json", &first);
        folder.write("part-2.json", &second);
        assert!(!folder.names().contains(&"merged.json".to_owned()));
    };
    let other = first.replace(env!("CARGO_PKG_VERSION"), "0.0.1");
    refused(
        "part-1.json",
        &other,
        &[&files[0], "version 0.0.1", "is not of this sweep", "what one version made of one grid"],
    );
    let other = second.replace("max_num_seqs 64;", "max_num_seqs 3;");
    assert!(other != second);
    refused("part-2.json", &other, &[&files[1], "whose grid has no such settings"]);
    let mut rows: Vec<Value> = serde_json::from_str(&second).unwrap();
    let mut doubled: Value = serde_json::from_str::<Vec<Value>>(&first).unwrap().remove(0);
    rows.push(doubled.clone());
    folder.write("part-2.json", serde_json::to_string(&rows).unwrap());
    assert_eq!(sweep(&grid, &line).code, 0, "equal rows are one");
    std::fs::remove_file(folder.path("merged.json")).unwrap();
    doubled["steps"] = 1.into();
    rows.pop();
    rows.push(doubled);
    let differing = serde_json::to_string(&rows).unwrap();
    refused("part-2.json", &differing, &[&files[1], "differs from that of", &files[0], "in column 'steps'"]);
    refused("part-2.json", "[1]", &[&files[1], "is no table of a sweep"]);
    sweep(&grid, &format!("--merge {grid} --dry-run")).fails(1, &["merge: ", "grid.toml' must end in .csv"]);
    // No shard is written over, and no rows of others are taken over or lost.
    sweep(&grid, &format!("--merge {} {} --out {}", files[0], files[1], files[0]))
        .fails(1, &["a file that this run reads"]);
    sweep(&grid, &format!("--shard 2/2 --out {}", files[0]))
        .fails(1, &["is not of shard 2/2 but of shard 1/2", "fresh"]);
    assert_eq!((folder.read("part-1.json"), folder.read("part-2.json")), (first, second));
}

/// Runs a script of the examples on a grid as its scheduler does; the command is the one that is tested.
fn run_script(folder: &Folder, script: &[&str], environment: &[(&str, &str)]) {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_ridgepoint")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut command = std::process::Command::new(script[0]);
    command.args(&script[1..]).env("PATH", path).envs(environment.iter().copied()).current_dir(folder.path(""));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(unix)]
#[test]
fn the_scripts_of_the_examples_run_shards() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let folder = Folder::new();
    folder.write("grid.toml", GRID);
    let slurm = format!("{examples}/slurm/sweep.sbatch");
    let text = std::fs::read_to_string(&slurm).unwrap();
    assert!(text.contains("\n#SBATCH --array=1-16\n") && text.contains("\nshards=16\n"));
    for task in 1..=16 {
        let task = [("SLURM_ARRAY_TASK_ID", &*task.to_string()), ("SLURM_CPUS_PER_TASK", "1")];
        run_script(&folder, &["bash", &slurm, "grid.toml", "slurm"], &task);
    }
    // The command of the container, whose volume is the folder.
    let job = std::fs::read_to_string(format!("{examples}/kubernetes/sweep.yaml")).unwrap();
    assert!(job.contains("\n  completions: 16\n"));
    let lines = job
        .lines()
        .skip_while(|line| line.trim() != "- |")
        .skip(1)
        .take_while(|line| line.starts_with("              "));
    let script =
        lines.map(str::trim).collect::<Vec<_>>().join("\n").replace("/sweep/", &format!("{}/", folder.path("")));
    assert!(script.contains("ridgepoint sweep") && script.contains("$shard/16"), "{script}");
    for index in 0..16 {
        run_script(&folder, &["sh", "-euc", &script], &[("JOB_COMPLETION_INDEX", &index.to_string())]);
    }
    let whole = folder.path("whole.csv");
    let grid = folder.path("grid.toml");
    assert_eq!(crate::cli_support::run(&["sweep", &grid, "--out", &whole]).code, 0);
    for rows in ["slurm", "rows"] {
        let out = folder.path("merged.csv");
        let files: Vec<String> = (1..=16).map(|number| folder.path(&format!("{rows}/shard-{number}.csv"))).collect();
        let mut line = vec!["sweep", &grid, "--fresh", "--out", &out, "--merge"];
        line.extend(files.iter().map(String::as_str));
        assert_eq!(crate::cli_support::run(&line).code, 0);
        assert_eq!(folder.read("merged.csv"), folder.read("whole.csv"));
    }
}
