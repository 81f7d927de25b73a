//! Engines side by side: servers of a sweep that differ in the engine alone, under the same load.

use ridgepoint_replay::LoadState;
use serde::Serialize;

use super::best::alike_but_for;
use super::row::Row;

/// The key of a server that names its engine.
const ENGINE: &str = "engine";

/// Servers of several engines under the same load.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnginesSideBySide {
    /// The keys that they share, with their values.
    pub settings: String,
    /// The servers that ran, in the order of the rows.
    pub engines: Vec<EngineResult>,
    /// Engines whose servers could not run.
    pub not_run: Vec<String>,
}

/// What clients see of a load on the server of one engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EngineResult {
    /// The engine and version whose kernels are predicted.
    pub serving_engine: String,
    /// Index of the row.
    pub configuration: u64,
    /// Mean time to first token, ms.
    pub ttft_mean_ms: Option<f64>,
    /// Its interval, ms; `None` if none held on public runs of the engine.
    pub ttft_bounds_ms: Option<[f64; 2]>,
    /// Mean time per output token, ms.
    pub tpot_mean_ms: Option<f64>,
    /// Its interval, ms.
    pub tpot_bounds_ms: Option<[f64; 2]>,
    /// Output tokens per second and GPU.
    pub output_tokens_per_s_per_gpu: Option<f64>,
    /// Share of the steps' time whose kernels were measured on the GPU, for shapes like theirs.
    pub measured_share: Option<f64>,
    /// Whether the server keeps up with its load.
    pub load_state: Option<LoadState>,
}

/// The engines of each server and load, in the order of the rows. Rows of a search for capacity are at different rates, and are not compared.
pub(super) fn engines_side_by_side(rows: &[Row]) -> Vec<EnginesSideBySide> {
    let names_engine = |row: &&Row| row.slo.is_none() && engine_of(row).is_some();
    let alike = alike_but_for(rows.iter().filter(names_engine), ENGINE);
    alike
        .into_iter()
        .map(|(settings, rows)| EnginesSideBySide::of(settings, &rows))
        .filter(|of| of.engines.len() > 1)
        .collect()
}

/// The engine that the settings of a row name.
fn engine_of(row: &Row) -> Option<&str> {
    let settings = row.settings.split([',', ';']).filter_map(|setting| setting.trim().split_once(' '));
    settings.filter(|(key, _)| *key == ENGINE).map(|(_, name)| name).next()
}

impl EnginesSideBySide {
    fn of(settings: String, rows: &[&Row]) -> Self {
        let (ran, not_run): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.finished.is_some());
        let result = |row: &&Row| EngineResult {
            serving_engine: row.serving_engine.clone(),
            configuration: row.configuration,
            ttft_mean_ms: row.ttft_mean_ms,
            ttft_bounds_ms: row.ttft_lower_ms.zip(row.ttft_upper_ms).map(<[f64; 2]>::from),
            tpot_mean_ms: row.tpot_mean_ms,
            tpot_bounds_ms: row.tpot_lower_ms.zip(row.tpot_upper_ms).map(<[f64; 2]>::from),
            output_tokens_per_s_per_gpu: row.output_tokens_per_s_per_gpu,
            measured_share: row.measured_share,
            load_state: row.load_state,
        };
        EnginesSideBySide {
            settings,
            engines: ran.iter().map(result).collect(),
            not_run: not_run.into_iter().filter_map(engine_of).map(str::to_owned).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(configuration: u64, engine: &str, seed: u64, ttft_ms: Option<f64>) -> Row {
        Row {
            configuration,
            serving_engine: engine.to_owned(),
            finished: ttft_ms.map(|_| 9),
            ttft_mean_ms: ttft_ms,
            ttft_lower_ms: ttft_ms.map(|ms| 0.5 * ms),
            ttft_upper_ms: ttft_ms.map(|ms| 2.0 * ms),
            settings: format!("model m, engine {engine}; seed {seed}"),
            ..Row::default()
        }
    }

    #[test]
    fn engines_of_one_load_stand_together() {
        let mut rows = vec![row(0, "vllm", 1, Some(10.0)), row(1, "vllm", 2, Some(12.0))];
        rows.extend([row(2, "sglang", 1, Some(20.0)), row(3, "sglang", 2, Some(22.0))]);
        rows.push(row(4, "trtllm", 1, None));
        let found = engines_side_by_side(&rows);
        let names = |of: &EnginesSideBySide| of.engines.iter().map(|of| of.configuration).collect::<Vec<_>>();
        assert_eq!(found.iter().map(names).collect::<Vec<_>>(), [[0, 2], [1, 3]]);
        assert_eq!(
            (found[0].settings.as_str(), found[0].not_run.as_slice()),
            ("model m, seed 1", &["trtllm".to_owned()][..])
        );
        assert_eq!(found[0].engines[1].ttft_bounds_ms, Some([10.0, 40.0]));
        assert_eq!(found[0].engines[1].tpot_bounds_ms, None);
    }

    #[test]
    fn one_engine_is_not_compared() {
        assert!(engines_side_by_side(&[row(0, "vllm", 1, Some(1.0)), row(1, "vllm", 2, Some(1.0))]).is_empty());
        assert!(engines_side_by_side(&[row(0, "vllm", 1, Some(1.0)), row(1, "sglang", 1, None)]).is_empty());
        let unnamed = Row { settings: "model m; seed 1".to_owned(), ..row(0, "vllm", 1, Some(1.0)) };
        assert!(engines_side_by_side(&[unnamed.clone(), unnamed]).is_empty());
    }
}
