//! Builds efficiency tables from kernel measurements and scores tables on measurements. `rows` places the measurements,
//! `calibrate_family` drives: it builds (`build`, `fit` for a family's kernel model, `trees` and `fill` for gaps), cross-validates and checks.

mod attention_call;
pub mod build;
pub mod calibrate_family;
pub mod cross_validate;
pub mod exclusions;
mod families;
pub mod family;
pub mod fill;
pub mod fit;
pub mod latent_block;
pub mod mixed_attention;
pub mod off_table;
mod own_series;
pub mod repeated;
pub mod report;
pub mod rows;
pub mod source;
mod too_fast;
pub mod trees;
