//! The options of a step model: all choices other than model, GPU and deployment, among them its correction. Uses `correction`, `efficiency`,
//! `error`, `hardware`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::correction::{Correction, Level, builtin_corrections};
use crate::efficiency::EfficiencyMode;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::hardware::Hardware;

/// Choices other than model, GPU and deployment.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Calibrated tables, or the textbook roofline. Defaults to the tables.
    pub efficiency: EfficiencyMode,
    /// Engine whose kernels are launched and looked up, without a version the newest with kernels of its own for the GPU ([`engine_on`](crate::engine_on)).
    /// Where a version was not measured on a GPU, the nearest is the fallback.
    pub engine: Engine,
    /// Folder whose `bench_data/` and `hardware/` come before the built-in ones.
    pub data_dir: Option<PathBuf>,
    /// Correction fitted to measured engine runs. Defaults to the recommended one.
    pub correction: CorrectionChoice,
    /// Power limit of each GPU, W, as `nvidia-smi -pl` sets it ([`Hardware::with_power_limit`]); `None` for the board's own power.
    pub power_limit_watt: Option<f64>,
    /// Whether GPUs over PCIe read each other's memory; `None` for what the GPU's file says ([`Hardware::peer_access`]).
    pub peer_access: Option<bool>,
    /// Skip building the lookup tables (about 10 ms). Set this if you only need a few predictions:
    /// [`StepModel::step_time_us`](crate::StepModel::step_time_us) then evaluates every operator.
    pub operators_only: bool,
}

impl Options {
    /// Default options without a correction.
    pub fn uncorrected() -> Self {
        Options { correction: CorrectionChoice::None, ..Options::default() }
    }

    /// Returns the GPU as these options set it up. A step model does so by itself; a GPU that is set up already stays as it is.
    ///
    /// # Errors
    /// Those of [`Hardware::with_power_limit`].
    pub fn gpu(&self, hardware: &Hardware) -> Result<Hardware> {
        let limited = match self.power_limit_watt {
            Some(watt) => hardware.with_power_limit(watt)?,
            None => hardware.clone(),
        };
        Ok(match self.peer_access {
            Some(is_there) => limited.with_peer_access(is_there),
            None => limited,
        })
    }
}

/// Which correction a step model applies to its operators' times.
///
/// ```
/// use ridgepoint::CorrectionChoice;
/// assert_eq!(CorrectionChoice::from("auto"), CorrectionChoice::Auto);
/// assert_eq!(CorrectionChoice::from("mine.toml"), CorrectionChoice::File("mine.toml".into()));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub enum CorrectionChoice {
    /// No correction: the sum of the operators.
    None,
    /// The recommended one: the model's own if one is built in, else the global one; none with ideal efficiency.
    #[default]
    Auto,
    /// The one for models that were not measured.
    Global,
    /// A file that `ridgepoint fit` wrote.
    File(PathBuf),
    /// This one.
    Given(Arc<Correction>),
}

impl From<&str> for CorrectionChoice {
    /// `none`, `auto`, `global`, or else the path of a file.
    fn from(name: &str) -> Self {
        match name {
            "none" => CorrectionChoice::None,
            "auto" => CorrectionChoice::Auto,
            "global" => CorrectionChoice::Global,
            path => CorrectionChoice::File(path.into()),
        }
    }
}

impl CorrectionChoice {
    /// The correction that this choice means for `model`; `None` for no correction.
    ///
    /// # Errors
    /// A correction of the textbook roofline; a file that is missing, at fault or meant for another model.
    pub fn resolve(&self, model: &str, efficiency: EfficiencyMode) -> Result<Option<Arc<Correction>>> {
        match (self, efficiency) {
            (CorrectionChoice::None, _) | (CorrectionChoice::Auto, EfficiencyMode::Ideal) => Ok(None),
            (choice, EfficiencyMode::Ideal) => {
                let name = match choice {
                    CorrectionChoice::File(path) => path.display().to_string(),
                    CorrectionChoice::Given(correction) => correction.name.clone(),
                    _ => "global".to_owned(),
                };
                let reason = "requires calibrated tables: disable the correction or use tabulated efficiency";
                Err(Error::invalid_argument("correction", name, reason))
            }
            (CorrectionChoice::Auto, _) => {
                let own = Level::Model { model: model.to_owned() };
                match built_in(&own)? {
                    Some(correction) => Ok(Some(correction)),
                    None => built_in(&Level::Global),
                }
            }
            (CorrectionChoice::Global, _) => built_in(&Level::Global),
            (CorrectionChoice::File(path), _) => Ok(Some(Arc::new(from_file(path, model)?))),
            (CorrectionChoice::Given(correction), _) => Ok(Some(Arc::clone(correction))),
        }
    }
}

