//! How many broken rows a file may have before it is a broken file. Uses `error`, `dropped`.

use super::dropped::{Dropped, Reason};
use ridgepoint::{Error, Result};

/// Most rows that may be broken, in percent.
const MAX_BAD_PCT: u64 = 1;

/// Broken rows of a file.
#[derive(Default)]
pub(super) struct Faults {
    first: Option<Error>,
    count: u64,
}

impl Faults {
    /// The value of a sound row; a broken one is counted.
    pub(super) fn sound<T>(&mut self, row: Result<T>) -> Option<T> {
        match row {
            Ok(value) => Some(value),
            Err(error) => {
                self.broken(error);
                None
            }
        }
    }

    /// Counts a broken row.
    pub(super) fn broken(&mut self, error: Error) {
        self.count += 1;
        self.first.get_or_insert(error);
    }

    /// Counts the broken rows as dropped.
    ///
    /// # Errors
    /// The first broken row, where more than one in a hundred of `rows` is.
    pub(super) fn settle(self, origin: &str, rows: u64, dropped: &mut Dropped) -> Result<()> {
        let Some(first) = self.first else { return Ok(()) };
        if self.count * 100 <= rows * MAX_BAD_PCT {
            dropped.add_many(Reason::BadValue, self.count);
            return Ok(());
        }
        if self.count == 1 {
            return Err(first);
        }
        let prefix = format!("{origin}: ");
        let first = first.to_string();
        let first = first.strip_prefix(&prefix).unwrap_or(&first).to_owned();
        let share = format!("{} of {rows} rows can't be used, more than {MAX_BAD_PCT} %", self.count);
        Err(Error::invalid(origin, vec![share, format!("the first is {first}")]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(bad: usize, rows: u64) -> Result<Dropped> {
        let mut faults = Faults::default();
        for row in 0..bad {
            let message = format!("row {row} is odd");
            let _: Option<()> = faults.sound(Err(Error::parse("a.csv", message)));
        }
        let mut dropped = Dropped::default();
        faults.settle("a.csv", rows, &mut dropped).map(|()| dropped)
    }

    #[test]
    fn one_in_a_hundred_is_a_broken_row_and_more_is_a_broken_file() {
        assert_eq!(settled(2, 200).unwrap().count(Reason::BadValue), 2);
        let message = settled(3, 200).unwrap_err().to_string();
        assert_eq!(message, "a.csv: 3 of 200 rows can't be used, more than 1 %; the first is row 0 is odd");
        assert_eq!(settled(1, 5).unwrap_err().to_string(), "a.csv: row 0 is odd");
        assert_eq!(settled(0, 0).unwrap().total(), 0);
    }
}
