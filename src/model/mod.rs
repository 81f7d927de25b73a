//! Models: a Hugging Face `config.json` (built in, or a file) parsed, checked once and turned into a [`Model`], the
//! shape that the physics works on. Uses `dtype`, `error`, `catalog`.

mod shape;

pub use shape::{Attention, DenseFfn, GqaAttention, LayerGroup, MlaAttention, Model, Moe, Window};
