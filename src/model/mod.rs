//! Models: a Hugging Face `config.json`, built in or from a file, becomes a checked [`Model`], the shape that the physics
//! works on. Uses `dtype`, `error`, `input`.

mod attention;
pub(crate) mod builtin;
mod config;
mod context_length;
mod family;
mod ffn;
mod hybrid;
mod names;
mod own_sampling;
mod pattern;
mod quantisation;
mod recipe;
pub(crate) mod sampling;
pub(crate) mod shape;
mod sizes;
mod sparse;
mod storage;
mod unsupported;
mod weight_variant;
mod window;

pub use builtin::builtin_names;
pub use own_sampling::{OwnSampling, SamplerWork};
pub use sampling::SamplingParams;
pub(crate) use shape::{
    Attention, DenseFfn, GqaAttention, Indexer, LayerGroup, MlaAttention, Model, Moe, Recurrence, StateMixer, Window,
};
