//! `measured.csv` of a serving run: latencies that clients measured, by stage.

use std::collections::BTreeMap;
use std::path::Path;

use super::metric::{Latency, Metric};
use crate::measured_time::MILLISECONDS;
use ridgepoint::input::{FileKind, Input};
use ridgepoint::{Error, Result};
use ridgepoint_replay::input::{Columns, RowReader};

/// The stage that stands for the whole run.
pub const WHOLE_RUN: i32 = -1;

const COLUMNS: Columns = Columns::exactly("stage,metric,value_ms");

/// Measured figures in ms by stage and metric; stage -1 is the whole run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    values_ms: BTreeMap<(i32, Metric), f64>,
}

impl Measured {
    /// Figures given by hand; the last of equal ones stays.
    pub fn new(values_ms: impl IntoIterator<Item = ((i32, Metric), f64)>) -> Self {
        Measured { values_ms: values_ms.into_iter().collect() }
    }

    /// Reads a csv file with the columns `stage`, `metric` and `value_ms`. Rows that say the same again are passed over.
    ///
    /// # Errors
    /// `ErrorKind::Io`, `ErrorKind::Parse` for columns that are missing or not known and for a file without rows,
    /// `ErrorKind::BadRow` for a stage below -1, an unknown metric, a value that is no time, and for a row that
    /// contradicts another.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let mut reader = RowReader::csv(Input::open(FileKind::ServingFigures, path.as_ref())?, COLUMNS)?;
        let origin = reader.origin().to_owned();
        let mut values_ms: BTreeMap<(i32, Metric), f64> = BTreeMap::new();
        while let Some(row) = reader.next_row()? {
            let expected = "-1 for the whole run, or the number of a stage from 0";
            let stage = row.read("stage", expected, |text| text.parse().ok().filter(|stage| *stage >= WHOLE_RUN))?;
            let expected = "e2e, ttft or itl with _mean, _p50, _p90 or _p99";
            let metric = row.read("metric", expected, |text| {
                text.parse().ok().filter(|metric: &Metric| {
                    !matches!(metric.latency, Latency::Tpot | Latency::QueueWait | Latency::Step)
                })
            })?;
            let value_ms = row.number("value_ms", MILLISECONDS)?;
            let first_ms = *values_ms.entry((stage, metric)).or_insert(value_ms);
            if first_ms.to_bits() != value_ms.to_bits() {
                return Err(
                    row.bad("value_ms", format!("{first_ms} as in an earlier row of the same stage and metric"))
                );
            }
        }
        if values_ms.is_empty() {
            let message = "has no rows: measured are stage, metric and value_ms, a line each".to_owned();
            return Err(Error::parse(origin, message));
        }
        Ok(Measured { values_ms })
    }

    /// A figure, ms.
    pub fn get(&self, stage: i32, metric: Metric) -> Option<f64> {
        self.values_ms.get(&(stage, metric)).copied()
    }

    /// All figures by stage and metric, the whole run first.
    pub fn iter(&self) -> impl Iterator<Item = (i32, Metric, f64)> + '_ {
        self.values_ms.iter().map(|((stage, metric), value_ms)| (*stage, *metric, *value_ms))
    }

    /// The highest stage that is spoken of, where any but the whole run is.
    pub fn last_stage(&self) -> Option<u32> {
        self.values_ms.keys().filter_map(|(stage, _)| u32::try_from(*stage).ok()).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Measured> {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("measured.csv");
        std::fs::write(&path, text).expect("written");
        Measured::read(&path)
    }

    #[track_caller]
    fn refused(text: &str, said: &[&str]) {
        let message = read(text).expect_err("refused").to_string();
        for part in said {
            assert!(message.contains(part), "'{part}' is not in: {message}");
        }
    }

    const HEADER: &str = "stage,metric,value_ms\n";

    #[test]
    fn rows_that_say_the_same_are_one() {
        let text = format!("{HEADER}-1,e2e_mean,20.5\n-1,e2e_mean,20.5\n-1,e2e_mean,20.50\n0,ttft_p99,3\n");
        let measured = read(&text).expect("read");
        let p99: Metric = "ttft_p99".parse().expect("a metric");
        assert_eq!(measured.iter().collect::<Vec<_>>(), [(-1, Metric::E2E_MEAN, 20.5), (0, p99, 3.0)]);
        assert_eq!((measured.get(-1, Metric::E2E_MEAN), measured.get(0, Metric::E2E_MEAN)), (Some(20.5), None));
        assert_eq!(measured.last_stage(), Some(0));
    }

    #[test]
    fn columns_may_stand_in_any_order() {
        let measured = read("value_ms,stage,metric\n7,0,itl_mean\n").expect("read");
        assert_eq!(measured.get(0, Metric::ITL_MEAN), Some(7.0));
    }

    #[test]
    fn rows_that_contradict_each_other_are_refused() {
        let text = format!("{HEADER}0,e2e_mean,20\n1,e2e_mean,20\n0,e2e_mean,21\n");
        refused(&text, &["measured.csv", "row 3", "value_ms", "found 21", "20 as in an earlier row"]);
    }

    #[test]
    fn bad_rows_are_named() {
        let with = |row: &str| format!("{HEADER}0,e2e_mean,20\n{row}\n");
        refused(&with("0,e2e_p95,20"), &["row 2", "'metric'", "found e2e_p95", "_p50, _p90"]);
        refused(&with("0,tpot_mean,20"), &["row 2", "'metric'", "found tpot_mean"]);
        for value in ["NaN", "-3", "0", "inf", "", "1,5", "1e-308", "1e308"] {
            let text = with(&format!("0,ttft_mean,\"{value}\""));
            refused(&text, &["row 2", "'value_ms'", "a number from 1e-6 to 1e9 ms"]);
        }
        refused(&with("-2,ttft_mean,1"), &["row 2", "'stage'", "found -2", "-1 for the whole run"]);
        refused(&with("all,ttft_mean,1"), &["row 2", "'stage'", "found all"]);
    }

    #[test]
    fn a_file_of_another_shape_is_refused() {
        refused(HEADER, &["has no rows"]);
        refused("stage,metric\n0,e2e_mean\n", &["value_ms", "missing"]);
        refused("stage,metric,value_ms,unit\n0,e2e_mean,3,s\n", &["'unit'", "not known"]);
        refused("", &["stage, metric, value_ms"]);
        let missing = Measured::read("/nowhere/measured.csv").expect_err("no such file").to_string();
        assert!(missing.contains("/nowhere/measured.csv"), "{missing}");
    }
}
