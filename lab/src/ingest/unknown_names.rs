//! Counts of the names in a file that nothing is read from, so that none is passed over in silence.

use std::collections::BTreeMap;

/// Most names that are counted separately; the rest is counted together.
const MOST_NAMES: usize = 100;
/// Names that a note lists.
const LISTED: usize = 8;

/// Names and how often each was there.
#[derive(Debug, Clone, Default)]
pub(super) struct UnknownNames {
    counts: BTreeMap<String, u64>,
    others: u64,
}

impl UnknownNames {
    /// Counts a name.
    pub(super) fn add(&mut self, name: &str) {
        self.add_many(name, 1);
    }

    fn add_many(&mut self, name: &str, count: u64) {
        if let Some(known) = self.counts.get_mut(name) {
            *known += count;
        } else if self.counts.len() < MOST_NAMES {
            self.counts.insert(name.to_owned(), count);
        } else {
            self.others += count;
        }
    }

    /// Adds the counts of another.
    pub(super) fn merge(&mut self, other: UnknownNames) {
        other.counts.iter().for_each(|(name, count)| self.add_many(name, *count));
        self.others += other.others;
    }

    /// A remark that lists the most frequent names; `None` if there are none.
    pub(super) fn note(&self, what: &str) -> Option<String> {
        let mut by_count: Vec<(&String, &u64)> = self.counts.iter().collect();
        by_count.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
        let listed = by_count.iter().take(LISTED).map(|(name, count)| format!("{name} ({count})")).collect::<Vec<_>>();
        let more = (by_count.len() - listed.len()) as u64 + self.others;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!listed.is_empty()).then(|| format!("{what} that are not read: {}{more}", listed.join(", ")))
    }
}