fn built_in(level: &Level) -> Result<Option<Arc<Correction>>> {
    Ok(builtin_corrections()?.iter().find(|correction| correction.level == *level).cloned().map(Arc::new))
}

fn from_file(path: &Path, model: &str) -> Result<Correction> {
    let name = path.display().to_string();
    if !path.is_file() {
        let reason = "must be none, global, auto or the path of a file that `ridgepoint fit` wrote";
        return Err(Error::invalid_argument("correction", name, reason));
    }
    let correction = Correction::load(&name)?;
    match &correction.level {
        Level::Model { model: other } if other != model => Err(Error::invalid(
            name,
            vec![format!("is meant for {other} and not for {model}; the global correction is for any model")],
        )),
        _ => Ok(correction),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHOUT_ITS_OWN: &str = "no-such-model";

    fn resolved(choice: &str, model: &str) -> Result<Option<Arc<Correction>>> {
        CorrectionChoice::from(choice).resolve(model, EfficiencyMode::Tables)
    }

    fn written(level: &Level) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let correction = Correction { level: level.clone(), ..Correction::neutral() };
        std::fs::write(dir.path().join("mine.toml"), correction.to_toml_string().unwrap()).unwrap();
        dir
    }

    #[test]
    fn names_find_what_is_built_in() {
        assert_eq!(resolved("none", "llama-2-7b").unwrap(), None);
        let global = resolved("global", "llama-2-7b").unwrap().unwrap();
        assert_eq!((global.name.as_str(), &global.level), ("global", &Level::Global));
        assert_eq!(resolved("auto", WITHOUT_ITS_OWN).unwrap().as_ref(), Some(&global));
        for own in builtin_corrections().unwrap() {
            let Level::Model { model } = &own.level else { continue };
            assert_eq!((&own.name, resolved("auto", model).unwrap().as_deref()), (model, Some(own)));
            assert_eq!(resolved("global", model).unwrap().as_ref(), Some(&global));
        }
    }

    #[test]
    fn ideal_efficiency_means_no_correction() {
        for choice in ["auto", "none"] {
            assert_eq!(CorrectionChoice::from(choice).resolve("llama-2-7b", EfficiencyMode::Ideal).unwrap(), None);
        }
        for choice in ["global", "mine.toml"] {
            let error = CorrectionChoice::from(choice).resolve("llama-2-7b", EfficiencyMode::Ideal).unwrap_err();
            assert!(error.to_string().contains("requires calibrated tables"), "{error}");
        }
    }

    #[test]
    fn a_path_is_read_where_it_is_meant_for_the_model() {
        let dir = written(&Level::Global);
        let path = dir.path().join("mine.toml").display().to_string();
        let any = resolved(&path, WITHOUT_ITS_OWN).unwrap().unwrap();
        assert_eq!((&any.name, any.coefficients), (&path, Correction::neutral().coefficients));

        let dir = written(&Level::Model { model: "yi-34b".to_owned() });
        let path = dir.path().join("mine.toml").display().to_string();
        assert!(resolved(&path, "yi-34b").unwrap().is_some());
        let refused = resolved(&path, "llama-2-7b").unwrap_err().to_string();
        for part in ["mine.toml", "is meant for yi-34b and not for llama-2-7b", "the global correction"] {
            assert!(refused.contains(part), "'{part}' is not in: {refused}");
        }
    }

    #[test]
    fn a_path_where_nothing_is_names_the_choices() {
        let dir = tempfile::tempdir().unwrap();
        for choice in [dir.path().join("mine.toml").display().to_string(), dir.path().display().to_string()] {
            let message = resolved(&choice, "llama-2-7b").unwrap_err().to_string();
            assert!(message.contains(&choice), "{message}");
            assert!(message.contains("none, global, auto or the path of a file"), "{message}");
        }
    }
}
