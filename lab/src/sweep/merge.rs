//! The rows of several shards put together: each configuration of the grid has one, and they are those of a run in one go.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ridgepoint::unstable::error::cut;
use ridgepoint::{Error, Result};
use serde_json::Value;

use super::grid::Grid;
use super::resume::Places;
use super::row::Row;
use super::row_file::RowFile;
use super::shard::Shard;
use super::sweeping::Sweep;

/// What to do about rows that cannot be merged.
const MERGE_REMEDY: &str = "merge what one version made of one grid, or run that shard anew (fresh)";

/// Configurations that a message names.
const MOST_NAMED: usize = 8;

/// Rows of a part of a grid.
#[derive(Debug, Clone)]
pub struct NamedRows {
    /// Where they come from, for messages.
    pub name: PathBuf,
    /// The rows, in any order.
    pub rows: Vec<Row>,
}

/// The rows of several parts of a grid.
#[derive(Debug, Clone)]
pub struct MergedRows {
    rows: Vec<Option<Row>>,
    /// The configurations of each part.
    parts: Vec<Vec<usize>>,
}

impl Sweep {
    /// Puts the rows of files together. A file that is not there has none.
    ///
    /// # Errors
    /// Those of [`Sweep::known`], and two rows of a configuration that differ.
    pub fn merged_files(&self, files: &[RowFile]) -> Result<MergedRows> {
        let places = Places::new(self);
        let part = |file: &RowFile| -> Result<NamedRows> {
            let rows = self.rows_of(file, &places, MERGE_REMEDY)?.unwrap_or_default();
            Ok(NamedRows { name: file.path.clone(), rows })
        };
        MergedRows::new(self.grid(), files.iter().map(part))
    }

    /// Puts rows together that are in no file.
    ///
    /// # Errors
    /// Those of [`Sweep::merged_files`] about rows.
    pub fn merged(&self, parts: Vec<NamedRows>) -> Result<MergedRows> {
        let places = Places::new(self);
        let placed = |NamedRows { name, rows }: NamedRows| -> Result<NamedRows> {
            let rows = self.placed(&name, rows, &places, MERGE_REMEDY)?;
            Ok(NamedRows { name, rows })
        };
        MergedRows::new(self.grid(), parts.into_iter().map(placed))
    }
}

impl MergedRows {
    fn new(grid: &Grid, parts: impl Iterator<Item = Result<NamedRows>>) -> Result<Self> {
        let mut merged: Vec<Option<(Row, PathBuf)>> = vec![None; grid.num_configurations()];
        let mut held = Vec::new();
        for part in parts {
            let NamedRows { name, rows } = part?;
            let mut configurations = BTreeSet::new();
            for row in rows {
                let Some((place, at)) = place(&mut merged, &row) else { continue };
                match place {
                    Some((first, from)) => check_equal(first, from, &row, &name)?,
                    None => *place = Some((row, name.clone())),
                }
                configurations.insert(at);
            }
            held.push(configurations.into_iter().collect());
        }
        let rows = merged.into_iter().map(|row| row.map(|(row, _)| row)).collect();
        Ok(MergedRows { rows, parts: held })
    }

    /// The rows, by configuration of the grid.
    pub fn known(self) -> Vec<Option<Row>> {
        self.rows
    }

    /// The configurations without a row.
    pub fn missing(&self) -> Vec<usize> {
        self.rows.iter().enumerate().filter(|(_, row)| row.is_none()).map(|(at, _)| at).collect()
    }

    /// Refuses rows that are not those of the whole grid.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` at the grid with the configurations that have no row.
    pub fn check_whole(&self, grid: &Grid) -> Result<()> {
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let mut named: Vec<String> = missing.iter().take(MOST_NAMED).map(usize::to_string).collect();
        if missing.len() > MOST_NAMED {
            named.push("…".to_owned());
        }
        let (number, of) = (missing.len(), self.rows.len());
        let problem = format!("{number} of {of} configurations have no row in what is merged: {}", named.join(", "));
        Err(Error::invalid(grid.origin.as_str(), vec![problem]))
    }

