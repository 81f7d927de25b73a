//! The best configuration of each model on each GPU.

use std::collections::HashMap;

use serde::Serialize;

use super::row::Row;

/// Scores within this share of each other are the same.
const SAME_SCORE: f64 = 1e-9;

/// The best row of a model on a GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Best {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// Number of candidates: rows of this model on this GPU that ran and keep up with their load.
    pub of: usize,
    /// The smallest and largest `max_num_seqs` of the rows that are otherwise configured alike and score the same.
    pub same_max_num_seqs: (u64, u64),
}

/// The best configuration of each model on each GPU, in the order of the rows: with limits, the one with the highest rate per GPU;
/// else the one with the most output tokens per second and GPU. Of equally good ones the first counts. A row that does not keep up
/// with its rate, or is at its limit, is no candidate, and a model without candidates has no best. A row whose load is too short to
/// show it ranks below every other.
pub(super) fn best(rows: &[Row]) -> Vec<Best> {
    let mut best: Vec<Best> = Vec::new();
    for row in rows.iter().filter(|row| is_candidate(row)) {
        let known = best.iter_mut().find(|best| (&best.row.model, &best.row.hardware) == (&row.model, &row.hardware));
        let alone = (row.max_num_seqs, row.max_num_seqs);
        let Some(known) = known else {
            best.push(Best { row: row.clone(), of: 1, same_max_num_seqs: alone });
            continue;
        };
        known.of += 1;
        let (score, highest) = (score(row), score(&known.row));
        if (score - highest).abs() <= SAME_SCORE * highest.abs() && is_alike(row, &known.row) {
            let (least, most) = known.same_max_num_seqs;
            known.same_max_num_seqs = (least.min(row.max_num_seqs), most.max(row.max_num_seqs));
        } else if (u8::from(is_conclusive(row)), score) > (u8::from(is_conclusive(&known.row)), highest) {
            (known.row, known.same_max_num_seqs) = (row.clone(), alone);
        }
    }
    best
}

fn is_candidate(row: &Row) -> bool {
    matches!(row.status.as_str(), "ok" | "highest_rate_holds") && row.keeps_up != Some(false)
}

/// Whether the load is long enough to show that the server keeps up.
fn is_conclusive(row: &Row) -> bool {
    row.keeps_up.is_some()
}

fn score(row: &Row) -> f64 {
    let score = if row.slo.is_some() { row.request_rate_per_s_per_gpu } else { row.output_tokens_per_s_per_gpu };
    score.unwrap_or(0.0)
}

/// Whether two rows differ in `max_num_seqs` alone.
fn is_alike(one: &Row, other: &Row) -> bool {
    let settings = |row: &Row| settings_without(row, "max_num_seqs");
    settings(one) == settings(other)
}

/// The settings of a row but for one key.
fn settings_without(row: &Row, key: &str) -> Vec<String> {
    let settings = row.settings.split([',', ';']).map(|setting| setting.trim().replace('-', "_"));
    settings.filter(|setting| setting.split(' ').next() != Some(key)).collect()
}

/// Groups rows by their settings but for `key`, in the order of the rows.
pub(super) fn alike_but_for<'a>(rows: impl Iterator<Item = &'a Row>, key: &str) -> Vec<(String, Vec<&'a Row>)> {
    let (mut index, mut alike) = (HashMap::new(), Vec::<(String, Vec<&Row>)>::new());
    for row in rows {
        let settings = settings_without(row, key).join(", ");
        let at = *index.entry(settings.clone()).or_insert(alike.len());
        match alike.get_mut(at) {
            Some((_, of)) => of.push(row),
            None => alike.push((settings, vec![row])),
        }
    }
    alike
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(configuration: u64, model: &str, status: &str, per_gpu: f64) -> Row {
        Row {
            configuration,
            model: model.to_owned(),
            status: status.to_owned(),
            slo: Some("ttft_p99_ms = 1".to_owned()),
            request_rate_per_s_per_gpu: Some(per_gpu),
            keeps_up: Some(true),
            output_tokens_per_s_per_gpu: Some(10.0 - per_gpu),
            max_num_seqs: 8 << configuration,
            ..Row::default()
        }
    }

    fn found(rows: &[Row]) -> Vec<(u64, usize)> {
        best(rows).iter().map(|best| (best.row.configuration, best.of)).collect()
    }

    #[test]
    fn the_best_of_a_model_on_a_gpu_is_the_first_of_the_highest() {
        let mut rows = [
            row(0, "a", "ok", 2.0),
            row(1, "a", "highest_rate_holds", 3.0),
            row(2, "b", "cannot_run", 9.0),
            row(3, "a", "ok", 3.0),
            row(4, "c", "ok", 1.0),
            row(5, "a", "lowest_rate_fails", 9.0),
        ];
        assert_eq!(found(&rows), [(1, 3), (4, 1)]);
        assert_eq!(best(&rows)[0].same_max_num_seqs, (16, 64));
        assert_eq!(best(&rows)[1].same_max_num_seqs, (128, 128));
        // The loads of the highest rates are too short to judge.
        (rows[1].keeps_up, rows[3].keeps_up, rows[4].keeps_up) = (None, None, None);
        assert_eq!(found(&rows), [(0, 3), (4, 1)]);
        // The one that is left does not keep up with its rate, or is at its limit.
        rows[0].keeps_up = Some(false);
        assert_eq!(found(&rows), [(1, 2), (4, 1)]);
        rows.iter_mut().for_each(|row| (row.slo, row.keeps_up) = (None, Some(true)));
        assert_eq!(found(&rows), [(0, 3), (4, 1)]);
        rows[0].keeps_up = Some(false);
        assert_eq!(found(&rows), [(1, 2), (4, 1)]);
    }
}
