//! Which rows a fit was given: a hash of their numbers. Uses `problem`.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::problem::Row;

/// First line of the text that is hashed: another layout gets another number.
const LAYOUT: &str = "ridgepoint rows 1\n";

/// SHA-256 in hexadecimal digits of the rows' offsets, columns, measured values, standard deviations and weights. The order of
/// rows does not matter, nor does how groups are numbered; the order of columns does.
///
/// # Formula
/// One line per row, `offset;x₁,x₂,…;measured;sd;weight`, each number as the shortest text that reads back as it; lines in the
/// order of their bytes.
pub fn rows_sha256(rows: &[Row]) -> String {
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.sort_unstable();
    let mut hasher = Sha256::new();
    hasher.update(LAYOUT);
    for line in &lines {
        hasher.update(line);
    }
    let mut hex = String::new();
    for byte in hasher.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

fn line(row: &Row) -> String {
    // −0 is 0.
    let number = |value: f64| format!("{:e}", value + 0.0);
    let columns: Vec<String> = row.x.iter().map(|x| number(*x)).collect();
    let [offset, measured, sd, weight] = [row.offset, row.measured, row.sd, row.weight].map(number);
    format!("{offset};{};{measured};{sd};{weight}\n", columns.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(x: &[f64], measured: f64) -> Row {
        Row { offset: 0.5, x: x.to_vec(), measured, sd: 0.1, weight: 1.0, group: 0 }
    }

    #[test]
    fn order_and_groups_do_not_matter_and_numbers_do() {
        let rows = vec![row(&[1.0, 0.0], 5.0), row(&[2.0, 3.0], 6.0)];
        let hash = rows_sha256(&rows);
        let mut turned = vec![rows[1].clone(), rows[0].clone()];
        (turned[0].group, turned[1].x[1]) = (7, -0.0);
        assert_eq!(rows_sha256(&turned), hash);
        let mut other = rows.clone();
        other[0].measured = 5.000_000_000_000_001;
        assert_ne!(rows_sha256(&other), hash);
        other[0] = row(&[0.0, 1.0], 5.0);
        assert_ne!(rows_sha256(&other), hash);
        assert_ne!(rows_sha256(&rows[..1]), hash);
    }

    #[test]
    fn text_is_the_documented_one() {
        assert_eq!(line(&row(&[1.0, 0.0], 1234.5)), "5e-1;1e0,0e0;1.2345e3;1e-1;1e0\n");
        // printf 'ridgepoint rows 1\n' | sha256sum
        let none = rows_sha256(&[]);
        assert_eq!(none, "4e243ffbd02fc5943da164d2d3dcf95a51cd1405de286e02f97b9f3f6477b6b9");
    }
}