    /// The shards that have the missing configurations, each with the part that it left unfinished. The parts don't say of how many shards
    /// they are, so the number is one that they can be of: such that no shard is unfinished, if there is one. Whatever the number is, its
    /// shards have all that is missing.
    pub fn lost_shards(&self, grid: &Grid) -> Vec<(Shard, Option<usize>)> {
        let missing = self.missing();
        let of = self.num_shards(grid, &missing);
        let shards: BTreeSet<Shard> = missing.iter().filter_map(|at| Shard::holding(grid, *at, of)).collect();
        let unfinished =
            |shard: Shard| self.parts.iter().position(|part| part.first().is_some_and(|at| shard.holds(grid, *at)));
        let is_own = |shard: Shard, part: usize| {
            self.parts.get(part).is_some_and(|part| part.iter().all(|at| shard.holds(grid, *at)))
        };
        shards.into_iter().map(|shard| (shard, unfinished(shard).filter(|part| is_own(shard, *part)))).collect()
    }

    /// A number of shards that the parts can be of, at least as many as there are parts; one for each configuration if there is none.
    fn num_shards(&self, grid: &Grid, missing: &[usize]) -> u32 {
        let most = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        let mut parts: Vec<&Vec<usize>> = self.parts.iter().filter(|part| !part.is_empty()).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        if parts.first().is_none_or(|part| part.len() < 2) {
            return most;
        }
        // The shards of the parts, if each part is of one shard.
        let shards = |of: u32| -> Option<BTreeSet<Shard>> {
            let shard_of = |part: &&Vec<usize>| {
                let shard = Shard::holding(grid, *part.first()?, of)?;
                part.iter().all(|at| shard.holds(grid, *at)).then_some(shard)
            };
            parts.iter().map(shard_of).collect()
        };
        let least = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let possible: Vec<(u32, BTreeSet<Shard>)> = (least..=most).filter_map(|of| Some((of, shards(of)?))).collect();
        let is_finished = |(of, begun): &&(u32, BTreeSet<Shard>)| {
            missing.iter().all(|at| Shard::holding(grid, *at, *of).is_none_or(|shard| !begun.contains(&shard)))
        };
        possible.iter().find(is_finished).or(possible.first()).map_or(most, |(of, _)| *of)
    }
}

/// The place of a row, and its configuration.
fn place<'a, T>(merged: &'a mut [T], row: &Row) -> Option<(&'a mut T, usize)> {
    let at = usize::try_from(row.configuration).ok()?;
    Some((merged.get_mut(at)?, at))
}

/// Refuses two rows of a configuration that differ.
fn check_equal(first: &Row, from: &Path, second: &Row, name: &Path) -> Result<()> {
    if first == second {
        return Ok(());
    }
    let columns = |row: &Row| serde_json::to_value(row).ok();
    let (first_values, second_values) = (columns(first), columns(second));
    let differing =
        first_values.as_ref().and_then(Value::as_object).into_iter().flatten().find_map(|(column, value)| {
            let other = second_values.as_ref()?.get(column)?;
            (other != value).then(|| format!(" in column '{column}': {other} and {value}"))
        });
    let (at, settings) = (second.configuration, cut(&second.settings));
    let message = format!(
        "row {at} ({settings}) differs from that of {}{}: {MERGE_REMEDY}",
        from.display(),
        differing.unwrap_or_default()
    );
    Err(Error::parse(name, message))
}

#[cfg(test)]
mod tests {
    use ridgepoint::Options;

    use super::*;

    fn sweep(servers: &str) -> Sweep {
        let text = format!(
            "[server]\nmodel = \"llama-3.1-8b\"\nhardware = \"h100\"\nmax_num_seqs = {servers}\n[load]\n\
             request_rate_per_s = [1, 2]\ninput_len_tokens = 8\noutput_len_tokens = 2\nnum_requests = 2\n"
        );
        Sweep::new(Grid::parse("grid.toml", &text).unwrap(), Options::default()).unwrap()
    }

