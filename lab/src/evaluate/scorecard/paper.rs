//! The sixteen experiments of the fidelity paper: four models, each under four workloads, on H100.

use serde::Serialize;

use super::ScoredRun;

/// Models of the paper by our names.
const MODELS: [&str; 4] = ["llama-2-7b", "llama-2-70b", "codellama-34b", "mixtral-8x7b"];

/// Workloads of the paper. Published runs carry them in their names, with the rate behind (`general-lite`).
const WORKLOADS: [&str; 4] = ["general", "codegen", "roleplay", "reasoning"];

/// An experiment of the paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PaperExperiment {
    /// Short name of the model.
    pub model: &'static str,
    /// Name of the workload.
    pub workload: &'static str,
    /// Runs of this model and workload.
    pub runs: usize,
    /// Their largest absolute error of the mean E2E, percent; `None` where there is no data.
    pub max_e2e_mean_pct: Option<f64>,
}

/// The sixteen, with the runs that stand for them.
pub(super) fn experiments(runs: &[ScoredRun]) -> Vec<PaperExperiment> {
    let of = |model: &'static str, workload: &'static str| {
        let alike = || runs.iter().filter(|run| run.model == model && run.name.contains(workload));
        let errors = alike().filter_map(|run| run.e2e_mean_pct).map(f64::abs);
        PaperExperiment { model, workload, runs: alike().count(), max_e2e_mean_pct: errors.reduce(f64::max) }
    };
    MODELS.into_iter().flat_map(|model| WORKLOADS.map(|workload| of(model, workload))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_stand_for_the_experiment_of_their_model_and_name() {
        let run = |name: &str, model: &str, e2e: f64| ScoredRun {
            name: name.to_owned(),
            model: model.to_owned(),
            workload: None,
            e2e_mean_pct: Some(e2e),
            ttft_mean_pct: None,
            itl_mean_pct: None,
            passed_p1: true,
            passed_p2: false,
        };
        let runs = [
            run("9-mixtral-8x7b-tp2-general", "mixtral-8x7b", -4.0),
            run("27-mixtral-8x7b-tp2-general-lite-2-1", "mixtral-8x7b", 3.0),
            run("60-llama-3-1-70b-tp4-general", "llama-3.1-70b", 50.0),
        ];
        let all = experiments(&runs);
        assert_eq!(all.len(), 16);
        let known: Vec<_> = all.iter().filter(|of| of.runs > 0).collect();
        assert_eq!(known.len(), 1);
        assert_eq!((known[0].model, known[0].workload, known[0].runs), ("mixtral-8x7b", "general", 2));
        assert_eq!(known[0].max_e2e_mean_pct, Some(4.0));
    }
}
