//! Models: a Hugging Face `config.json` (built in, or a file) parsed, checked once and turned into a [`Model`], the
//! shape that the physics works on. Uses `dtype`, `error`, `catalog`.

mod attention;
mod builtin;
mod config;
mod family;
mod ffn;
mod fields;
mod names;
mod parameters;
mod pattern;
mod quantisation;
mod sampling;
mod shape;
mod storage;
mod unsupported;
mod window;

pub use builtin::{BuiltinModel, builtin_models, builtin_names};
pub use parameters::ParameterCounts;
pub use sampling::SamplingDefaults;
pub use shape::{Attention, DenseFfn, GqaAttention, LayerGroup, MlaAttention, Model, Moe, Window};