    /// The parts of all shards but some.
    fn parts(sweep: &Sweep, of: u32, lost: &[u32]) -> Vec<NamedRows> {
        let described = sweep.described();
        let part = |number: u32| {
            let shard = Shard::new(number, of).unwrap();
            let of_shard = |row: &&Row| shard.holds(sweep.grid(), usize::try_from(row.configuration).unwrap());
            NamedRows {
                name: format!("{number}.csv").into(),
                rows: described.iter().filter(of_shard).cloned().collect(),
            }
        };
        (1..=of).filter(|number| !lost.contains(number)).map(part).collect()
    }

    #[test]
    fn the_lost_shards_are_found_from_what_is_there() {
        let sweep = sweep("[1, 2, 3, 4, 5, 6, 7]");
        for of in [2, 3, 5, 6] {
            for lost in 1..=of {
                let merged = sweep.merged(parts(&sweep, of, &[lost])).unwrap();
                assert_eq!(merged.lost_shards(sweep.grid()), [(Shard::new(lost, of).unwrap(), None)], "{lost}/{of}");
            }
        }
        let whole = sweep.merged(parts(&sweep, 3, &[])).unwrap();
        assert!(whole.missing().is_empty() && whole.lost_shards(sweep.grid()).is_empty());
        whole.check_whole(sweep.grid()).unwrap();
        let rows: Vec<Row> = whole.known().into_iter().flatten().collect();
        assert_eq!(rows, sweep.described());
        let merged = sweep.merged(parts(&sweep, 3, &[1, 3])).unwrap();
        let error = merged.check_whole(sweep.grid()).unwrap_err().to_string();
        assert!(error.contains("grid.toml: 9 of 14 configurations have no row") && error.contains('…'), "{error}");
    }

    #[test]
    fn what_is_missing_is_in_the_shards_that_are_named() {
        let sweep = sweep("[1, 2, 3, 4, 5]");
        // An unfinished shard, a lost one, and rows of no one shard.
        let mut mixed = parts(&sweep, 3, &[2]);
        mixed[1].rows.pop();
        let mut of_two = parts(&sweep, 2, &[]);
        of_two[0].rows.extend(mixed[0].rows.clone());
        of_two[1].rows.clear();
        for parts in [mixed, of_two, Vec::new(), vec![NamedRows { name: "a".into(), rows: Vec::new() }]] {
            let merged = sweep.merged(parts).unwrap();
            let shards = merged.lost_shards(sweep.grid());
            for at in merged.missing() {
                assert!(shards.iter().any(|(shard, _)| shard.holds(sweep.grid(), at)), "{at} of {shards:?}");
            }
        }
    }

    #[test]
    fn an_unfinished_part_is_named() {
        let sweep = sweep("[1, 2, 3, 4, 5, 6, 7]");
        let mut parts = parts(&sweep, 3, &[]);
        parts[1].rows.truncate(2);
        let merged = sweep.merged(parts).unwrap();
        assert_eq!(merged.lost_shards(sweep.grid()), [(Shard::new(2, 3).unwrap(), Some(1))]);
    }

    #[test]
    fn rows_that_differ_are_named_with_their_column() {
        let sweep = sweep("[1, 2]");
        let mut parts = parts(&sweep, 1, &[]);
        parts.extend(parts.clone());
        assert!(sweep.merged(parts.clone()).unwrap().missing().is_empty(), "equal rows are one");
        parts[1].name = "2.csv".into();
        parts[1].rows[3].replays = 9;
        let error = sweep.merged(parts).unwrap_err().to_string();
        assert!(
            error.contains("2.csv: row 3 (") && error.contains("that of 1.csv in column 'replays': 9 and 0"),
            "{error}"
        );
    }
}
