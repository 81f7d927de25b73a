//! Finds the checkpoint of a model in a requested number format: the model itself, or its quantised variant.

use std::path::Path;

use super::builtin::is_listed;
use super::names::plain_scheme;
use super::shape::{Attention, Model};
use crate::dtype::{MatmulFormat, WeightFormat};
use crate::error::{Error, Result};

impl Model {
    /// Returns the format of most weights: of the experts in the most frequent kind of layer, or of its dense block.
    pub fn main_weight_format(&self) -> Option<WeightFormat> {
        let group = self.layers.iter().max_by_key(|group| group.count)?;
        let experts = group.moe.as_ref().map(|moe| moe.weights);
        experts.or(group.dense.as_ref().map(|dense| dense.weights))
    }

    /// Returns whether most weights have the bits of `format`. `fp8` covers scales of every kind, and fp4 both fp4 formats.
    pub fn stores(&self, format: MatmulFormat) -> bool {
        self.main_weight_format().is_some_and(|stored| MatmulFormat::from(stored).bits() == format.bits())
    }

    /// Returns whether a layer stores projections of its token mixer in more bits than `format`: many quantised checkpoints leave them alone.
    pub fn leaves_projections_above(&self, format: MatmulFormat) -> bool {
        let is_above = |stored: WeightFormat| MatmulFormat::from(stored).bits().0 > format.bits().0;
        self.layers.iter().any(|group| match &group.attention {
            Attention::Gqa(of) => is_above(of.qkv_weights) || is_above(of.o_weights),
            Attention::Mla(of) => is_above(of.weights) || is_above(of.o_weights),
            Attention::State(of) => is_above(of.in_weights) || is_above(of.out_weights),
            Attention::None => false,
        })
    }

    /// Finds a model whose weights are stored in `format`, and a note if that is not the checkpoint of this name.
    ///
    /// For an unquantised checkpoint this is its published variant, or else the one that its publisher would make as far as that is
    /// known, or else the plain scheme of an engine that quantises while loading. Quantised weights are not quantised again: for these it
    /// is a published variant only.
    ///
    /// # Errors
    /// Those of [`Model::find_in`], and `ErrorKind::Invalid` if there is no such variant: for a path, or a checkpoint with
    /// other quantised weights.
    pub fn find_variant(
        data_dir: Option<&Path>,
        name_or_path: &str,
        format: MatmulFormat,
    ) -> Result<(Model, Option<String>)> {
        Self::variant_by(Model::find_in, data_dir, name_or_path, format)
    }

    /// [`Model::find_variant`] among the models that `find` finds.
    pub fn variant_by(
        find: impl Fn(Option<&Path>, &str) -> Result<Model>,
        data_dir: Option<&Path>,
        name_or_path: &str,
        format: MatmulFormat,
    ) -> Result<(Model, Option<String>)> {
        let model = find(data_dir, name_or_path)?;
        let Some(stored) = model.main_weight_format().filter(|_| !model.stores(format)) else {
            return Ok((model, None));
        };
        let refused = |way_out: &str| {
            let problem =
                format!("{format} is requested, but {} stores its weights as {stored}: {way_out}", model.name);
            Error::invalid(name_or_path, vec![problem])
        };
        let Some((suffix, ..)) = plain_scheme(format) else {
            return Err(refused("name the served checkpoint, or request no format"));
        };
        let is_path = Path::new(name_or_path).exists();
        let is_plain = matches!(stored, WeightFormat::Plain(_));
        // The published variant is often another publisher's.
        let listed = format!("{}-{suffix}", model.name);
        let is_published = !is_path && is_listed(data_dir, &listed)?;
        let variant = find(data_dir, &if is_published { listed } else { format!("{name_or_path}-{suffix}") });
        match variant {
            Ok(variant) if !is_path && variant.stores(format) && (is_plain || is_listed(data_dir, &variant.name)?) => {
                let note = format!(
                    "{format} is requested: {} stores its weights as {stored}, so {} ({}) is used instead",
                    &model.name,
                    &variant.name,
                    variant.main_weight_format().unwrap_or(stored)
                );
                Ok((variant, Some(note)))
            }
            _ if is_plain => Err(refused("give the config.json of the quantised checkpoint, or request no format")),
            _ => Err(refused("name the served checkpoint, or request no format")),
        }
    }
}
