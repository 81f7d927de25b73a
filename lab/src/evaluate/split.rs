//! Summaries by group of experiments: by model, workload, GPU or engine version. Uses `comparison`.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;

use super::comparison::{ExperimentReport, Rows, Summary, summarise};

/// What experiments are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitKey {
    /// The model.
    Model,
    /// Lengths of prompts and outputs.
    Workload,
    /// The GPU.
    Hardware,
    /// Version of the serving engine.
    BackendVersion,
}

impl SplitKey {
    /// All of them by name.
    pub const ALL: [(&'static str, SplitKey); 4] = [
        ("model", SplitKey::Model),
        ("workload", SplitKey::Workload),
        ("hardware", SplitKey::Hardware),
        ("backend-version", SplitKey::BackendVersion),
    ];

    fn group(self, experiment: &ExperimentReport) -> String {
        match self {
            SplitKey::Model => experiment.model.clone(),
            SplitKey::Workload => experiment.workload.clone(),
            SplitKey::Hardware => experiment.hardware.clone(),
            SplitKey::BackendVersion => experiment.backend_version.clone().unwrap_or_else(|| "not stated".to_owned()),
        }
    }
}

impl FromStr for SplitKey {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = SplitKey::ALL.iter().find(|(known, _)| *known == name);
        let names: Vec<&str> = SplitKey::ALL.iter().map(|(known, _)| *known).collect();
        found.map(|(_, key)| *key).ok_or_else(|| format!("must be one of {}", names.join(", ")))
    }
}

/// The summary of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Experiments in it.
    pub experiments: usize,
    /// Errors by metric over the whole runs of the group.
    pub summary: Summary,
}

/// Experiments summed up group by group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Split {
    /// What they are grouped by.
    pub by: SplitKey,
    /// Groups by name.
    pub groups: BTreeMap<String, Group>,
}

impl Split {
    /// Groups experiments by `key`.
    pub fn new(experiments: &[ExperimentReport], key: SplitKey) -> Self {
        let mut members: BTreeMap<String, Vec<&ExperimentReport>> = BTreeMap::new();
        for experiment in experiments {
            members.entry(key.group(experiment)).or_default().push(experiment);
        }
        let group = |members: Vec<&ExperimentReport>| Group {
            experiments: members.len(),
            summary: summarise(members, Rows::WholeRun, None),
        };
        Split { by: key, groups: members.into_iter().map(|(name, members)| (name, group(members))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::comparison::MetricRow;
    use super::super::comparison::tests::report;
    use super::super::metric::Metric;
    use super::*;

    #[test]
    fn each_group_has_its_own_errors() {
        let row = |predicted_ms| vec![MetricRow::new(-1, Metric::E2E_MEAN, 100.0, predicted_ms)];
        let mut experiments =
            vec![report("a", "llama", row(110.0)), report("b", "qwen", row(80.0)), report("c", "llama", row(130.0))];
        experiments[1].backend_version = Some("0.15.1".to_owned());
        let split = Split::new(&experiments, SplitKey::Model);
        assert_eq!(split.groups.keys().collect::<Vec<_>>(), ["llama", "qwen"]);
        assert_eq!(split.groups["llama"].experiments, 2);
        let median = split.groups["llama"].summary[&Metric::E2E_MEAN].median_ape_pct;
        assert!((median - 20.0).abs() < 1e-9, "{median}");
        let versions = Split::new(&experiments, SplitKey::BackendVersion);
        assert_eq!(versions.groups.keys().collect::<Vec<_>>(), ["0.15.1", "not stated"]);
        let json = serde_json::to_value(&versions).expect("JSON");
        assert_eq!(json["by"], "backend-version");
    }

    #[test]
    fn keys_are_known_by_name() {
        assert_eq!("workload".parse(), Ok(SplitKey::Workload));
        let message = "gpu".parse::<SplitKey>().expect_err("not a key");
        assert!(message.contains("model, workload, hardware, backend-version"), "{message}");
    }
}
