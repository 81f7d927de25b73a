//! `GET /v1/support`: what is known of each model on each GPU, by the sources of the times of one decode step.

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::model::builtin_names;
use ridgepoint::{Deployment, Hardware, Model, OperatorGroup, Options, Provenance, Request, StepModel};
use schemars::JsonSchema;
use serde::Serialize;

use crate::problem::Problem;
use ridgepoint_lab::hardware_report::names;

/// Requests and cached tokens of the step.
const REQUESTS: usize = 16;
const CACHED_TOKENS: u32 = 1024;
/// Shares of the step's time below this do not count.
const LEAST_SHARE: f64 = 0.05;
/// The numbers of GPUs that are tried.
const SIZES: [u32; 4] = [1, 2, 4, 8];

/// What is known, as rows of models and columns of GPUs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Support {
    /// The rows.
    models: Vec<SupportedModel>,
    /// The columns.
    hardware: Vec<SupportedGpu>,
    /// By model, then by GPU.
    cells: Vec<Vec<Cell>>,
}

/// A row.
#[derive(Debug, Serialize, JsonSchema)]
struct SupportedModel {
    /// Short name.
    name: String,
    /// The `model_type` of its configuration.
    family: String,
}

/// A column.
#[derive(Debug, Serialize, JsonSchema)]
struct SupportedGpu {
    /// Short name.
    name: String,
    /// The maker's name.
    display_name: String,
}

/// A model on a GPU.
#[derive(Debug, Serialize, JsonSchema)]
struct Cell {
    /// The worst source of more than 5 % of the time of a step of 16 decodes, small kernels aside.
    status: Status,
    /// The same in words.
    detail: String,
}

/// Where times come from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// Kernels that were measured on this GPU, or between those.
    Own,
    /// Similar kernels of this GPU, or shapes beyond those that were measured.
    StandIn,
    /// Kernels of another GPU.
    Borrowed,
    /// The bound of the datasheet.
    Datasheet,
    /// There is no prediction.
    Refused,
}

impl Support {
    /// Predicts a step of every built-in model on every GPU.
    ///
    /// # Errors
    /// A file of the data folder that is at fault.
    pub fn new(data_dir: Option<&Path>) -> Result<Self, Problem> {
        let models = builtin_names().into_iter().map(Model::builtin).collect::<ridgepoint::Result<Vec<_>>>()?;
        let names = names(data_dir)?;
        let gpus: Vec<Hardware> =
            names.iter().map(|name| Hardware::named_in(data_dir, name)).collect::<ridgepoint::Result<_>>()?;
        let row = |model: &Model| gpus.iter().map(|gpu| Cell::new(model, gpu, data_dir)).collect();
        let cells = models.par_iter().map(row).collect();
        Ok(Support {
            models: models.into_iter().map(|of| SupportedModel { name: of.name, family: of.model_type }).collect(),
            hardware: gpus
                .into_iter()
                .map(|gpu| SupportedGpu { name: gpu.name, display_name: gpu.display_name })
                .collect(),
            cells,
        })
    }
}

impl Cell {
    fn new(model: &Model, gpu: &Hardware, data_dir: Option<&Path>) -> Self {
        let mut refused = None;
        for tensor_parallel_size in SIZES {
            let deployment =
                Deployment { max_model_len: Some(4096), ..Deployment::tensor_parallel(tensor_parallel_size) };
            let fits = KvCapacity::new(model, gpu, &deployment);
            match fits.and_then(|_| Cell::predicted(model, gpu, &deployment, data_dir)) {
                Ok(cell) => return cell,
                Err(error) => refused = Some(error.to_string()),
            }
        }
        Cell { status: Status::Refused, detail: refused.unwrap_or_default() }
    }

    fn predicted(
        model: &Model,
        gpu: &Hardware,
        deployment: &Deployment,
        data_dir: Option<&Path>,
    ) -> ridgepoint::Result<Self> {
        let options = Options { operators_only: true, data_dir: data_dir.map(Path::to_owned), ..Options::default() };
        let steps = StepModel::with_options(model, gpu, deployment, &options)?;
        let step = steps.estimate(&[Request::decode(CACHED_TOKENS); REQUESTS])?;
        // Small kernels have tables on no GPU, so that they distinguish none.
        let mut shares: BTreeMap<(bool, Status, &str), f64> = BTreeMap::new();
        for operator in &step.operators {
            let is_small = matches!(operator.group, Some(OperatorGroup::SmallKernels | OperatorGroup::Sampling));
            if let Some((status, source)) = source(operator.provenance) {
                *shares.entry((is_small, status, source)).or_default() += operator.share;
            }
        }
        shares.retain(|_, share| *share >= LEAST_SHARE);
        let counting = shares.keys().filter(|(is_small, ..)| !is_small).map(|(_, status, _)| *status);
        let status = counting.max().unwrap_or(Status::Datasheet);
        let parts: Vec<String> = shares
            .iter()
            .map(|((is_small, _, source), share)| {
                let of = if *is_small { "small kernels: " } else { "" };
                format!("{:.0} % {of}{source}", 100.0 * share)
            })
            .collect();
        let gpus = match deployment.tensor_parallel_size {
            1 => "one GPU".to_owned(),
            several => format!("{several} GPUs"),
        };
        Ok(Cell { status, detail: format!("a step of {REQUESTS} decodes on {gpus}: {}", parts.join(", ")) })
    }
}

/// The status of a source of times; `None` for what a correction adds.
fn source(of: Provenance) -> Option<(Status, &'static str)> {
    match of {
        Provenance::Measured => Some((Status::Own, "measured")),
        Provenance::Interpolated => Some((Status::Own, "between measured shapes")),
        Provenance::Clamped => Some((Status::StandIn, "from similar kernels or from the edge of the measured shapes")),
        Provenance::Borrowed => Some((Status::Borrowed, "from kernels of another GPU")),
        Provenance::Learned => None,
        _ => Some((Status::Datasheet, "the datasheet's bound")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_that_of_the_worst_share_that_counts() {
        let cell = |model: &str, gpu: &str| {
            let (model, gpu) = (Model::find(model).unwrap(), Hardware::find(gpu).unwrap());
            Cell::new(&model, &gpu, None)
        };
        let own = cell("llama-3.1-8b", "h100");
        assert!(own.status == Status::Own && own.detail.contains("on one GPU"), "{own:?}");
        let borrowed = cell("llama-3.1-8b", "l4");
        assert!(borrowed.status >= Status::Borrowed, "{borrowed:?}");
        // 671 GB of weights do not fit eight GPUs of 24 GB.
        let refused = cell("deepseek-v3", "l4");
        assert_eq!(refused.status, Status::Refused, "{refused:?}");
    }
}
