//! The time at which each token reached its client.

use super::super::grown::grown;
use crate::{Event, Events, Observer};

/// An observer that keeps the time of every token, 8 bytes each.
#[derive(Debug, Clone, Default)]
pub struct TokenTimes {
    by_record: Vec<Vec<u64>>,
}

impl TokenTimes {
    /// Times at which the tokens of a record reached its client, ns.
    pub fn of_record(&self, record: usize) -> &[u64] {
        self.by_record.get(record).map_or(&[], Vec::as_slice)
    }

    /// Gaps between the tokens of a record, ns.
    pub fn gaps_ns(&self, record: usize) -> impl Iterator<Item = u64> {
        let times = self.of_record(record);
        times.iter().zip(times.iter().skip(1)).map(|(earlier, later)| later.saturating_sub(*earlier))
    }
}

impl Observer for TokenTimes {
    fn wants(&self) -> Events {
        Events::TOKENS
    }

    fn on(&mut self, event: &Event<'_>) {
        if let Event::Token { record, now_ns, .. } = event {
            grown(&mut self.by_record, *record as usize, Vec::new).push(*now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_by_record_whatever_comes_between() {
        let mut times = TokenTimes::default();
        for (record, token, now_ns) in [(2, 0, 10), (0, 0, 11), (2, 1, 15), (0, 1, 31), (2, 2, 15)] {
            times.on(&Event::Token { record, token, now_ns });
        }
        assert_eq!(times.gaps_ns(2).collect::<Vec<_>>(), [5, 0]);
        assert_eq!(times.gaps_ns(0).collect::<Vec<_>>(), [20]);
        assert_eq!(times.gaps_ns(1).count() + times.gaps_ns(7).count(), 0);
        assert_eq!(times.of_record(2), [10, 15, 15]);
    }
}
