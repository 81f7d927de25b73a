//! Remarks on a list of requests: columns that are not read, rows that are left out, and how its times are read.

use ridgepoint::Result;
use ridgepoint::input::did_you_mean;
use ridgepoint::units::{NS_PER_MS, NS_PER_S};
use ridgepoint::unstable::error::cut;

use super::request_list::arrival_ns;
use super::trace_clock::TraceClock;
use crate::input::Row;

/// Columns that change a load and that other names must not be mistaken for.
const WITH_INFLUENCE: [&str; 13] = [
    "arrival",
    "session_id",
    "think_time_s",
    "prefix_group",
    "prefix_len",
    "priority",
    "stage",
    "temperature",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "hash_ids",
];
/// Most names in a note.
const SHOWN: usize = 8;
/// Most names that are kept: lines of jsonl may each have others.
const KEPT: usize = 100;

/// Remarks on a list, collected row by row.
#[derive(Debug, Default)]
pub(super) struct ListRemarks {
    /// Unread columns of the row before, and those of all rows.
    last_others: Vec<String>,
    others: Vec<String>,
    left_out: usize,
    /// Prompts whose hashes are too many or too few for their length.
    pub(super) misfits: usize,
    /// Prompts that hit the cache in the capture, without the contents.
    pub(super) cached: usize,
    /// The run of a request table.
    run: Option<String>,
    clock: TraceClock,
    clock_name: String,
}

impl ListRemarks {
    /// Returns whether a row is a request. Rows of traces without tokens or without a time are requests that failed, and are counted.
    ///
    /// # Errors
    /// A column that seems to be misspelt; a second run, whose clock is another one.
    pub(super) fn takes(&mut self, row: &Row<'_>, needs_arrival: bool) -> Result<bool> {
        self.see_others(row)?;
        if let Some(run) = row.text("experiment") {
            let first = self.run.get_or_insert_with(|| run.to_string());
            if *first != *run {
                let expected = format!("one run, '{}', in the whole file: keep the rows of one", cut(first));
                return Err(row.bad("experiment", expected));
            }
        }
        let lengths = ["input_len", "output_len"];
        // Each row of a list with lengths by names of its own must be a request.
        if !lengths.iter().any(|column| row.is_by_role(column)) {
            return Ok(true);
        }
        let is_some = |column: &str| row.text(column).is_some_and(|text| text.parse::<f64>() != Ok(0.0));
        let is_timed = !needs_arrival || !row.has("arrival") || row.text("arrival").is_some();
        let is_request = lengths.into_iter().all(is_some) && is_timed;
        self.left_out += usize::from(!is_request);
        Ok(is_request)
    }

    /// Collects the names of columns that are not read.
    ///
    /// # Errors
    /// A column that seems to be misspelt.
    pub(super) fn see_others(&mut self, row: &Row<'_>) -> Result<()> {
        // The other columns of a request table are the run's and the engine's, and known.
        if row.others() == self.last_others || row.has("experiment") {
            return Ok(());
        }
        self.last_others = row.others().to_vec();
        for name in row.others().iter().filter(|name| !name.is_empty()) {
            let absent = || WITH_INFLUENCE.into_iter().filter(|known| !row.has(known));
            if let Some(hint) = did_you_mean(name, absent()).filter(|_| name.len() > 4) {
                return Err(row.refused(format!("column '{}' is not known: {hint}", cut(name))));
            }
            if self.others.len() < KEPT && !self.others.contains(name) {
                self.others.push(name.clone());
            }
        }
        Ok(())
    }

    /// Reads when a row is sent: of a list's own columns from the start of the load, of a trace's as [`TraceClock`] has it.
    ///
    /// # Errors
    /// A time that cannot be read.
    pub(super) fn arrival_ns(&mut self, row: &Row<'_>) -> Result<u64> {
        if !TraceClock::is_of(row) {
            return arrival_ns(row);
        }
        if self.clock_name.is_empty() {
            row.name("arrival").clone_into(&mut self.clock_name);
        }
        // Mooncake and AIPerf, whose lengths have this name, write ms; Bailian, whose requests have a chat_id, writes s.
        let is_mooncake = row.name("input_len") == "input_length" && !row.others().iter().any(|name| name == "chat_id");
        self.clock.read(row, if is_mooncake { NS_PER_MS } else { NS_PER_S })
    }

    /// Returns whether times count from the earliest row.
    pub(super) fn has_trace_clock(&self) -> bool {
        !self.clock_name.is_empty()
    }

    /// Returns the notes. `was_sorted` says that the rows were in order of their times.
    pub(super) fn notes(self, was_sorted: bool) -> Vec<String> {
        let count = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let shown: Vec<String> = self.others.iter().take(SHOWN).map(|name| cut(name)).collect();
        let more = match self.others.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let images = self.others.iter().any(|name| name.to_lowercase().contains("image"));
        let images = if images { "; images are not predicted" } else { "" };
        let others = (!shown.is_empty())
            .then(|| format!("columns that do not shape the load are not read: {}{more}{images}", shown.join(", ")));
        let notes = [
            others,
            self.clock.note(&self.clock_name),
            (!was_sorted).then(|| "the rows are not in the order of their arrivals and have been sorted".to_owned()),
            count(self.left_out, "rows without tokens, or without a time, are left out: such requests failed"),
            count(
                self.misfits,
                "prompts have more or fewer hashes than blocks: they share the blocks whose hashes they have",
            ),
            count(
                self.cached,
                "prompts find as many tokens in the prefix cache as in the capture, whose contents are unknown",
            ),
        ];
        notes.into_iter().flatten().collect()
    }
}
