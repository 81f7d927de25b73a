//! The process of one target: runs cases, watches over them, and reports in files.

use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ridgepoint_fuzz::corpus::Corpus;
use ridgepoint_fuzz::{Target, find, mutate};

use crate::Args;

/// Exit code of a process that its watch has ended.
pub const STOPPED: i32 = 3;

/// Resident memory at which the watch ends the process, bytes.
const MAX_RESIDENT_BYTES: u64 = 2 << 30;

/// A case whose CPU time exceeds the limit this many times is not waited for.
const HOPELESS: u64 = 10;

/// A case that takes this long is not waited for, whatever its CPU time: it may wait for something.
const ENDLESS: Duration = Duration::from_secs(600);

/// Most findings of a process; further ones are counted as their likes.
const MOST_FINDINGS: usize = 20;

/// The case that runs.
#[derive(Default)]
struct Current {
    index: u64,
    bytes: Vec<u8>,
}

static CURRENT: Mutex<Current> = Mutex::new(Current { index: 0, bytes: Vec::new() });
static PANIC: Mutex<String> = Mutex::new(String::new());

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a process has done; its last words are its file `progress`.
#[derive(Default)]
struct Progress {
    next: u64,
    max_bytes: u64,
    slowest: Duration,
}

struct Worker<'a> {
    args: &'a Args,
    target: Target,
    report: &'a Path,
    known: Vec<String>,
}

/// Runs the cases of the first target.
pub fn run(args: &Args, report: &Path) -> ExitCode {
    let Some(target) = args.targets.first().and_then(|name| find(name)) else { return ExitCode::from(2) };
    std::panic::set_hook(Box::new(|info| *lock(&PANIC) = info.to_string().replace('\n', " ")));
    let mut worker = Worker { args, target, report, known: Vec::new() };
    if args.replay.is_empty() {
        worker.mutations()
    } else {
        worker.files()
    }
    ExitCode::SUCCESS
}

impl Worker<'_> {
    fn files(&mut self) {
        for path in &self.args.replay {
            let Ok(bytes) = std::fs::read(path) else { continue };
            self.case(&bytes, &mut Progress::default());
        }
    }

    fn mutations(&mut self) {
        let Ok(corpus) = Corpus::of_target(self.target.name) else { return };
        let (args, first) = (self.args, self.args.worker.first);
        let mut progress = Progress { next: first, ..Progress::default() };
        self.save(&progress);
        // What a target makes once is made here and not measured.
        corpus.files.iter().for_each(|file| drop(catch_unwind(AssertUnwindSafe(|| (self.target.run)(file)))));
        self.watch();
        let seed = args.seed ^ hash(&self.target.name);
        let (start, mut saved) = (Instant::now(), Instant::now());
        while progress.next < first.saturating_add(args.cases) {
            if progress.next.is_multiple_of(16) && saved.elapsed() > Duration::from_millis(500) {
                self.save(&progress);
                saved = Instant::now();
            }
            if start.elapsed().as_secs_f64() > args.seconds || self.known.len() >= MOST_FINDINGS {
                break;
            }
            let bytes = mutate::case(&corpus, seed, progress.next);
            {
                let mut current = lock(&CURRENT);
                current.index = progress.next;
                current.bytes.clone_from(&bytes);
            }
            if args.worker.careful {
                let _ = std::fs::write(self.report.join("case"), &bytes);
                self.save(&progress);
            }
            self.case(&bytes, &mut progress);
            progress.next += 1;
        }
        self.save(&progress);
    }

    fn case(&mut self, bytes: &[u8], progress: &mut Progress) {
        let started = Instant::now();
        let mut ended = Ok(());
        let used = allocation_counter::measure(|| ended = catch_unwind(AssertUnwindSafe(|| (self.target.run)(bytes))));
        let took = started.elapsed();
        if ended.is_err() {
            let message = lock(&PANIC).clone();
            self.found("panic", &message, bytes);
        }
        if used.bytes_max > self.args.limit_mb << 20 {
            self.found("memory", &format!("{} MB at once", used.bytes_max >> 20), bytes);
        }
        let mut took_cpu = took;
        if took > Duration::from_millis(self.args.limit_ms) {
            // The machine may have been busy: its CPU time counts, of another run.
            let before = cpu("thread-self");
            drop(catch_unwind(AssertUnwindSafe(|| (self.target.run)(bytes))));
            took_cpu = cpu("thread-self").saturating_sub(before);
            if took_cpu > Duration::from_millis(self.args.limit_ms) {
                self.found("hang", &format!("{} ms", took_cpu.as_millis()), bytes);
            }
        }
        progress.max_bytes = progress.max_bytes.max(used.bytes_max);
        progress.slowest = progress.slowest.max(took_cpu);
    }

    fn found(&mut self, kind: &str, message: &str, bytes: &[u8]) {
        // Numbers do not distinguish findings.
        let name = if kind == "panic" {
            message.chars().filter(|c| !c.is_ascii_digit()).take(100).collect()
        } else {
            kind.to_owned()
        };
        if !self.known.contains(&name) {
            self.known.push(name);
            save_finding(&self.args.findings, self.report, self.target.name, kind, message, bytes);
        }
    }

    fn save(&self, progress: &Progress) {
        let Progress { next, max_bytes, slowest } = progress;
        let _ = std::fs::write(self.report.join("progress"), format!("{next} {max_bytes} {}", slowest.as_micros()));
    }

    /// Ends the process when a case takes far too much of time or memory.
    fn watch(&self) {
        let task = std::fs::read_link("/proc/thread-self").unwrap_or_default();
        let task = task.display().to_string();
        let (findings, report, limit) = (self.args.findings.clone(), self.report.to_owned(), self.args.limit_ms);
        let name = self.target.name;
        let stop = move |kind: &str, message: &str| {
            let current = lock(&CURRENT);
            save_finding(&findings, &report, name, kind, message, &current.bytes);
            let _ = std::fs::write(report.join("progress"), format!("{} 0 0", current.index + 1));
            std::process::exit(STOPPED);
        };
        let (mut index, mut since, mut seen) = (u64::MAX, Duration::ZERO, Instant::now());
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(50));
                let resident_bytes = resident_bytes();
                if resident_bytes > MAX_RESIDENT_BYTES {
                    stop("memory", &format!("{} MB resident", resident_bytes >> 20));
                }
                let now = lock(&CURRENT).index;
                if now != index {
                    (index, since, seen) = (now, cpu(&task), Instant::now());
                } else if cpu(&task).saturating_sub(since) > Duration::from_millis(HOPELESS * limit)
                    || seen.elapsed() > ENDLESS
                {
                    stop("hang", "no end in sight");
                }
            }
        });
    }
}

/// Writes the input of a finding and a line of the report.
pub fn save_finding(folder: &Path, report: &Path, target: &str, kind: &str, message: &str, bytes: &[u8]) {
    let folder: PathBuf = folder.join(target);
    let path = folder.join(format!("{kind}-{:016x}", hash(&bytes)));
    let _ = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, bytes));
    let line = format!("{kind} in {target}: {message} ({})\n", path.display());
    let file = OpenOptions::new().create(true).append(true).open(report.join("findings"));
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// CPU time of a task of this process, where the system reports it.
fn cpu(task: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{task}/schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
