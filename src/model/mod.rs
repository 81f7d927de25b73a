//! Models: a Hugging Face `config.json`, built in or from a file, becomes a checked [`Model`], the shape that the physics
//! works on. Uses `dtype`, `error`, `input`.

mod attention;
mod builtin;
mod config;
mod family;
mod ffn;
mod hybrid;
mod layer_kind;
mod names;
mod pattern;
mod quantisation;
mod sampling;
mod shape;
mod sizes;
mod sparse;
mod storage;
mod unsupported;
mod weight_variant;
mod window;

pub use builtin::{BuiltinModel, builtin_models, builtin_names};
pub use sampling::SamplingDefaults;
pub use shape::{
    Attention, DenseFfn, GqaAttention, Indexer, LayerGroup, MlaAttention, Model, Moe, Recurrence, SparseAttention,
    StateMixer, Window,
};
