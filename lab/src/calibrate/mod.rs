//! Builds efficiency tables from kernel measurements and scores tables on measurements.

pub mod build;
pub mod cross_validate;
mod families;
pub mod family;
pub mod fill;
pub mod fit;
pub mod latent_block;
mod mixed_attention;
pub mod off_table;
pub mod operators;
pub mod repeated;
pub mod report;
pub mod rows;
pub mod source;
mod too_fast;
pub mod trees;
