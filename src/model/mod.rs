//! Models: a Hugging Face `config.json`, built in or from a file, becomes a checked [`Model`], the shape that the physics
//! works on. Uses `dtype`, `error`, `input`.

mod attention;
mod builtin;
mod classes;
mod config;
mod context_length;
mod derived_keys;
mod draft;
mod families;
mod family;
mod ffn;
mod hybrid;
mod names;
mod other_files;
mod other_methods;
mod own_sampling;
mod pattern;
mod quantisation;
mod recipe;
mod refused_names;
pub(crate) mod sampling;
pub(crate) mod shape;
mod sizes;
mod sparse;
mod storage;
mod tower;
mod unsupported;
mod weight_variant;
mod window;

pub use builtin::{BuiltinModel, builtin_models, builtin_names};
pub use draft::{Draft, DraftMethod, DraftShape, MAX_SPECULATIVE_TOKENS};
pub use own_sampling::{OwnSampling, SamplerWork};
pub use sampling::SamplingParams;
pub(crate) use shape::Model;
pub use shape::{
    Attention, DenseFfn, GqaAttention, Indexer, LayerGroup, MlaAttention, Moe, Recurrence, StateMixer, Window,
};
