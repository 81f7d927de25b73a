//! The model of a server, in the precision that its arguments ask for and with what drafts tokens for it.

use std::path::Path;

use ridgepoint::Model;
use ridgepoint::dtype::{MatmulFormat, WeightFormat};
use ridgepoint::{Error, Result};

use super::ServerConfig;

impl ServerConfig {
    /// Finds the model in the requested precision, and notes about the choice.
    ///
    /// For a narrower precision than the checkpoint's, this is the quantised variant of the checkpoint, or the plain scheme of
    /// an engine that quantises while loading. 16 bits on a quantised checkpoint can only mean its activations.
    ///
    /// # Errors
    /// Those of [`Model::find_in`], and `ErrorKind::Invalid` if there is no such variant: for a `config.json` of one's own, or
    /// a checkpoint with other quantised weights.
    pub fn find_model(&self, data_dir: Option<&Path>) -> Result<(Model, Vec<String>)> {
        let find = |data_dir: Option<&Path>, name: &str| match self.names_only {
            true => Model::named_in(data_dir, name),
            false => Model::find_as(data_dir, name, self.as_family.as_deref()),
        };
        let mut notes = Vec::new();
        let drafted = |model: Model, notes: &mut Vec<String>| match &self.speculative {
            Some(speculative) => {
                speculative.draft(model, data_dir, find, notes).map_err(|error| error.of(&self.origin))
            }
            None => Ok(model),
        };
        let precision = match (self.precision, self.quantization.as_deref()) {
            (Some(precision), _) => Some(precision),
            (None, None | Some("auto" | "none" | "None")) => None,
            (None, Some(method)) => self.quantised_on_load(&find(data_dir, &self.model)?, method)?,
        };
        let Some(precision) = precision else {
            return Ok((drafted(find(data_dir, &self.model)?, &mut notes)?, notes));
        };
        if precision.bits().0 == 16 {
            let model = find(data_dir, &self.model)?;
            let stored = model.main_weight_format().filter(|_| !model.stores(precision));
            let note = stored.map(|format| {
                let name = &model.name;
                format!(
                    "precision = {precision}: {name} stores its weights as {format}, which is predicted; 16 bits can only mean its activations"
                )
            });
            notes.extend(note);
            return Ok((drafted(model, &mut notes)?, notes));
        }
        let variant =
            Model::variant_by(find, data_dir, &self.model, precision).map_err(|error| error.of(&self.origin))?;
        notes.extend(variant.1.into_iter().map(|note| format!("precision: {note}")));
        Ok((drafted(variant.0, &mut notes)?, notes))
    }

    /// The format that a method of quantisation gives the weights of a 16-bit checkpoint; `None` where the checkpoint is quantised itself.
    fn quantised_on_load(&self, model: &Model, method: &str) -> Result<Option<MatmulFormat>> {
        let stored = model.main_weight_format();
        if stored.is_some_and(|format| !matches!(format, WeightFormat::Plain(_))) {
            return Ok(None);
        }
        match method {
            "fp8" => Ok(Some(MatmulFormat::Fp8)),
            _ => {
                let reason = format!(
                    "{} is not quantised: name a quantised checkpoint, or give `precision`, as in precision = int4",
                    model.name
                );
                Err(Error::invalid_argument("quantization", method, reason).of(&self.origin))
            }
        }
    }
}
