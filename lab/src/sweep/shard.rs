//! Shards of a grid: parts that several machines run, each by itself.
//!
//! Whole servers are dealt out in turn, so that the loads of a server share its latency model. A round of servers begins at the next
//! shard than the one before, so that no shard has all servers with the same value of a key. The servers that are too few for a round
//! are split by their configurations. Sizes differ by one configuration at most.

use std::fmt;
use std::str::FromStr;

use super::grid::Grid;

/// One of several shards of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// Its number, from 1.
    number: u32,
    /// The number of shards.
    of: u32,
}

impl Shard {
    /// Shard `number` of `of`; `None` unless the number is from 1 to `of`.
    pub fn new(number: u32, of: u32) -> Option<Self> {
        (1..=of).contains(&number).then_some(Shard { number, of })
    }

    /// Its number, from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// The number of shards.
    pub fn of(self) -> u32 {
        self.of
    }

    /// Whether a configuration of the grid, by its index, is of this shard.
    pub fn holds(self, grid: &Grid, configuration: usize) -> bool {
        Shard::holding(grid, configuration, self.of) == Some(self)
    }

    /// The one of `of` shards that holds a configuration of the grid; `None` of no shards or beyond the grid.
    pub fn holding(grid: &Grid, configuration: usize, of: u32) -> Option<Self> {
        let at = place(grid.servers.len(), grid.num_loads(), of as usize, configuration)?;
        Shard::new(u32::try_from(at).ok()? + 1, of)
    }
}

/// The shard, from 0, of a configuration of a grid of `servers` × `loads`. Where there are more shards than configurations, the first ones
/// have one each.
fn place(servers: usize, loads: usize, shards: usize, configuration: usize) -> Option<usize> {
    let shards = shards.min(servers * loads);
    let server = configuration.checked_div(loads).filter(|server| *server < servers)?;
    let round = server.checked_div(shards)?;
    let in_rounds = servers - servers % shards;
    if server < in_rounds {
        return Some((server + round) % shards);
    }
    let (rest, left) = (configuration - in_rounds * loads, (servers - in_rounds) * loads);
    Some(rest * shards / left)
}

impl FromStr for Shard {
    type Err = String;

    /// Reads `2/7`.
    fn from_str(text: &str) -> Result<Self, String> {
        let shard = text.split_once('/').and_then(|(number, of)| Shard::new(number.parse().ok()?, of.parse().ok()?));
        shard.ok_or_else(|| "must be i/n, the i-th of n shards, from 1/n to n/n".to_owned())
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(servers: usize, loads: usize, shards: usize) -> Vec<usize> {
        (0..servers * loads).map(|at| place(servers, loads, shards, at).unwrap()).collect()
    }

    #[test]
    fn servers_are_dealt_out_in_turn_and_the_rest_is_split() {
        assert_eq!(places(3, 2, 1), [0; 6]);
        assert_eq!(places(4, 2, 2), [0, 0, 1, 1, 1, 1, 0, 0]);
        // A round of three, then two servers of two loads: four configurations for three.
        assert_eq!(places(5, 2, 3), [0, 0, 1, 1, 2, 2, 0, 0, 1, 2]);
        assert_eq!(places(1, 2, 7), [0, 1]);
        assert_eq!((place(2, 2, 3, 4), place(2, 2, 0, 0), place(0, 2, 1, 0)), (None, None, None));
    }

    proptest! {
        #[test]
        fn sizes_differ_by_one_at_most(servers in 1_usize..40, loads in 1_usize..12, shards in 1_usize..60) {
            let mut sizes = vec![0; shards];
            for at in places(servers, loads, shards) {
                sizes[at] += 1;
            }
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            // So many shards split a server that the rest of the servers is fewer than them.
            let split = (0..servers).filter(|server| {
                let of = |load| place(servers, loads, shards, server * loads + load);
                (1..loads).any(|load| of(load) != of(0))
            });
            prop_assert!(split.count() <= servers % shards.min(servers * loads));
        }
    }

    #[test]
    fn a_shard_is_read_as_it_is_written() {
        for text in ["1/1", "2/7", "7/7", "100000/100000"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for text in ["0/3", "4/3", "1", "/3", "1/", "1/0", "a/b", "-1/3", "1/3/5", "1/4294967296"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
