//! Starts a process for each target, again after one that died, and prints the counts.

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use ridgepoint_fuzz::{Target, find, targets};

use crate::Args;
use crate::worker::{STOPPED, save_finding};

/// Most processes of a target that may die.
const MOST_DEATHS: u32 = 5;

/// The counts of a target.
struct Counts {
    cases: u64,
    max_bytes: u64,
    slowest_us: u64,
    findings: Vec<String>,
    seconds: f64,
}

/// Runs the targets one after the other.
pub fn run(args: &Args) -> ExitCode {
    if args.list {
        targets().iter().for_each(|target| say(target.name));
        return ExitCode::SUCCESS;
    }
    let named: Option<Vec<Target>> = args.targets.iter().map(|name| find(name)).collect();
    let Some(named) = named else {
        eprintln!("no such target; --list prints their names");
        return ExitCode::from(2);
    };
    let named = if named.is_empty() { targets().to_vec() } else { named };
    let (mut cases, mut findings) = (0, Vec::new());
    say(&format!(
        "{:22} {:>10} {:>9} {:>9} {:>11} {:>8}",
        "target", "cases", "cases/s", "most MB", "slowest ms", "findings"
    ));
    for target in named {
        match of_target(args, target) {
            Ok(counts) => {
                let rate = counts.cases as f64 / counts.seconds;
                let (mb, ms) = (counts.max_bytes as f64 / 1e6, counts.slowest_us as f64 / 1e3);
                let (name, found) = (target.name, counts.findings.len());
                say(&format!("{name:22} {:>10} {rate:>9.0} {mb:>9.1} {ms:>11.1} {found:>8}", counts.cases));
                cases += counts.cases;
                findings.extend(counts.findings);
            }
            Err(error) => findings.push(format!("{}: {error}", target.name)),
        }
    }
    say(&format!("{:22} {cases:>10} {:38} {:>3}", "all", "", findings.len()));
    findings.iter().for_each(|finding| say(finding));
    ExitCode::from(u8::from(!findings.is_empty()))
}

fn say(line: &str) {
    use io::Write;
    let _ = writeln!(io::stdout(), "{line}");
}

fn of_target(args: &Args, target: Target) -> io::Result<Counts> {
    let folder = tempfile::tempdir()?;
    let report = folder.path();
    let started = Instant::now();
    let (mut first, mut careful) = (0, false);
    let mut counts = Counts { cases: 0, max_bytes: 0, slowest_us: 0, findings: Vec::new(), seconds: 0.0 };
    for _ in 0..=MOST_DEATHS {
        let left = args.seconds - started.elapsed().as_secs_f64();
        let status = worker(args, target, report, first, left.max(0.5), careful)?;
        let words = std::fs::read_to_string(report.join("progress")).unwrap_or_default();
        let mut words = words.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
        let next = words.next().unwrap_or(0);
        counts.max_bytes = counts.max_bytes.max(words.next().unwrap_or(0));
        counts.slowest_us = counts.slowest_us.max(words.next().unwrap_or(0));
        counts.cases += next.saturating_sub(first);
        first = next;
        if status.success() {
            break;
        }
        if status.code() == Some(STOPPED) {
            careful = false;
        } else if careful {
            let bytes = std::fs::read(report.join("case"))?;
            save_finding(&args.findings, report, target.name, "abort", &status.to_string(), &bytes);
            (careful, first) = (false, next + 1);
        } else {
            // The cases since the last word run again, each saved before.
            careful = true;
        }
    }
    let findings = std::fs::read_to_string(report.join("findings")).unwrap_or_default();
    counts.findings = findings.lines().map(str::to_owned).collect();
    counts.seconds = started.elapsed().as_secs_f64();
    Ok(counts)
}

fn worker(
    args: &Args,
    target: Target,
    report: &Path,
    first: u64,
    seconds: f64,
    careful: bool,
) -> io::Result<std::process::ExitStatus> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(target.name).arg("--report").arg(report).arg("--findings").arg(&args.findings);
    for (flag, value) in [
        ("--seconds", seconds.to_string()),
        ("--cases", args.cases.saturating_sub(first).to_string()),
        ("--seed", args.seed.to_string()),
        ("--limit-ms", args.limit_ms.to_string()),
        ("--limit-mb", args.limit_mb.to_string()),
        ("--first", first.to_string()),
    ] {
        command.arg(flag).arg(value);
    }
    if careful {
        command.arg("--careful");
    }
    if !args.replay.is_empty() {
        command.arg("--replay").args(&args.replay);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
}
