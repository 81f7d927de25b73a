//! The parts of a line of vLLM's log: the process, the time stamp, the numbers and the progress bars.

/// Longest time that a line states, s. A start takes minutes.
const MAX_S: f64 = 1e6;
/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// The process that wrote a line, as in `(Worker_PP0_TP1 pid=7)`; empty without one.
pub(super) fn process(line: &str) -> &str {
    line.strip_prefix('(').and_then(|rest| rest.split_once(" pid=")).map_or("", |(name, _)| name)
}

/// The pipeline rank and the tensor rank in the name of a process. Releases before 0.10.1 name a rank alone.
pub(super) fn ranks(process: &str) -> (Option<u32>, Option<u32>) {
    let after = |mark: &str| {
        let (_, rest) = process.split_once(mark)?;
        rest.split(|of: char| !of.is_ascii_digit()).next()?.parse().ok()
    };
    (after("_PP").or_else(|| after(" PP")), after("_TP").or_else(|| after(" TP")).or_else(|| after("rank=")))
}

/// The time of day of a line, s. A start takes less than a day, so the date is checked and not used.
pub(super) fn stamp_s(line: &str) -> Option<u64> {
    let start = ["INFO ", "WARNING ", "ERROR ", "DEBUG "].into_iter().find_map(|level| {
        let (before, rest) = line.split_once(level)?;
        (before.is_empty() || before.starts_with('(')).then_some(rest)
    })?;
    let mut numbers = start.get(..14)?.split(['-', ' ', ':']).map(str::parse::<u64>);
    let mut next = |most: u64| numbers.next()?.ok().filter(|number| *number <= most);
    let date = [next(12)?, next(31)?];
    let time_s = (next(23)? * 60 + next(59)?) * 60 + next(60)?;
    (!date.contains(&0)).then_some(time_s)
}

/// Seconds from one stamp to a later one, over midnight too.
pub(super) fn elapsed_s(from_s: u64, to_s: u64) -> f64 {
    ((to_s + DAY_S).saturating_sub(from_s) % DAY_S) as f64
}

/// The number that follows a text, from 0 to a million.
pub(super) fn number_after(line: &str, text: &str) -> Option<f64> {
    let (_, rest) = line.split_once(text)?;
    number(rest)
}

/// The number that a text begins with.
fn number(text: &str) -> Option<f64> {
    let end = text.find(|of: char| !(of.is_ascii_digit() || of == '.')).unwrap_or(text.len());
    text.get(..end)?.parse().ok().filter(|number| (0.0..=MAX_S).contains(number))
}

/// A progress bar at its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bar {
    /// Pieces that were done.
    pub pieces: u64,
    /// Time of all of them, s.
    pub seconds: f64,
}

/// Reads a bar such as `…: 100%|███| 51/51 [00:02<00:00, 23.49it/s]`. The rate of the last line of a bar is that of all pieces.
pub(super) fn bar(line: &str) -> Option<Bar> {
    let (counts, times) = line.rsplit_once(" [")?;
    let (done, all) = counts.rsplit(' ').next()?.split_once('/')?;
    let pieces: u64 = all.parse().ok().filter(|all| (1..=1 << 20).contains(all) && done.parse() == Ok(*all))?;
    let (_, rate) = times.split_once(", ")?;
    let value = number(rate.trim_start()).filter(|value| *value > 0.0)?;
    let seconds = match rate {
        _ if rate.contains("it/s") => pieces as f64 / value,
        _ if rate.contains("s/it") => pieces as f64 * value,
        _ => return None,
    };
    Some(Bar { pieces, seconds }).filter(|bar| bar.seconds <= MAX_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_report_their_ranks() {
        for (line, name, found) in [
            ("(Worker_PP1_TP3_EP7 pid=42) INFO 01-02 03:04:05", "Worker_PP1_TP3_EP7", (Some(1), Some(3))),
            ("(Worker_TP1 pid=42) INFO", "Worker_TP1", (None, Some(1))),
            ("(VllmWorker rank=2 pid=42) INFO", "VllmWorker rank=2", (None, Some(2))),
            ("(EngineCore_DP0 pid=42) INFO", "EngineCore_DP0", (None, None)),
            ("INFO 01-02 03:04:05 [x.py:1]", "", (None, None)),
        ] {
            assert_eq!((process(line), ranks(process(line))), (name, found), "{line}");
        }
    }

    #[test]
    fn stamps_count_over_midnight() {
        let stamp = |text: &str| stamp_s(&format!("(APIServer pid=1) INFO {text} [x.py:1] y"));
        let between = |from, to| Some(elapsed_s(stamp(from)?, stamp(to)?));
        assert_eq!(between("11-22 01:53:56", "11-22 01:54:59"), Some(63.0));
        assert_eq!(between("10-31 23:59:50", "11-01 00:00:10"), Some(20.0));
        assert_eq!(between("02-29 23:59:50", "03-01 00:00:10"), Some(20.0));
        for bad in ["13-01 00:00:00", "00-10 00:00:00", "11-22 24:00:00", "11-22 01:53", "", "é1-22 01:53:56"] {
            assert_eq!(stamp(bad), None, "{bad}");
        }
        assert_eq!(stamp_s("he said INFO 11-22 01:53:56"), None);
    }

    #[test]
    fn a_bar_at_its_end_reports_pieces_and_time() {
        let line = "Capturing CUDA graphs (decode, FULL): 100%|██████████| 35/35 [00:01<00:00, 28.00it/s]";
        assert_eq!(bar(line), Some(Bar { pieces: 35, seconds: 1.25 }));
        let slow = "Capturing CUDA graphs (FULL): 100%|██████████| 4/4 [00:06<00:00,  1.50s/it]";
        assert_eq!(bar(slow), Some(Bar { pieces: 4, seconds: 6.0 }));
        for other in
            ["x: 50%|█| 2/4 [00:06<00:06, 1.50s/it]", "x: 0%| | 0/4 [00:00<?, ?it/s]", "4/4 [", "0/0 [a, 1it/s]"]
        {
            assert_eq!(bar(other), None, "{other}");
        }
    }

    #[test]
    fn numbers_end_where_their_digits_do() {
        assert_eq!(number_after("Loading weights took 12.50 seconds", "took "), Some(12.5));
        for bad in ["took -1", "took x", "took 1.2.3", "took 1e9", "took 99999999", "took "] {
            let found = number_after(bad, "took ");
            assert!(found.is_none_or(|found| found <= 1.0), "{bad}: {found:?}");
        }
    }
}
