//! The best configuration of each model on each GPU. Uses `row`.

use serde::Serialize;

use super::row::Row;

/// The best row of a model on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Best<'a> {
    /// The row.
    #[serde(flatten)]
    pub row: &'a Row,
    /// Rows of this model on this GPU that ran.
    pub of: usize,
}

/// The best configuration of each model on each GPU, in the order of the rows: of capacities the one that holds the highest rate
/// per GPU, of given loads the one with the most output tokens per second and GPU. Equally good ones are told by their place:
/// the first counts. Models of which none ran have none.
pub fn best(rows: &[Row]) -> Vec<Best<'_>> {
    let mut best: Vec<Best<'_>> = Vec::new();
    for row in rows.iter().filter(|row| matches!(row.status.as_str(), "ok" | "highest_rate_holds")) {
        match best.iter_mut().find(|known| (&known.row.model, &known.row.hardware) == (&row.model, &row.hardware)) {
            None => best.push(Best { row, of: 1 }),
            Some(known) => {
                known.of += 1;
                if score(row) > score(known.row) {
                    known.row = row;
                }
            }
        }
    }
    best
}

fn score(row: &Row) -> f64 {
    let score = if row.slo.is_some() { row.request_rate_per_s_per_gpu } else { row.output_tokens_per_s_per_gpu };
    score.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_a_model_on_a_gpu_is_the_first_of_the_highest() {
        let row = |configuration, model: &str, status: &str, per_gpu| Row {
            configuration,
            model: model.to_owned(),
            status: status.to_owned(),
            slo: Some("ttft_p99_ms = 1".to_owned()),
            request_rate_per_s_per_gpu: Some(per_gpu),
            output_tokens_per_s_per_gpu: Some(10.0 - per_gpu),
            ..Row::default()
        };
        let mut rows = [
            row(0, "a", "ok", 2.0),
            row(1, "a", "highest_rate_holds", 3.0),
            row(2, "b", "cannot_run", 9.0),
            row(3, "a", "ok", 3.0),
            row(4, "c", "ok", 1.0),
            row(5, "a", "lowest_rate_fails", 9.0),
        ];
        let told = |rows: &[Row]| best(rows).iter().map(|best| (best.row.configuration, best.of)).collect::<Vec<_>>();
        assert_eq!(told(&rows), [(1, 3), (4, 1)]);
        rows.iter_mut().for_each(|row| row.slo = None);
        assert_eq!(told(&rows), [(0, 3), (4, 1)]);
    }
}
